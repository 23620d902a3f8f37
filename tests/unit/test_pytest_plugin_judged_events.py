"""The judged part of a test: events by hand, none of it needs torch."""

from built_receipt import compiled

from compilediag.pytest_plugin.judge import list_unfinished, select_events
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import (
    Compiled,
    CompileStarted,
    EvidenceLost,
    Location,
    ProcessEnded,
    Recompiled,
    StepsEnded,
)

FRAME = Location("model.py", 3, "forward")


def row(t: float, compile_id: str) -> Compiled:
    reason = None if compile_id.endswith("/0") else "0/0: x"
    return compiled(compile_id, t, 0, 0.1, frame=FRAME, recompile_reason=reason)


def question(t: float, compile_id: str) -> Recompiled:
    return Recompiled(t, 0, compile_id, 0, FRAME, ("0/0: x",), (), 0.0)


def test_a_compile_belongs_to_the_part_it_ended_in() -> None:
    """With the question torch asked before; what ended before or after is left out."""
    events = (row(1, "0/0"), question(1.9, "0/1"), row(2.5, "0/1"), row(4, "1/0"))
    inside = fold([select_events(events, 2, 3)])
    assert [item.compile_id for item in inside.compiles] == ["0/1"]
    assert [item.problem for item in inside.recompiles] == [None]
    assert select_events(events, 2, 3) == events[1:3]
    assert [item.compile_id for item in fold([select_events(events, 3, 9)]).compiles] == ["1/0"]


def test_what_holds_for_the_whole_stays() -> None:
    """Steps stay, what tells of the whole process goes, lost evidence belongs to its moment."""
    steps = StepsEnded(1.5, 0, "call", (1.2,), (1.0,))
    lost = EvidenceLost(2.5, 0, "recompiles", "silenced")
    ended = ProcessEnded(9.0, {}, 0.0, 0, None)
    assert select_events((steps, lost, ended), 2, 3) == (steps, lost)
    assert select_events((steps, lost, ended), 3, 4) == (steps,)


def test_compiles_that_have_no_row() -> None:
    """A recording, or a compile that goes on: known by its beginning alone."""
    begun = [CompileStarted(1, 0, "DYNAMO", "0/0", 0), CompileStarted(2, 0, "DYNAMO", "0/1", 0)]
    recording = CompileStarted(3, 0, "CUDAGRAPH_RECORDING", "9/9", 0)
    assert list_unfinished((*begun, recording, row(4, "0/0"))) == (begun[1], recording)
