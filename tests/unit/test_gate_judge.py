"""What the gate says: what fails, what is allowed, what is better, and what cannot be judged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_receipts import again, branch, eager, first, receipt
from msgspec.structs import replace
from timelines import PACKAGE_FILE, TORCH_FILE

from compilediag.compare.gate.baseline import Baseline, format_lock, parse_lock
from compilediag.compare.gate.judge import judge, record_baseline
from compilediag.compare.gate.judgement import Judgement
from compilediag.compare.gate.limits import NAMES, SECONDS, parse_limits
from compilediag.compare.keys import NEEDS
from compilediag.compare.run_baseline import ConfigBaseline, find_cause_finding
from compilediag.receipt.file import read_receipt
from compilediag.receipt.schema.receipt import Receipt

RECORDED = sorted((Path(__file__).parents[1] / "data" / "views").glob("*.json"))
Change = Callable[[dict[str, Any]], Any]


def known(run: Receipt, reason: str | None = "known") -> ConfigBaseline:
    return record_baseline(run, None, reason=reason).baseline


def against(baseline: Receipt | ConfigBaseline, run: Receipt, **more: Any) -> Judgement:
    lane = known(baseline) if isinstance(baseline, Receipt) else baseline
    return judge(run, baseline=lane, baseline_name="x.json", **more)


def limited(run: Receipt, limits: str, **more: Any) -> Judgement:
    return judge(run, limits=parse_limits(limits), **more)


def failing(judgement: Judgement) -> list[tuple[str, str, str | None]]:
    return [(item.kind, item.rule, item.variable or item.function) for item in judgement.failures]


CLEAN = receipt()
ONE_CAUSE = receipt(first(), again("n"))


def test_a_new_cause_fails_once() -> None:
    """The cause alone: the recompile, the compile and the graph it made are not told again."""
    found = against(CLEAN, ONE_CAUSE)
    (item,) = found.failures
    assert not found.passed
    assert (item.kind, item.rule, item.variable) == ("cause", "CD107", "n")
    assert (item.file, item.line, item.function) == ("app.py", 10, "forward")
    assert (item.before, item.after, item.cost_s, item.finding) == (0, 1, 0.5, "F1")
    assert item.guard == "L['n'] == 2 (expected 2, met 3)"
    assert item.fix is None  # no recipe is known
    assert "not in the baseline" in item.message
    changed = {each.name: each.change for each in found.counts if each.change}
    assert changed == {"compiles": 1, "recompiles": 1, "graphs": 1}


def test_a_known_cause_met_more_often_fails() -> None:
    """Allowed once is not allowed twice."""
    found = against(ONE_CAUSE, receipt(first(), again("n"), again("n", 2, 2)))
    (item,) = found.failures
    assert (item.variable, item.before, item.after, item.reason) == ("n", 1, 2, "known")
    assert "the baseline has 1 recompile" in item.message


def test_fewer_is_better_and_passes_unless_strict() -> None:
    """The counts that a cause took along are not told again; the ratchet asks for an update."""
    found = against(ONE_CAUSE, CLEAN)
    assert found.passed
    assert [(each.kind, each.before, each.after) for each in found.improvements] == [
        ("cause", 1, 0)
    ]
    assert not against(ONE_CAUSE, CLEAN, strict=True).passed
    assert against(CLEAN, CLEAN, strict=True).passed


COSTS = (again("cheap", 1, 1, seconds=0.1), again("dear", 2, 2, seconds=3.0))
HELPER, BREAK = ("fallback", "CD904", "helper"), ("break", "CD201", "forward")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # Causes by cost, then the other kinds: the order in which formats with a limit cut.
        (
            against(
                CLEAN,
                receipt(first(), *COSTS, eager(), breaks=[branch()]),
                limits=parse_limits("recompiles>1"),
            ),
            [("cause", "CD107", "dear"), ("cause", "CD107", "cheap"), HELPER, BREAK, "recompiles"],
        ),
        # Too few compiles: what was compiled is not at fault.
        (limited(ONE_CAUSE, "compiles<3"), ["compiles"]),
        # The new cause is one failure although the limit shows it too.
        (
            against(CLEAN, ONE_CAUSE, limits=parse_limits("recompiles>0,CD107>0,findings>0")),
            [("cause", "CD107", "n"), "recompiles", "CD107", "findings"],
        ),
        # A rule that is no cause: the finding itself is shown.
        (
            limited(receipt(first(), eager(), breaks=[branch()]), "CD201>0,CD904>0,CD103>0"),
            [HELPER, BREAK, "CD201", "CD904"],
        ),
    ],
)
def test_what_fails_in_its_order(found: Judgement, expected: list[Any]) -> None:
    limits = [("limit", each, None) if isinstance(each, str) else each for each in expected]
    assert failing(found) == limits


def test_a_break_and_its_line() -> None:
    """A new site fails with its line; the frames it splits off are its consequence."""
    run = receipt(first(), first("torch_dynamo_resume_in_forward_at_14", 1), breaks=[branch()])
    found = against(CLEAN, run)
    (item,) = found.failures
    assert (item.kind, item.rule, item.line, item.before) == ("break", "CD201", 14, 0)
    assert item.fix is None
    assert found.notices == (
        "1 more frame compiled (forward (resumed)): the new graph breaks and fallbacks come first",
    )


@pytest.mark.parametrize(
    ("before", "after", "failure"),
    [
        # Sites of one function with one reason are counted.
        (receipt(breaks=[branch(14)]), receipt(breaks=[branch(14), branch(30)]), "break CD201 1 2"),
        (CLEAN, receipt(first(), first("other", 1)), "frame frames 0 1"),
        # `torch._dynamo.reset()` in a loop: more first compiles of a known frame.
        (CLEAN, receipt(first(), first(epoch=1)), "frame compiles 1 2"),
        # More graphs of the same compiles: nothing else explains the count.
        (receipt(first(graph_ops=0)), receipt(first()), "count graphs 0 1"),
    ],
)
def test_more_than_the_baseline_has_fails(before: Receipt, after: Receipt, failure: str) -> None:
    """In one item, with how often it is there."""
    (item,) = against(before, after).failures
    assert f"{item.kind} {item.rule} {item.before} {item.after}" == failure


def test_a_fallback_that_is_mended() -> None:
    """The frame is compiled now: one more compile and graph, which is no regression."""
    found = against(receipt(first(), eager()), receipt(first(), first("helper", 5)))
    assert found.passed
    assert [item.kind for item in found.improvements] == ["fallback"]


def test_a_renamed_function_passes() -> None:
    """As many first compiles as before; that names differ is said."""
    found = against(
        receipt(first("old"), first("kept", 1)), receipt(first("new"), first("kept", 1))
    )
    assert found.passed
    assert found.notices == (
        "compiled where the baseline has other frames, and no more in all: new",
    )


def test_recordings() -> None:
    """More CUDA-graph recordings fail; a run that did not count them is not judged."""

    def recordings(count: int | None) -> Receipt:
        part = {"applicable": True, "recordings": count}
        return receipt(change=lambda raw: raw["cudagraph"].update(part))

    assert failing(against(recordings(2), recordings(3))) == [("recording", "recordings", None)]
    assert against(recordings(2), recordings(2)).passed
    missing = against(recordings(2), recordings(None))
    assert not missing.judged
    assert "this run did not measure them" in missing.failures[0].message
    assert "recordings (2) are not in the baseline" in against(CLEAN, recordings(2)).notices[0]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([[2, 4096]], [[2, 15]], "forward accepts fewer sizes of x.shape[0]"),
        ([[2, 4096]], [[8, 8]], "than in the baseline"),
        ([[2, 15]], [[2, 4096]], None),  # more
        ([[2, 15]], None, None),  # not known
        ([[8, 8]], [[9, 9]], None),  # a single size is that of the data
        ([[2, 8], [10, 12]], [[1, 20]], None),
    ],
)
def test_graphs_that_accept_less(before: Any, after: Any, said: str | None) -> None:
    """A graph that accepts less than before fails, also from the text of the baseline."""

    def accepts(spans: Any) -> Receipt:
        sizes = {"dimensions": ["x.shape[0]"], "size": 8, "spans": spans, "largest": 4096}
        frame = {"function": "forward", "file": "app.py", "line": 10}
        accepted = [{"frame": frame, "compile_id": "0/1", **sizes}] if spans else []
        return receipt(change=lambda raw: raw["compile"].update(accepted_sizes=accepted))

    written = parse_lock(format_lock(Baseline((known(accepts(before)),))))
    found = against(written.configurations[0], accepts(after))
    assert [said in item.message for item in found.failures] == ([True] if said else [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw.update(verdict="blind"), "the receipt is blind"),
        (lambda raw: raw.update(verdict=None), "no verdict"),
        (lambda raw: raw["header"]["lane"].update(past_limit=True), "the recompile limit was lift"),
        (lambda raw: raw.update(status="killed"), "the run was killed"),
        (lambda raw: raw.update(status="interrupted"), "the run was interrupted"),
        (lambda raw: raw.update(status="partial"), "records of the run were lost"),
        (lambda raw: raw["checks"].update(evidence_complete=False), "evidence is not complete"),
        (lambda raw: raw["checks"].update(evidence_complete=None), "it is not recorded whether"),
        (lambda raw: raw["checks"].update(all_ranks_reported=False), "of 1 ranks only 1"),
    ],
)
def test_what_was_not_observed_is_no_pass(change: Change, said: str) -> None:
    """With a baseline and with limits alone; the run is not recorded either."""
    run = receipt(change=change)
    for found in (against(CLEAN, run), limited(run, "recompiles>0")):
        assert (found.passed, found.judged) == (False, False)
        assert {item.kind for item in found.failures} == {"not_judged"}
        assert said in found.failures[0].message
    assert said in record_baseline(run, None).inconclusive[0]


def test_a_code_of_a_version_to_come_is_no_reason() -> None:
    """A receipt that is blind may have findings that this version does not know."""
    (finding, *_) = ONE_CAUSE.findings
    run = replace(ONE_CAUSE, verdict="blind", findings=(replace(finding, rule="CD999"),))
    assert "the receipt is blind" in limited(run, "recompiles>0").failures[0].message


def test_a_failed_run_says_why() -> None:
    """The exit code and the reason stand in the message."""
    run = receipt(status="failed", exit_code=3, failure_reason="ValueError: no")
    (item,) = against(CLEAN, run).failures
    assert "failed with exit code 3" in item.message
    assert item.message.endswith(": ValueError: no")


@pytest.mark.parametrize(
    ("hook", "judged"), [("saves", True), ("log_state", False), ("compile_requests", False)]
)
def test_a_hook_that_torch_no_longer_has(hook: str, judged: bool) -> None:
    """What no count needs does not stop the gate, and is said; what counts need does."""

    def lose(raw: dict[str, Any]) -> None:
        raw["checks"]["evidence_complete"] = False
        raw["completeness"]["reasons"] = [f"{hook}: something"]

    found = limited(receipt(change=lose), "recompiles>0")
    assert (found.judged, found.passed) == (judged, judged)
    assert found.notices == ((f"not observed: {hook}: something",) if judged else ())
    unended = receipt(change=lose, process_more={"ended": False})
    assert not limited(unended, "recompiles>0").judged


def test_an_absent_lane() -> None:
    """A baseline without this lane is an error and no pass."""
    (item,) = judge(CLEAN, baseline=None, baseline_name="x.json").failures
    assert (item.kind, item.message) == (
        "not_judged",
        "the baseline x.json has no configuration 'train'",
    )


def test_another_lane_is_named() -> None:
    """Every field that differs; one that only the receipt knows does not matter."""
    lane = known(CLEAN)
    other = replace(lane, fields={**lane.fields, "precision": "bf16"})
    (item,) = against(other, CLEAN).failures
    assert item.message == "another configuration: precision is not set and in the baseline bf16"
    older = dict(lane.fields)
    del older["numerics_flags.autocast_cpu"]
    assert against(replace(lane, fields=older), CLEAN).passed


def test_another_torch_is_a_notice() -> None:
    """The build does not matter at all, another release is told."""

    def version(torch: str) -> Receipt:
        return receipt(change=lambda raw: raw["environment"].update(torch=torch))

    assert against(version("2.13.0+cpu"), version("2.13.0+cu130")).notices == ()
    found = against(version("2.13.0"), version("2.15.0"))
    assert found.passed
    assert found.notices == ("recorded with torch 2.13.0, judged with torch 2.15.0",)


def test_a_known_cause_without_a_reason_is_a_notice() -> None:
    """It passes, and it is said."""
    found = against(known(ONE_CAUSE, None), ONE_CAUSE)
    assert found.passed
    assert found.notices[0].startswith("allowed without a reason: n;")


def test_limits_alone_show_where_the_count_comes_from() -> None:
    """The cause with its line and fix comes first, then the limit with its numbers."""
    found = limited(ONE_CAUSE, "recompiles>0,graph_breaks>0")
    cause, limit = found.failures
    assert (cause.kind, cause.variable, cause.line, cause.before) == ("cause", "n", 10, None)
    assert (limit.kind, limit.rule, limit.before, limit.after) == ("limit", "recompiles", 0, 1)
    assert found.limits == ("recompiles>0", "graph_breaks>0")
    assert all(item.change == 0 for item in found.counts)
    assert limited(ONE_CAUSE, "recompiles>1").passed


def test_own_code_only() -> None:
    """Breaks, frames and counts of packages and of torch do not count."""
    run = receipt(
        first(),
        breaks=[branch(14), branch(3, "call", PACKAGE_FILE), branch(9, "inner", TORCH_FILE)],
    )
    assert len(against(CLEAN, run).failures) == 3
    found = against(CLEAN, run, own_code_only=True)
    assert [(item.kind, item.file) for item in found.failures] == [("break", "app.py")]
    own = limited(run, "graph_breaks>1", own_code_only=True)
    assert own.passed
    assert {item.name: item.after for item in own.counts}["graph_breaks"] == 1
    assert not limited(run, "graph_breaks>1").passed
    apart = limited(run, "recompile_limit_hits>0", own_code_only=True)
    assert "cannot be split by whose code it is" in apart.failures[0].message


def test_own_code_only_takes_nothing_as_better() -> None:
    """What a package does is neither judged nor called an improvement while it is still there."""
    run = receipt(breaks=[branch(3, "call", PACKAGE_FILE)])
    assert against(run, run, own_code_only=True, strict=True).passed


def test_fingerprints_do_not_move() -> None:
    """The same fault after lines have moved; another variable is another fault."""

    def prints(*compiles: Any) -> list[str]:
        return [item.fingerprint for item in against(CLEAN, receipt(*compiles)).failures]

    here = prints(first(), again("n", line=10), again("m", 2, 2))
    assert len(set(here)) == 2
    assert prints(first(), again("n", line=77), again("m", 2, 2)) == here


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_recorded_receipts(file: Path) -> None:
    """Each passes by itself where it can be judged at all; every limit on it is decided."""
    run = read_receipt(file)
    found = against(run, run)
    assert found.passed == found.judged == (run.verdict != "blind" and run.status == "complete")
    counts = [name for name in NAMES if name not in (*SECONDS, *NEEDS)]
    names = [name for name in NAMES if name not in NEEDS]  # which older receipts do not have
    above = limited(run, ",".join(f"{name}>1000000" for name in names))
    below = limited(run, ",".join(f"{name}<1000000" for name in counts))
    assert above.passed == found.judged
    assert not below.passed
    if found.judged:
        assert [item.rule for item in below.failures] == counts


def test_a_ceiling_on_compile_seconds() -> None:
    """Each is held by its own field; without that, or for one's own code alone, nothing passes."""

    def taking(raw: dict[str, Any]) -> None:
        times = {"total": 60.5, "first_compile": 20.0, "recompile": None, "backend": None}
        raw["compile"]["time_s"] = times

    run = receipt(change=taking)
    assert limited(run, "compile_s>61,first_compile_s>20").passed
    found = limited(run, "compile_s>60,first_compile_s>=20")
    assert [item.message for item in found.failures] == [
        "compile seconds: 60.5, and the limit is compile_s>60",
        "first compile seconds: 20.0, and the limit is first_compile_s>=20",
    ]
    assert {(item.before, item.after) for item in found.failures} == {(None, None)}  # no counts
    assert not limited(run, "recompile_s>5").judged
    assert not limited(run, "compile_s>61", own_code_only=True).judged


def test_a_cause_is_explained_by_the_finding_it_names() -> None:
    """Tensors that changed alike are one finding, under the first of them."""
    cause = ONE_CAUSE.compile.events[-1].causes[0]
    last = ONE_CAUSE.findings[-1]
    named = replace(cause, variable="another", finding=last.id)
    assert find_cause_finding(ONE_CAUSE, named) == last
    assert find_cause_finding(ONE_CAUSE, replace(named, finding=None)) is None
