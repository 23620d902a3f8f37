"""The six points of a certificate, each of which can fail."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from compilediag.fixes.certificate import judge, needs_float64
from compilediag.fixes.outputs import compare_outputs
from compilediag.fixes.proof_types import (
    FindingIdentity,
    ObservedRun,
    TrialCertificate,
    UnchangedRuns,
    count_finding,
    identify_finding,
)
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    CompileSection,
    EventCause,
    FindingRecord,
    FrameName,
    GraphBreak,
    Place,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import CudagraphSection
from compilediag.rules.changes import DeclaredEffects, NumberAsTensor
from compilediag.timeline.invocations import Calls, StanceCalls, Step
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import (
    Location,
    OutputsSampled,
    RandomStateRead,
    SampledValue,
    StateRead,
    TrialApplied,
)
from tests.support.built_receipt import built
from tests.support.receipt_records import compile_event, event_cause, finding_record
from tests.support.timelines import WHERE, attempt, timeline

STEPS = 12


def cause(variable: str = "n", finding: str | None = "F1", rule: str = "CD107") -> EventCause:
    facts = {"source": f"L['{variable}']", "expected": "1", "actual": "2"}
    place = {"file": "model.py", "line": 3, "function": "forward"}
    return event_cause(variable=variable, rule=rule, finding=finding, **facts, **place)


def again(number: int, *causes: EventCause) -> CompileEvent:
    frame = FrameName(function="forward", file="model.py", line=3)
    return compile_event(*causes, compile_id=f"0/{number}", step=number, frame=frame)


def site(reason: str = "print", finding: str | None = None) -> GraphBreak:
    return GraphBreak(
        file="model.py",
        line=5,
        function="forward",
        gb_id=None,
        category="logging",
        reason=reason,
        count=1,
        ownership="user",
        finding=finding,
    )


def finding(rule: str = "CD107", number: str = "F1", variable: str | None = "n") -> FindingRecord:
    place = Place(file="model.py", line=3, function="forward")
    return finding_record(rule=rule, id=number, variable=variable, location=place)


def receipt(
    *events: CompileEvent,
    findings: tuple[FindingRecord, ...] = (),
    breaks: tuple[GraphBreak, ...] = (),
    **more: Any,
) -> Receipt:
    counts = {"graph_breaks": len(breaks), "eager_fallbacks": 0, "recompile_limit_hits": 0, **more}
    recordings = counts.pop("recordings", None)
    compiled = CompileSection(
        frames=1,
        compiles=1 + len(events),
        recompiles=len(events),
        graphs=1 + len(events),
        events=events,
        breaks=breaks,
        **counts,
    )
    graphs = None if recordings is None else CudagraphSection(recordings=recordings)
    return msgspec.structs.replace(built(), compile=compiled, findings=findings, cudagraph=graphs)


def output(value: float) -> OutputsSampled:
    answer = SampledValue(
        "", "tensor", "float32", (1,), (value,), norm=value, largest=value, digest=repr(value)
    )
    return OutputsSampled(0.0, 0, WHERE, 0, (answer,))


def run(value: float = 1.0, calls: int = 6, steps: int = STEPS, **more: Any) -> Timeline:
    count = SampledValue(".calls", "number", "int", values=(float(calls),), digest=str(calls))
    facts: dict[str, Any] = {
        "sampled_outputs": (output(value),),
        "held_states": (StateRead(0.0, WHERE, "Model", (count,)),),
        "random_states": (RandomStateRead(0.0, (("torch", "a"),)),),
        "invocations": (Calls(0, WHERE, steps, (), (), ()),),
        "steps": tuple(Step(0, n, float(n), 0.01, None, None, None, 0.0) for n in range(steps)),
        **more,
    }
    return timeline([attempt("0/0")], **facts)


FINDING = finding()
BASE = ObservedRun(receipt(again(1, cause()), again(2, cause()), findings=(FINDING,)), run())
EAGER = ObservedRun(receipt(), run())
SUBJECT = identify_finding(FINDING, BASE.receipt)
GOOD = ObservedRun(receipt(), run())
ELSEWHERE = Location(WHERE.file, 99, "other")
SILENT = {"timeline": run(sampled_outputs=(), held_states=())}
"""A run whose calls return nothing."""


def judged(*runs: ObservedRun, **more: Any) -> TrialCertificate:
    return judge(SUBJECT, UnchangedRuns(BASE, EAGER), runs or (GOOD, GOOD), **more)


def judged_after(before: Receipt, *runs: ObservedRun, **more: Any) -> TrialCertificate:
    """Where the program as it is has another receipt."""
    return judge(SUBJECT, UnchangedRuns(replace(BASE, receipt=before), EAGER), runs, **more)


def failed(certificate: TrialCertificate) -> list[str]:
    return [point.name for point in certificate.points if point.passed is False]


def test_what_holds_in_all_points() -> None:
    found = judged()
    assert (found.holds, found.reason, found.runs) == (True, "", 2)
    names = [point.name for point in found.points]
    assert names == ["applied", "finding", "others", "compiled", "answers", "time", "cost"]
    figures = {figure.name: (figure.before, figure.after) for figure in found.figures}
    assert figures["recompiles"] == (2, 0)
    assert "2 values equal" in found.points[4].sentence
    assert found.points[5].sentence == "step +0% [+0%, +0%], one run each"


def test_a_subject_is_found_again_by_its_cause_not_by_its_number() -> None:
    other = receipt(again(1, cause(finding="F9")), again(2, cause("m", "F1")))
    assert count_finding(SUBJECT, other) == 1
    broken = receipt(breaks=(site(finding="F1"),), findings=(FINDING,))
    assert identify_finding(FINDING, broken).unit == "graph breaks"
    both = receipt(again(1, cause()), breaks=(site(finding="F1"),), findings=(FINDING,))
    assert identify_finding(FINDING, both) == identify_finding(FINDING, broken)
    assert identify_finding(FINDING, receipt()).key == ("CD107", "n", "model.py", "forward")


REMAINS = receipt(again(1, cause(finding="F3")), findings=(FINDING,))


def test_some_may_remain_where_that_is_known() -> None:
    assert failed(judged(replace(GOOD, receipt=REMAINS))) == ["finding"]
    assert judged(replace(GOOD, receipt=REMAINS), declared=DeclaredEffects(left=1)).holds
    assert failed(judged(GOOD, replace(GOOD, receipt=REMAINS))) == ["finding"]  # in each run


def test_as_many_recompiles_under_another_name_are_not_gone() -> None:
    """Each call that recompiled for `n` did so for `m` too: a plain run has as many as before."""
    both = receipt(again(1, cause(), cause("m", "F2")), findings=(FINDING, finding(number="F2")))
    other = receipt(again(1, cause("m", "F1")), findings=(finding(number="F2"),))
    found = judged_after(both, replace(GOOD, receipt=other))
    assert failed(found)[0] == "finding"
    assert "recompiles for it 1 → 0, but as many in all (1 → 1)" in found.reason
    assert judged_after(both, GOOD).holds


def test_a_finding_that_did_not_come_again_is_not_proved() -> None:
    assert "did not reappear" in judged_after(receipt(), GOOD).reason


@pytest.mark.parametrize(
    ("worse", "reason"),
    [
        (receipt(breaks=(site(),)), "graph breaks 0 → 1"),
        (receipt(eager_fallbacks=1), "eager fallbacks 0 → 1"),
        (receipt(recompile_limit_hits=1), "recompile limit hits 0 → 1"),
        (receipt(recordings=2), "CUDA graph recordings 0 → 2"),
    ],
)
def test_something_else_got_worse(worse: Receipt, reason: str) -> None:
    found = judged(replace(GOOD, receipt=worse))
    assert failed(found) == ["others"]
    assert reason in found.reason


def test_a_new_name_or_finding_is_not_worse_where_the_totals_fell() -> None:
    """What recompiled for `n` twice does so for `m` once: fewer, whatever torch blames."""
    renamed = receipt(again(1, cause("m", "F1", "CD118")), findings=(finding("CD118"),))
    assert judged(replace(GOOD, receipt=renamed)).holds


def test_a_break_may_have_another_name_in_its_function_and_no_other_function() -> None:
    two = (site(), site("log"))
    before = replace(BASE, receipt=receipt(again(1, cause()), breaks=two))
    subject = identify_finding(FINDING, before.receipt)
    other = msgspec.structs.replace(site(), function="forward_twice")
    for moved, holds in ((site("other"), True), (other, False)):
        after = replace(GOOD, receipt=receipt(breaks=(site(), moved)))
        assert judge(subject, UnchangedRuns(before, EAGER), (after,)).holds == holds


def test_a_recompile_behind_a_break_may_have_another_name_without_it() -> None:
    """What stood behind the break is part of the frame before it then."""
    broken = receipt(
        again(1, cause("kept", "F2")), findings=(FINDING,), breaks=(site(finding="F1"),)
    )
    before = replace(BASE, receipt=broken)
    subject = identify_finding(FINDING, broken)
    renamed = receipt(again(1, cause("self.kept", "F2")), findings=(finding(number="F2"),))
    assert judge(subject, UnchangedRuns(before, EAGER), (replace(GOOD, receipt=renamed),)).holds
    more = receipt(again(1, cause("self.kept", "F2")), again(2, cause("m", "F3")))
    found = judge(subject, UnchangedRuns(before, EAGER), (replace(GOOD, receipt=more),))
    assert "recompiles 1 → 2" in found.reason


@pytest.mark.parametrize(
    ("vacuous", "reason"),
    [
        (replace(run(), compiles=(attempt(where=ELSEWHERE),)), f"{WHERE.function} is no longer"),
        (run(steps=6), "compiled calls 12 → 6"),
        (replace(run(), compiles=()), "graph operations 3 → 0"),
        (
            run(stance_calls=(StanceCalls(0, WHERE, "eager_on_recompile", 11, None),)),
            "compiled calls 12 → 1",
        ),
        (replace(run(), steps=()), "steps 12 → 0"),
    ],
)
def test_less_is_compiled(vacuous: Timeline, reason: str) -> None:
    found = judged(replace(GOOD, timeline=vacuous))
    assert "compiled" in failed(found)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (run(value=2.0), "1 → 2"),
        (run(calls=1), "calls: 6 → 1"),
        (run(sampled_outputs=()), "is missing"),
        (run(random_states=(RandomStateRead(0.0, (("torch", "b"),)),)), "different random numbers"),
    ],
)
def test_other_results(other: Timeline, reason: str) -> None:
    found = judged(GOOD, replace(GOOD, timeline=other))
    assert failed(found) == ["answers"]
    assert reason in found.reason


def test_other_printed_results() -> None:
    printed = UnchangedRuns(replace(BASE, printed=("loss 1.0",)), EAGER)
    same, other = (replace(GOOD, printed=(text,)) for text in ("loss 1.00001", "loss 1.5"))
    assert judge(SUBJECT, printed, (same,)).holds
    assert "prints 'loss 1.5'" in judge(SUBJECT, printed, (other,)).reason
    assert "1 → 0 results are printed" in judge(SUBJECT, printed, (GOOD,)).reason


def test_results_in_a_message_that_is_left_out() -> None:
    """The message is declared; what else is printed stays, in its order."""
    printed = UnchangedRuns(replace(BASE, printed=("loss 1.0", "loss 2.0", "RESULT 3")), EAGER)
    message = DeclaredEffects(silences=True)
    rest, other, turned = (
        replace(GOOD, printed=texts)
        for texts in (("loss 1.0", "RESULT 3"), ("RESULT 4",), ("RESULT 3", "loss 1.0"))
    )
    found = judge(SUBJECT, printed, (rest,), declared=message)
    assert found.holds
    (answers,) = [point for point in found.points if point.name == "answers"]
    assert "1 printed result left out with the message" in answers.sentence
    assert not judge(SUBJECT, printed, (rest,)).holds
    assert not judge(SUBJECT, printed, (other,), declared=message).holds
    assert not judge(SUBJECT, printed, (turned,), declared=message).holds


def test_a_message_is_not_all_that_can_be_compared() -> None:
    bare, eager, after = (replace(each, **SILENT) for each in (BASE, EAGER, GOOD))
    printed = UnchangedRuns(replace(bare, printed=("loss 1.0",)), eager)
    found = judge(SUBJECT, printed, (after,), declared=DeclaredEffects(silences=True))
    assert "no number" in found.reason


def test_what_is_printed_is_compared_where_calls_return_nothing() -> None:
    """An optimizer's step, say: its result is what the program prints."""
    bare, eager, after = (replace(each, **SILENT) for each in (BASE, EAGER, GOOD))
    for without in (UnchangedRuns(bare, eager), UnchangedRuns(bare, None)):
        assert "no number that a compiled call returned" in judge(SUBJECT, without, (after,)).reason
    printed = UnchangedRuns(replace(bare, printed=("loss 1.0",)), eager)
    assert judge(SUBJECT, printed, (replace(after, printed=("loss 1.0",)),)).holds
    assert not judge(SUBJECT, printed, (replace(after, printed=("loss 2.0",)),)).holds


