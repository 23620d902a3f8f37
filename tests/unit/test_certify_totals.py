"""Points on counts: what is better by torch's totals and places, and as much that is compiled."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from compilediag.certify.points import ExecutedState, JudgedPoint
from compilediag.certify.totals import check_better, check_compiled
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    CompileSection,
    EventCause,
    FrameDetail,
    FrameName,
    GraphBreak,
    Headroom,
    MissedEntry,
    MissedGuard,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import CudagraphSection
from compilediag.timeline.invocations import Calls, CallsOutside, StanceCalls, Step
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import FrameSkipped, GraphRun, GuardsEvaluated, Location
from tests.support.built_receipt import built
from tests.support.receipt_records import compile_event, event_cause, finding_record
from tests.support.timelines import WHERE, attempt, false_guard, hazards, timeline

STEPS = 4
RESUMED = "torch_dynamo_resume_in_forward_at_7"


def frame(function: str = "forward") -> FrameName:
    return FrameName(function=function, file="model.py", line=3)


def cause(variable: str = "n", rule: str = "CD107", function: str = "forward") -> EventCause:
    return event_cause(variable=variable, rule=rule, function=function, confidence="exact")


def again(*causes: EventCause, function: str = "forward", **more: Any) -> CompileEvent:
    return compile_event(*causes, frame=frame(function), **more)


def first(function: str = "forward") -> CompileEvent:
    return compile_event(frame=frame(function), kind="first", compile_id="0/0")


def site(function: str = "forward", reason: str = "print") -> GraphBreak:
    return GraphBreak(
        file="model.py",
        line=5,
        function=function,
        gb_id=None,
        category="logging",
        reason=reason,
        count=1,
        ownership="user",
    )


def receipt(*events: CompileEvent, breaks: tuple[GraphBreak, ...] = (), **more: Any) -> Receipt:
    """Of these events and the first compile of `forward`, unless a first one is among them."""
    whole = events if any(event.kind == "first" for event in events) else (first(), *events)
    recordings, findings = more.pop("recordings", None), more.pop("findings", ())
    counts: dict[str, Any] = {
        "frames": 1,
        "compiles": len(whole),
        "recompiles": sum(event.kind == "recompile" for event in whole),
        "graphs": len(whole),
        "graph_breaks": len(breaks),
        "eager_fallbacks": 0,
        "recompile_limit_hits": 0,
        **more,
    }
    return msgspec.structs.replace(
        built(),
        compile=CompileSection(events=whole, breaks=breaks, **counts),
        findings=findings,
        cudagraph=None if recordings is None else CudagraphSection(recordings=recordings),
    )


def called(calls: int = STEPS, where: Location = WHERE) -> Calls:
    return Calls(0, where, calls, (), (), ())


def run(steps: int = STEPS, **more: Any) -> Timeline:
    facts: dict[str, Any] = {
        "invocations": (called(),),
        "steps": tuple(Step(0, n, float(n), 0.01, None, None, None, 0.0) for n in range(steps)),
        **more,
    }
    return timeline([attempt("0/0")], **facts)


def better(
    before: Receipt, after: Receipt, old: Timeline | None = None, new: Timeline | None = None
) -> JudgedPoint:
    return check_better(
        ExecutedState(before, old or run()), ExecutedState(after, new or old or run())
    )


N, M = cause(), cause("m", "CD118")
TWO, FOUR = receipt(again(N), again(N)), receipt(*(again(N) for _ in range(4)))


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (FOUR, receipt(again(M), again(M)), "recompiles 4 → 2"),
        (FOUR, receipt(*(again(M) for _ in range(3))), "recompiles 4 → 3"),
        (
            receipt(*(again(cause("n", "CD120"), M) for _ in range(3))),
            receipt(again(cause("n", "CD106")), again(N)),
            "recompiles 3 → 2",
        ),
        (
            FOUR,
            receipt(first("moved"), *(again(N, function="moved") for _ in range(3))),
            "recompiles 4 → 3",
        ),
        (receipt(breaks=(site(), site())), receipt(breaks=(site("other"),)), "graph breaks 2 → 1"),
        (
            receipt(first(), first(RESUMED), again(N, function=RESUMED), breaks=(site(), site())),
            receipt(first(), first(RESUMED), again(M), breaks=(site(),)),
            "graph breaks 2 → 1",
        ),
        (
            receipt(first(), first("inner"), again(N, function="inner"), breaks=(site(),)),
            receipt(again(N)),
            "graph breaks 1 → 0",
        ),
        (receipt(again(N), recordings=3), receipt(again(N), recordings=1), "recordings 3 → 1"),
        (
            receipt(again(N), eager_fallbacks=1, recompile_limit_hits=1),
            receipt(),
            "recompiles 1 → 0, eager fallbacks 1 → 0, recompile limit hits 1 → 0",
        ),
    ],
    ids=[
        "another name",
        "another name, one fewer",
        "a combination",
        "a function renamed",
        "a break moved",
        "joined behind a break",
        "taken into its caller",
        "recordings",
        "the limit",
    ],
)
def test_what_is_better_whatever_its_causes_are_called(before, after, sentence) -> None:
    point = better(before, after)
    assert point.outcome == "holds", point
    assert sentence in point.sentence


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (TWO, TWO, "nothing is better: 2 recompiles before and after"),
        (TWO, FOUR, "recompiles 2 → 4"),
        (TWO, receipt(breaks=(site(),)), "graph breaks 0 → 1"),
        (TWO, receipt(eager_fallbacks=1), "eager fallbacks 0 → 1"),
        (TWO, receipt(recompile_limit_hits=1), "recompile limit hits 0 → 1"),
        (TWO, receipt(recordings=1), "CUDA graph recordings 0 → 1"),
        (TWO, receipt(compiles=0, graphs=0), "nothing is compiled any more"),
        (receipt(), receipt(), "there is nothing to improve: 0 recompiles, 0 graph breaks"),
        (
            receipt(*(again(N) for _ in range(3)), first(), first("other")),
            receipt(first(), first("other"), *(again(N, function="other") for _ in range(2))),
            "recompiles of other in model.py 0 → 2",
        ),
        (
            receipt(again(N), breaks=(site(), site())),
            receipt(breaks=(site(), site("new"))),
            "graph breaks in functions that are new 0 → 1",
        ),
    ],
)
def test_what_is_not_better(before: Receipt, after: Receipt, sentence: str) -> None:
    point = better(before, after)
    assert point.outcome == "fails", point
    assert sentence in point.sentence


def test_counts_of_a_run_that_lost_evidence_are_not_judged() -> None:
    blind = msgspec.structs.replace(TWO, verdict="blind")
    assert better(FOUR, blind).outcome == better(blind, receipt()).outcome == "undecided"


def test_a_place_may_have_more_where_the_total_fell_by_as_much() -> None:
    both = [first(), first("other")]
    before = receipt(*both, *(again(N) for _ in range(3)))
    assert better(before, receipt(*both, again(N, function="other"))).outcome == "holds"


def test_recompiles_may_move_into_the_wrapper_of_torch() -> None:
    """There is no graph break any more in what it calls, and so no frame."""
    wrapper = FrameName(
        function="inner", file="site-packages/torch/_dynamo/external_utils.py", line=2
    )
    moved = compile_event(cause(), frame=wrapper)
    before = receipt(first(), again(N), again(N), breaks=(site(),))
    assert better(before, receipt(first(), moved, moved)).outcome == "holds"
    assert better(before, receipt(first(), moved, moved, moved)).outcome == "fails"


def test_a_guard_that_is_false_nowhere_any_more_is_better_with_equal_totals() -> None:
    entangled = receipt(again(N, M), again(N, M))
    point = better(entangled, receipt(again(M), again(M)))
    assert point.outcome == "holds"
    assert point.sentence.startswith("n causes no recompile any more; the same calls have others")


def missed(variable: str) -> MissedEntry:
    guard = MissedGuard(variable=variable, rule="CD107", expected=None, actual=None, novel=None)
    return MissedEntry(compile_id="0/0", guards=(guard,))


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (receipt(again(M), again(cause("k"))), "undecided"),
        (receipt(again(M), again(cause("m", function="other"))), "undecided"),
        (receipt(again(M), again(M, entries=(missed("n"),))), "fails"),
        (receipt(again(M), again()), "fails"),
        (receipt(again(M), again(msgspec.structs.replace(M, confidence="text"))), "fails"),
    ],
    ids=["renamed", "elsewhere", "in a farther entry", "a cause not known", "only torch's text"],
)
def test_a_guard_that_is_not_known_to_be_gone(after: Receipt, outcome: str) -> None:
    entangled = receipt(again(N, M), again(N, M))
    assert better(entangled, after).outcome == outcome


def test_a_recompile_that_became_a_first_compile_is_not_decided() -> None:
    """`torch.compile` anew for each value."""
    point = better(TWO, receipt(first(), first(), first()))
    assert point.outcome == "undecided"
    assert "as many compiles (3 → 3)" in point.sentence


ELSEWHERE = Location("model.py", 40, "whole_step")


@pytest.mark.parametrize(
    ("fewer", "missing"),
    [
        (run(steps=3), "steps 4 → 3"),
        (run(invocations=(called(3),)), "compiled calls 4 → 3"),
        (run(invocations=(called(2, ELSEWHERE),)), None),
        (run(invocations=()), None),
    ],
    ids=["steps", "calls", "another boundary", "a callable inside another"],
)
def test_counts_of_fewer_calls_are_not_compared(fewer: Timeline, missing: str | None) -> None:
    point = better(FOUR, TWO, run(), fewer)
    assert point.outcome == ("holds" if missing is None else "undecided")
    assert missing is None or missing in point.sentence


def test_fewer_calls_without_steps_are_not_compared() -> None:
    new = run(steps=0, invocations=(called(2, ELSEWHERE),))
    assert better(FOUR, TWO, run(steps=0), new).outcome == "undecided"


def test_calls_under_an_eager_stance_are_no_improvement() -> None:
    eager = run(stance_calls=(StanceCalls(0, WHERE, "eager_on_recompile", 3, None),))
    point = better(FOUR, TWO, run(), eager)
    assert point.outcome == "fails"
    assert "calls that ran eager 0 → 3, under the stance eager_on_recompile" in point.sentence


def test_a_lower_limit_is_no_improvement() -> None:
    def limited(events: int, limit: int) -> Receipt:
        detail = FrameDetail(
            frame=frame(),
            compiles=events,
            guards=None,
            guard_eval_us=None,
            headroom=Headroom(variants=events, limit=limit),
            ran_eager=True,
        )
        recompiles = (again(N) for _ in range(events))
        return receipt(*recompiles, recompile_limit_hits=1, frames_detail=(detail,))

    point = better(limited(7, 8), limited(1, 2))
    assert point.outcome == "fails"
    assert "the recompile limit 8 → 2 was reached" in point.sentence
    assert better(limited(7, 8), limited(1, 8)).outcome == "holds"


@pytest.mark.parametrize(
    ("counted", "evaluated", "outcome"),
    [
        (5, 0, "undecided"),
        (5, 3, "undecided"),
        (5, 4, "holds"),
        (10, 5, "holds"),
        (10, 3, "undecided"),
    ],
)
def test_guards_that_are_not_evaluated(counted: int, evaluated: int, outcome: str) -> None:
    """Four of five before. torch counts what `guard_filter_fn` leaves out."""

    def guarded(counted: int, evaluated: int) -> Timeline:
        made = GuardsEvaluated(0.0, 0, "0/0", 0, None, (), (), (), (), evaluated)
        of_torch = replace(attempt("0/0"), guards=counted)
        return timeline([of_torch], guard_sets=(made,), invocations=(called(),))

    assert better(FOUR, TWO, guarded(5, 4), guarded(counted, evaluated)).outcome == outcome
    # A frame that was cut by a break and is the whole model now, as in transformer-xl.
    grown = [better(FOUR, TWO, guarded(36, 40), guarded(731, its)).outcome for its in (392, 250)]
    assert grown == ["holds", "undecided"]


def test_a_guard_that_is_false_and_not_noticed() -> None:
    """`set_stance(skip_guard_eval_unsafe=True)`: the value changed, and nothing was compiled."""
    own = receipt(again(event_cause(source="L['n']", variable="n")))
    armed = run(risk_checks=(hazards([false_guard("L['n']")]),))
    point = better(own, receipt(), run(), armed)
    assert point.outcome == "undecided"
    assert "the guard on L['n'] is false at the end" in point.sentence
    other = run(risk_checks=(hazards([false_guard("L['m']")]),))
    assert better(own, receipt(), run(), other).outcome == "holds"


def test_findings_are_listed_by_key() -> None:
    old, new = (
        tuple(finding_record(key=key) for key in keys)
        for keys in (("CD103-rotary", "CD107-n"), ("CD107-n", "CD118-m", None))
    )
    before, after = (
        msgspec.structs.replace(whole, findings=found) for whole, found in ((FOUR, old), (TWO, new))
    )
    assert better(before, after).details == ("CD103-rotary is gone", "CD118-m is new")
    figures = {figure.name: (figure.before, figure.after) for figure in better(FOUR, TWO).figures}
    assert figures == {"recompiles": (4.0, 2.0)}


# --- as much is compiled -------------------------------------------------------------------------


def graph(
    operations: int, function: str = "forward", opaque: tuple[str, ...] = (), calls: int = STEPS
) -> GraphRun:
    return GraphRun(0.0, Location("model.py", 3, function), operations, opaque, calls)


def compiled(
    new: tuple[GraphRun, ...],
    *,
    old: tuple[GraphRun, ...] = (graph(50),),
    same_calls: bool = False,
    traced: bool = False,
    after: Receipt = TWO,
    **more: Any,
) -> JudgedPoint:
    return check_compiled(
        ExecutedState(FOUR, run(graphs_run=old)),
        ExecutedState(after, run(graphs_run=new, **more)),
        same_calls=same_calls,
        traced=traced,
    )


@pytest.mark.parametrize(
    "new",
    [
        (graph(50),),
        (graph(49),),
        (graph(100, "whole_step", calls=2),),
        (graph(30), graph(20, RESUMED)),
    ],
    ids=["as much", "98 %", "another boundary", "in two parts"],
)
def test_as_much_runs_in_graphs(new: tuple[GraphRun, ...]) -> None:
    point = compiled(new)
    assert (point.outcome, point.figures[0].before) == ("holds", 200.0)


def test_a_command_line_that_compiles_nothing_in_either_state() -> None:
    """As a script of `--also` that calls the functions eager."""
    nothing, something = (
        ExecutedState(receipt(graphs=count), run(graphs_run=())) for count in (0, 1)
    )
    states = (nothing, nothing), (nothing, something)
    points = [check_compiled(*both, same_calls=False, traced=False) for both in states]
    assert [point.outcome for point in points] == ["holds", "undecided"]


def test_what_the_change_removed_is_said_where_calls_correspond() -> None:
    point = compiled((graph(45),), same_calls=True)
    assert point.outcome == "holds"
    assert point.sentence == "5 fewer operations a call: the change removed them"
    assert compiled((graph(45),)).outcome == "undecided"
    assert compiled((graph(20),), same_calls=True).outcome == "undecided"


def test_a_loop_that_became_one_operation_is_as_much_compiled() -> None:
    """Every changed line is in a graph: the change itself put nothing outside."""
    assert compiled((graph(2),), same_calls=True, traced=True).outcome == "holds"
    assert compiled((graph(2),), traced=True).outcome == "undecided"
    disabled = (CallsOutside(0, HOOK, "forward", 4, 0.1, 0.1),)
    point = compiled((graph(2),), same_calls=True, traced=True, disabled_calls=disabled)
    assert point.outcome == "undecided"


HOOK = Location("model.py", 30, "hook")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"after": receipt(breaks=(site(),))}, "graph breaks 0 → 1"),
        ({"after": receipt(eager_fallbacks=1)}, "eager fallbacks 0 → 1"),
        ({"disabled_calls": (CallsOutside(0, HOOK, "forward", 4, 0.1, 0.1),)}, "hook is disabled"),
        ({"skipped": (FrameSkipped(0.0, 0, HOOK, "no tensors"),)}, "hook is skipped"),
        ({"stance_calls": (StanceCalls(0, HOOK, "force_eager", 1, None),)}, "runs eager under"),
        ({"new": (graph(45, opaque=("mine::op",)),)}, "mine::op hides what it computes"),
    ],
)
def test_what_runs_outside_of_graphs_was_not_removed(more: dict[str, Any], reason: str) -> None:
    point = compiled(**{"new": (graph(45),), "same_calls": True, **more})
    assert point.outcome == "undecided"
    assert reason in point.sentence


def test_a_function_that_has_no_graph_any_more() -> None:
    two = (graph(50), graph(50, "other"))
    point = compiled((graph(50),), old=two)
    assert point.outcome == "fails"
    assert "other is no longer compiled: operations in graphs 400 → 200" in point.sentence
    # It may be in the one that is new, also in one of the same name.
    again = graph(20)
    again = replace(again, frame=replace(again.frame, line=again.frame.line + 50))
    for new in (graph(20, "both"), again):
        assert compiled((graph(50), new), old=two).outcome == "undecided"
    assert compiled((), after=receipt(graphs=0)).outcome == "fails"


def test_new_operations_that_hide_what_they_compute_are_named() -> None:
    point = compiled((graph(50, opaque=("mine::op",)),))
    assert point.outcome == "undecided"
    assert "mine::op" in point.sentence
    known = (graph(50, opaque=("mine::op",)),)
    assert compiled(known, old=known).outcome == "holds"


def test_graphs_that_were_not_recorded() -> None:
    assert compiled(()).outcome == "undecided"
    assert compiled((graph(50),), old=()).outcome == "undecided"
    assert compiled((graph(50),), old=(graph(50, calls=-1),)).outcome == "undecided"
