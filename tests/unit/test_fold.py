"""Events of a run folded into one Timeline; events built by hand, no torch."""

from dataclasses import replace
from typing import Any

from built_receipt import compiled

from compilediag.timeline.timeline import fold
from compilediag_harness.wire import (
    Compiled,
    FrameSkipped,
    GraphBroke,
    HazardsChecked,
    Location,
    Recompiled,
)

FRAME = Location("model.py", 10, "forward")


def row(compile_id: str, t: float, **changes: Any) -> Compiled:
    """A metrics row of one guarded forward compile."""
    return replace(compiled(compile_id, t, 0, 1.0, frame=FRAME, graph_ops=3), **changes)


def question(compile_id: str, t: float) -> Recompiled:
    """torch asked why before compile `compile_id`."""
    return Recompiled(t, 1, compile_id, 0, FRAME, ("0/0: n == 2",), (), 0.0)


def test_a_question_whose_compile_never_ended_is_kept_and_not_counted() -> None:
    """The process was killed in the middle of a recompile."""
    timeline = fold([[row("0/0", 1.0), question("0/1", 2.0)]])
    assert timeline.counted_recompiles == ()
    assert timeline.compiles[-1].kind == "failed"


def test_epochs_and_processes_keep_equal_ids_apart() -> None:
    """`torch._dynamo.reset()` and a second rank both begin at 0/0 again."""
    one = [row("0/0", 1.0), row("0/0", 2.0, epoch=1)]
    timeline = fold([one, [row("0/0", 1.0)]])
    keys = {(frame.key.process, frame.key.epoch) for frame in timeline.frames}
    assert keys == {(0, 0), (0, 1), (1, 0)}


def test_a_loop_that_broke_ran_eager_although_2_7_calls_it_guarded() -> None:
    """No graph and a break in the same attempt; a frame without operators alone is no fallback."""
    stack = 'User code traceback:\n  File "model.py", line 12, in forward\n'
    text = f"Graph break in user code at model.py:12\n{stack}"
    loop = row("0/0", 2.0, graph_ops=None)
    empty = row("1/0", 3.0, graph_ops=None, frame=Location("model.py", 40, "helper"))
    timeline = fold([[GraphBroke(1.0, 0, "0/0", 0, text), loop, empty]])
    assert {f.where.function: f.ran_eager for f in timeline.frames} == {
        "forward": True,
        "helper": False,
    }


def test_an_interrupted_compile_is_no_fallback() -> None:
    """Nothing ran in its place, unlike after a compile that torch gave up."""
    failed = row("0/0", 1.0, guarded=False)
    interrupted = row("1/0", 2.0, guarded=False, interrupted=True)
    timeline = fold([[failed, interrupted]])
    assert [frame.ran_eager for frame in timeline.frames] == [True, False]


def test_a_recompile_that_dynamo_gave_up_leaves_the_frame_eager() -> None:
    """Graphs that fit other calls do not hide it. One that raised ran nothing in its place."""
    again = [question("0/1", 2.0), row("0/1", 3.0, guarded=False, fail_type="Unsupported")]
    for skips, eager in (([FrameSkipped(3.0, 1, FRAME, "a break in a loop")], True), ([], False)):
        (frame,) = fold([[row("0/0", 1.0), *again, *skips]]).frames
        assert (frame.ran_eager, frame.compiles) == (eager, 1)


def test_repeats_of_a_break_are_one_site() -> None:
    """Each recompile reports the site again."""
    first = "Graph break in user code at a.py:6\n"
    again = (
        "Graph break (user stack suppressed due to duplicate graph break) in user code at a.py:6"
    )
    events = [GraphBroke(1.0, 0, "0/0", 0, first), GraphBroke(2.0, 3, "0/1", 0, again, True)]
    (site,) = fold([events]).breaks
    assert (site.count, site.compile_ids, site.first_step) == (2, ("0/0", "0/1"), 0)


def test_the_last_look_at_a_frame_counts() -> None:
    """A guard that was armed and is not any more is no hazard."""
    look = HazardsChecked(1.0, 0, FRAME, (), 10, 0, 0.001, "over 50 ms")
    later = HazardsChecked(2.0, 1, FRAME, (), 20, 0, 0.001)
    (hazards,) = fold([[look, later]]).risk_checks
    assert (hazards.checked, hazards.skipped) == (20, None)