def test_equal_to_eager_where_the_program_itself_was_not() -> None:
    wrong = UnchangedRuns(replace(BASE, timeline=run(value=5.0)), EAGER)
    found = judge(SUBJECT, wrong, (GOOD,))
    assert found.holds
    assert "differed from eager" in found.points[4].sentence
    as_before = replace(GOOD, timeline=run(value=5.0))
    assert "differ from eager too" in judge(SUBJECT, wrong, (as_before,)).points[4].sentence
    third = replace(GOOD, timeline=run(value=7.0))
    assert failed(judge(SUBJECT, wrong, (third,))) == ["answers"]


def test_a_random_program_proves_nothing() -> None:
    differ = compare_outputs(run(value=1.0), run(value=3.0))
    found = judge(SUBJECT, UnchangedRuns(BASE, EAGER, differ), (GOOD,))
    assert "two runs without the change differ" in found.reason


def test_a_change_that_was_not_applied_proves_nothing() -> None:
    label = "torch._dynamo.config.x = 1"
    assert "never reached" in judged(GOOD, labels=[label]).reason
    for problem, holds in ((None, True), ("the program sets it itself", False)):
        applied = run(trial_applied=(TrialApplied(0.0, label, problem),))
        assert judged(replace(GOOD, timeline=applied), labels=[label]).holds == holds


