"""The diagnosis: cause and symptom are one finding, the dearest first, and never a false clean."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pytest
from built_receipt import finding as built_finding
from timelines import FILE, at_limit, attempt, false_guard, log, process, recompile, site, timeline

from compilediag.diagnosis.causes.run_causes import find_run_causes
from compilediag.diagnosis.codes import Severity
from compilediag.diagnosis.findings import Finding
from compilediag.rules.diagnose import ALL_RULES, diagnose
from compilediag.rules.recompiles import RecompileRule
from compilediag.timeline.timeline import BreakSite, Timeline
from compilediag_harness.wire import EvidenceLost, Location

CLEAN = timeline([attempt("0/0")], text_log=log())
ITEM = (
    "Graph break in user code at /home/user/app.py:14\nGraph Break Reason: Unsupported "
    "Tensor.item() call\n  Explanation: x\n\n  Developer debug context: y\n\n see /gb/gb0124.html\n"
)
LOOP = ITEM.replace("Unsupported Tensor.item() call", "graph break in loop").replace("0124", "7000")


def broken_frame(text: str) -> Timeline:
    """A frame without a graph, a break in it, and another frame that is fine."""
    failed = attempt("0/0", kind="failed", seconds=0.3, fail_reason="Unsupported Tensor.item()")
    fine = attempt("1/0", where=Location(FILE, 30, "head"))
    met: BreakSite = site(text)
    return timeline([failed, fine], breaks=(met,), text_log=log(0, 0, [(FILE, 14)]))


def verdict_of(*findings: Finding) -> str:
    def rule(_: Timeline) -> Iterable[Finding]:
        return findings

    return diagnose(CLEAN, (rule,)).verdict


def test_what_a_screen_lists_has_the_first_numbers() -> None:
    """Then doubt, which the verdict names, what has not happened yet, and notes; each by cost."""
    rules = ("CD511", "info", 9.0), ("CD902", "warning", 8.0), ("CD151", "warning", 7.0)
    rules += ("CD104", "warning", 1.0), ("CD103", "warning", 2.0)
    made = [
        msgspec.structs.replace(built_finding(), rule=rule, severity=severity, cost_s=cost_s)
        for rule, severity, cost_s in rules
    ]
    found = diagnose(CLEAN, (lambda _: made,)).findings
    assert [finding.rule for finding in found] == ["CD103", "CD104", "CD902", "CD151", "CD511"]
    assert [finding.id for finding in found] == ["F1", "F2", "F3", "F4", "F5"]


def test_causes_are_worked_out_once_and_kept() -> None:
    """The diagnosis has the causes of every recompile; a rule that is called alone finds the same
    as one that shares them."""
    run = timeline(
        [attempt("0/0"), attempt("0/1", kind="recompile", cause=recompile(guards=[false_guard()]))],
        processes=(process(torch=False),),  # of an unknown version no setting is known
    )
    diagnosis = diagnose(run)
    assert diagnosis.causes == find_run_causes(run)
    rules = [rule for rule in ALL_RULES if isinstance(rule, RecompileRule)]
    alone = [msgspec.structs.replace(finding, id="F1") for rule in rules for finding in rule(run)]
    assert alone == list(diagnosis.findings) != []
    assert find_run_causes(CLEAN).groups == {}


@pytest.mark.parametrize("both", [True, False])
def test_padding_alone_prevents_nothing_where_each_recompile_has_another_cause(both: bool) -> None:
    """Said of advice as of a recipe; a recompile for the size alone is prevented by padding."""
    size = false_guard(
        "L['x']",
        "tensor 'x' size mismatch at index 0. expected 1, actual 6",
        leaf="TENSOR_MATCH",
        expected="[1, 4]",
        actual="[6, 4]",
    )
    other = false_guard("L['name']", "L['name'] == 'a'", expected="'a'", actual="'b'")
    again = attempt("0/1", kind="recompile", step=1, cause=recompile(guards=[size, other]))
    smaller = replace(size, expected="[6, 4]", actual="[1, 4]")
    alone = attempt("0/2", kind="recompile", step=2, cause=recompile("0/2", guards=[smaller]))
    findings = diagnose(timeline([attempt("0/0"), again, *([] if both else [alone])])).findings
    found = next(finding for finding in findings if finding.rule == "CD105")
    assert "pad to" in found.fix.summary
    assert found.fix.recipe is None
    assert ("this alone does not prevent the recompile: " in (found.fix.caveat or "")) == both


def test_findings_are_found_by_what_they_explain() -> None:
    """Each cause and each break leads to its finding, also where that absorbed another one."""
    run = timeline([attempt("0/0"), attempt("0/1", kind="recompile")], text_log=log(1))
    diagnosis = diagnose(run)
    (cause,) = diagnosis.causes.get_causes(run.recompiles[0])
    assert diagnosis.finding_ids == {cause.id: "F1"}
    for text in (ITEM, LOOP):
        assert diagnose(broken_frame(text)).finding_ids == {(FILE, 14): "F1"}


@pytest.mark.parametrize(
    ("run", "rule"),
    [
        (Timeline(), "CD901"),
        (replace(CLEAN, text_log=log(5)), "CD903"),
        (replace(CLEAN, lost=(EvidenceLost(0.0, 0, "text_log", "silenced"),)), "CD902"),
        (replace(CLEAN, processes=(process(records_dropped=1),)), "CD902"),
    ],
)
def test_blind(run: Timeline, rule: str) -> None:
    """Nothing that was seen is never clean."""
    diagnosis = diagnose(run)
    assert (diagnosis.verdict, diagnosis.findings[0].rule) == ("blind", rule)


@pytest.mark.parametrize(
    ("severity", "verdict"), [("info", "clean"), ("warning", "findings"), ("error", "findings")]
)
def test_verdict(severity: Severity, verdict: str) -> None:
    """Information alone leaves a run clean."""
    found = built_finding(rule="CD204", severity=severity, variable=None, cost_s=None)
    assert verdict_of(found) == verdict
    assert verdict_of() == "clean"


def test_a_consequence_belongs_to_the_eager_frame() -> None:
    """Where torch names only the loop, the frame that ran eager is the finding."""
    (finding,) = diagnose(broken_frame(LOOP)).findings
    assert finding.rule == "CD904"


def test_a_consequence_without_its_frame_is_kept() -> None:
    """If the frame is unknown, the report of the loop is not lost."""
    run = timeline([attempt("1/0")], breaks=(site(LOOP),), text_log=log(0, 0, [(FILE, 14)]))
    (finding,) = diagnose(run).findings
    assert (finding.rule, finding.severity) == ("CD290", "error")


def test_an_explicit_break_keeps_its_severity() -> None:
    """The user asked for `disable`; that it costs the whole frame is a warning, not an error."""
    title = "Skip calling `torch.compiler.disable()`d function"
    text = ITEM.replace("Unsupported Tensor.item() call", title).replace("gb0124", "gb0098")
    (finding,) = diagnose(broken_frame(text)).findings
    assert (finding.also, finding.severity) == (("CD904",), "warning")


def test_the_limit_and_its_cause() -> None:
    """Both are findings: what recompiles, and that the frame is eager since; nothing else is."""
    diagnosis = diagnose(timeline(at_limit(8), text_log=log(8, 1)))
    assert [finding.rule for finding in diagnosis.findings] == ["CD107", "CD152"]
    cause, limit = diagnosis.findings
    assert (cause.count, cause.cost_s) == (7, 3.5)
    assert limit.also == ("CD107",)


def test_recompiles_of_compiled_autograd_that_a_guard_explains() -> None:
    """A recompile of the captured backward graph has a cause: it is that cause's finding."""
    compiles = [
        attempt("!0/0/0"),
        attempt("!0/0/1", kind="recompile", step=2),
        attempt("!0/0/2", kind="recompile", step=3),
    ]
    (finding,) = diagnose(timeline(compiles, text_log=log(2))).findings
    assert (finding.rule, finding.also) == ("CD107", ("CD153",))


def test_every_rule_is_pure() -> None:
    """Rules find nothing in nothing but that nothing was there, and find it twice alike."""
    found = [finding.rule for rule in ALL_RULES for finding in rule(Timeline())]
    assert found == ["CD901"]
    run = broken_frame(ITEM)
    assert diagnose(run) == diagnose(run)
