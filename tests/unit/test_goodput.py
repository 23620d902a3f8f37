"""Wall time taken apart: every nanosecond once, and each in the right place."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timelines import attempt

from compilediag.diagnosis.figures.goodput import MAIN_THREAD, Account, compute_account
from compilediag.timeline.timeline import Compile, Step, Timeline
from compilediag_harness.user_api import spans
from compilediag_harness.wire import SpanEnded


def compiled(t: float, seconds: float, kind: str = "first", compile_id: str = "0/0") -> Compile:
    return replace(attempt(compile_id, kind=kind, seconds=seconds), t=t)


def step(
    number: int, end: float, wall_s: float, data_wait_s: float = 0.0, process: int = 0
) -> Step:
    return Step(process, number, end, wall_s, data_wait_s, 0.0, 0.0, 0.0)


def span(name: str, start: float, wall_s: float, depth: int = 0, thread: int = 0) -> SpanEnded:
    return SpanEnded(start + wall_s, 0, name, start, wall_s, depth, thread)


def seconds(found: Account | None) -> dict[str, float]:
    """The categories that hold time, in seconds, goodput among them."""
    parts = {name: taken for name, taken in found.badput_ns.items() if taken}
    if found.goodput_ns:
        parts["goodput"] = found.goodput_ns
    return {name: taken / 1e9 for name, taken in parts.items()}


def total(found: Account) -> int:
    return (found.goodput_ns or 0) + sum(taken or 0 for taken in found.badput_ns.values())


AGAIN = compiled(4.0, 1.0, "recompile", "0/1")
ONE = step(0, 2.0, 1.0)
EVAL = span("eval", 0.0, 1.0)
RUNS: dict[str, tuple[dict[str, Any], float, dict[str, float]]] = {
    # 10 s of wall: 2 s beyond the last event are the interpreter's start and end.
    "a whole run": (
        {
            "compiles": (compiled(3.0, 1.5), compiled(4.5, 0.5, "recompile", "0/1")),
            "steps": (step(0, 3.5, 2.5), step(1, 5.0, 1.5), step(2, 8.0, 1.0, data_wait_s=0.25)),
            "spans": (span("eval", 5.5, 1.0),),
        },
        10.0,
        {
            "startup": 1.0 + 2.0,
            "compile_first": 1.5,
            "recompile": 0.5,
            "eval": 1.0,
            "data_wait": 0.25,
            "goodput": 1.0 + 1.0 + 0.75,
            "idle": 1.0,
        },
    ),
    "inner time is not the outer's, compiling inside a span is compiling": (
        {
            "compiles": (compiled(4.0, 1.0),),
            "steps": (step(0, 1.0, 1.0),),
            "spans": (span("checkpoint", 2.0, 1.0, depth=1), span("eval", 1.0, 4.0)),
        },
        5.0,
        {"goodput": 1.0, "checkpoint": 1.0, "compile_first": 1.0, "eval": 2.0},
    ),
    "a checkpoint in the background takes no time from the steps": (
        {"steps": (step(0, 2.0, 2.0),), "spans": (span("checkpoint", 0.0, 2.0, thread=7),)},
        *(2.0, {"goodput": 2.0}),
    ),
    "a span around the work itself": (
        {"steps": (ONE,), "spans": (span("train", 1.0, 1.0),)},
        *(3.0, {"startup": 2.0, "goodput": 1.0}),
    ),
    "a span for data is a part of the wait, which holds the loader's as well": (
        {
            "steps": (step(0, 4.0, 4.0, data_wait_s=1.5),),
            "spans": (span("dataloader", 1.0, 1.0), span("metrics", 3.0, 0.5)),
        },
        *(4.0, {"data_wait": 1.5, "metrics": 0.5, "goodput": 2.0}),
    ),
    "a lazy backward has the id of its forward; the attempt at the limit costs too": (
        {
            "compiles": (
                compiled(1.0, 0.5, "recompile", "0/1"),
                compiled(2.0, 0.25, "backward", "0/1"),
                compiled(3.0, 0.125, "limit", "0/8"),
                compiled(4.0, 0.0625, "backward", "1/0"),
            )
        },
        *(4.0, {"startup": 0.5, "recompile": 0.875, "compile_first": 0.0625, "idle": 2.5625}),
    ),
    "our analysis inside a recompile is neither its cost nor productive": (
        {
            "compiles": (
                replace(AGAIN, recompile=replace(AGAIN.recompile, t=3.0, analysis_s=0.5)),
            ),
            "steps": (ONE, step(1, 4.5, 2.5)),
        },
        *(4.5, {"startup": 1.0, "measuring": 0.5, "recompile": 1.0, "goodput": 2.0}),
    ),
    "ranks work side by side": (
        {"steps": (ONE, step(0, 2.0, 2.0, process=1))},
        *(2.0, {"startup": 1.0, "goodput": 1.0}),
    ),
    "spans of another process are not charged": (
        {"steps": (ONE,), "spans": (EVAL, replace(EVAL, process=1))},
        *(2.0, {"eval": 1.0, "goodput": 1.0}),
    ),
}


@pytest.mark.parametrize(("run", "wall_s", "expected"), RUNS.values(), ids=RUNS)
def test_a_run(run: dict[str, Any], wall_s: float, expected: dict[str, float]) -> None:
    """Every second in its category, and only there."""
    assert seconds(compute_account(Timeline(**run), wall_s)) == expected


def test_after_a_kill_nobody_knows() -> None:
    """Time beyond the last event of a killed run is idle, not startup."""
    timeline = Timeline(steps=(step(0, 1.0, 1.0),))
    assert seconds(compute_account(timeline, 5.0, orderly=False)) == {"goodput": 1.0, "idle": 4.0}


def test_the_main_thread_has_the_harness_s_number() -> None:
    """Both halves mean the same by it."""
    assert MAIN_THREAD == spans.MAIN_THREAD


def test_no_step_is_not_zero_goodput() -> None:
    """Without a step goodput is unknown; the time that is left is idle."""
    found = compute_account(Timeline(compiles=(compiled(2.0, 1.0),)), 4.0)
    assert (found.goodput_ns, found.fraction) == (None, None)
    assert seconds(found) == {"startup": 1.0 + 2.0, "compile_first": 1.0}


def test_nothing_known() -> None:
    """Without a wall time and without an event there is no account."""
    assert compute_account(Timeline(), None) is None


TIMES = st.floats(min_value=0.0, max_value=50.0)
KINDS = st.sampled_from(["first", "recompile", "limit", "failed", "backward"])
NAMES = st.sampled_from(["eval", "checkpoint", "metrics", "data", "own name", "train", "idle"])


@settings(deadline=None, max_examples=40)
@given(
    compiles=st.lists(st.builds(compiled, TIMES, TIMES, KINDS), max_size=8),
    steps=st.lists(st.builds(step, st.just(0), TIMES, TIMES, TIMES), max_size=8),
    spans=st.lists(
        st.builds(span, NAMES, TIMES, TIMES, st.integers(0, 3), st.integers(0, 1)), max_size=8
    ),
    wall_s=st.none() | st.floats(0.0, 100.0),
    orderly=st.booleans(),
)
def test_goodput_plus_badput_is_wall(compiles, steps, spans, wall_s, orderly) -> None:
    """Exactly, and nothing is negative, however events overlap, nest or contradict."""
    timeline = Timeline(
        compiles=tuple(compiles),
        steps=tuple(sorted(steps, key=lambda item: item.end)),
        spans=tuple(spans),
    )
    found = compute_account(timeline, wall_s, orderly=orderly)
    if found is None:
        return
    assert total(found) == found.wall_ns
    assert min(taken or 0 for taken in found.badput_ns.values()) >= 0
    assert (found.goodput_ns or 0) >= 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_left_out(value: float) -> None:
    """An unusable time does not spoil the rest."""
    found = compute_account(Timeline(steps=(step(0, 2.0, 1.0), step(1, value, value))), 2.0)
    assert seconds(found) == {"startup": 1.0, "goodput": 1.0}