def test_a_subject_without_a_recompile_is_the_finding_itself() -> None:
    forecast = finding("CD151", "F2", None)
    before = replace(BASE, receipt=receipt(findings=(forecast,)))
    subject = identify_finding(forecast, before.receipt)
    assert subject == FindingIdentity("findings", key=("CD151", "", "model.py", "forward"))
    assert judge(subject, UnchangedRuns(before, EAGER), (GOOD,)).holds
    assert failed(judge(subject, UnchangedRuns(before, EAGER), (before,))) == ["finding"]


def precise(value: float, exact: float) -> ObservedRun:
    """An eager run with the call in float64."""
    answer = replace(output(exact).answers[0], dtype="float64")
    return replace(
        EAGER, timeline=run(sampled_outputs=(replace(output(value), reference=(answer,)),))
    )


def test_float64_decides_where_numbers_alone_differ() -> None:
    """Eager is 0.0001 from it: as much is excused, a hundred times as much is not."""
    near, lie = (replace(GOOD, timeline=run(value=value)) for value in (0.9998, 1.01))
    without = UnchangedRuns(BASE, EAGER)
    for other in (near, lie):
        refused = judge(SUBJECT, without, (other,))
        assert failed(refused) == ["answers"]
        assert needs_float64(refused, without, (other,))
    known = replace(without, precise=precise(1.0, 0.9999))
    found = judge(SUBJECT, known, (near, near))
    assert found.holds
    assert "1 of them differ by more than rounding usually does" in found.points[4].sentence
    refused = judge(SUBJECT, known, (near, lie))
    assert failed(refused) == ["answers"]
    assert not needs_float64(refused, known, (lie,))


@pytest.mark.parametrize(
    "other",
    [
        GOOD,
        replace(GOOD, timeline=run(value=1.01, calls=1)),
        replace(GOOD, timeline=run(value=1.01, random_states=())),
        replace(GOOD, timeline=run(value=1.01), printed=("loss 1",)),
        replace(GOOD, timeline=run(value=1.01, steps=3)),
        replace(GOOD, timeline=run(sampled_outputs=())),
    ],
)
def test_float64_is_not_needed_where_it_decides_nothing(other: ObservedRun) -> None:
    without = UnchangedRuns(BASE, EAGER)
    assert not needs_float64(judge(SUBJECT, without, (other,)), without, (other,))


def test_a_file_that_was_edited_meanwhile() -> None:
    """Runs of two programs prove nothing; data that the program writes is no program."""

    def of(**digests: str) -> Receipt:
        made = receipt()
        provenance = msgspec.structs.replace(made.header.provenance, source_sha256=digests)
        header = msgspec.structs.replace(made.header, provenance=provenance)
        return msgspec.structs.replace(made, header=header)

    compiled = BASE.receipt.compile
    before = msgspec.structs.replace(of(**{"a.py": "1", "log": "1"}), compile=compiled)
    for digests, holds in (({"a.py": "2"}, False), ({"a.py": "1", "log": "2"}, True), ({}, True)):
        found = judged_after(before, replace(GOOD, receipt=of(**digests)))
        assert found.holds == holds
        assert holds or found.reason == "a.py was edited while changes were tried"


def test_a_hook_that_is_left_to_python_takes_its_operations() -> None:
    def compiled(operations: int) -> Timeline:
        return replace(run(), compiles=(attempt("0/0", kind="first", graph_ops=operations),))

    without = UnchangedRuns(replace(BASE, timeline=compiled(6)), EAGER)
    hooked, gone = (ObservedRun(receipt(), compiled(count)) for count in (4, 2))
    disabled = DeclaredEffects(disables=frozenset(["record"]))
    assert judge(SUBJECT, without, [hooked], declared=disabled).holds
    assert failed(judge(SUBJECT, without, [hooked])) == ["compiled"]
    assert failed(judge(SUBJECT, without, [gone], declared=disabled)) == ["compiled"]


def test_a_counter_as_a_tensor_must_end_as_it_did() -> None:
    """What else it may become: tests of `compare`."""
    answer = SampledValue(".calls", "tensor", "int64", (), (6.0,), digest="t")
    held = ObservedRun(receipt(), run(held_states=(StateRead(0.0, WHERE, "Model", (answer,)),)))
    declared = DeclaredEffects(numbers=frozenset([NumberAsTensor("calls", "int64")]))
    assert judged(held, declared=declared).holds
    assert failed(judged(held)) == ["answers"]


def test_calls_that_ran_eager_at_the_limit_recompile_for_the_cause_that_is_left() -> None:
    """One compiled object for each instance: its recompiles are first compiles."""
    before = receipt(again(1, cause()), again(2, cause()), recompile_limit_hits=1)
    before = msgspec.structs.replace(before, findings=(FINDING, finding("CD152", "F2", None)))
    found = judged_after(
        before, replace(GOOD, receipt=receipt(again(1, cause("m")), again(2, cause("m"))))
    )
    assert failed(found) == ["finding"]


def split(
    callee: str, reason: str = "Skip calling `torch.compiler.disable()`d function"
) -> Receipt:
    """A run in which the graph is split at a call of a disabled function."""
    disabled = msgspec.structs.replace(
        finding("CD204", "F9", None),
        severity="info",
        evidence={
            "category": "skipped_or_disabled",
            "reason": reason,
            "callee": {"name": callee, "module": None},
        },
    )
    return receipt(breaks=(site(reason, "F9"),), findings=(disabled,))


def test_a_graph_may_be_split_only_at_the_function_that_is_disabled() -> None:
    disabled = DeclaredEffects(disables=frozenset(["record"]))
    hook = ObservedRun(split("watch.<locals>.record"), run())
    assert judged(hook, declared=disabled).holds
    assert failed(judged(hook)) == ["others"]
    for other in (split("Model.forward"), split("watch.<locals>.record", "graph_break()")):
        assert failed(judged(ObservedRun(other, run()), declared=disabled)) == ["others"]


def test_a_hook_that_is_called_at_last_may_recompile_what_it_belongs_to() -> None:
    """Only where the change says that it corrects this, and for nothing else."""
    ignored = finding("CD119", variable="hidden")
    without = UnchangedRuns(ObservedRun(receipt(findings=(ignored,)), run()), EAGER)
    subject = identify_finding(ignored, without.baseline.receipt)
    hooked = finding("CD115", variable="hidden._forward_hooks")
    called = ObservedRun(
        receipt(again(1, cause(hooked.variable or "", rule="CD115")), findings=(hooked,)), run()
    )
    other = ObservedRun(receipt(again(1, cause("n")), findings=(finding(),)), run())
    corrects = DeclaredEffects(corrects=True)
    assert judge(subject, without, [called], declared=corrects).holds
    assert failed(judge(subject, without, [called])) == ["others"]
    assert failed(judge(subject, without, [other], declared=corrects)) == ["others"]


def test_captures_of_generated_code_are_one() -> None:
    places = [Location(f"<eval_with_key>.{at}", 4, "forward") for at in (2, 5)]
    captures = [attempt("0/0", where=each, graph_ops=9) for each in places]
    own = run().compiles
    without = UnchangedRuns(
        replace(BASE, timeline=replace(run(), compiles=(*own, *captures))), EAGER
    )
    after = replace(GOOD, timeline=replace(run(), compiles=(*own, captures[0])))
    assert judge(SUBJECT, without, [after]).holds
    smaller = attempt("0/0", where=places[0], graph_ops=8)
    less = replace(GOOD, timeline=replace(run(), compiles=(*own, smaller)))
    assert failed(judge(SUBJECT, without, [less])) == ["compiled"]
