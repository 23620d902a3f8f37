"""Whether as much is compiled with a change, and as often called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from compilediag.fixes.answers import GENERATED, functions_by_order
from compilediag.fixes.changes import Declared
from compilediag.fixes.observed import Observed
from compilediag.fixes.padding import batches
from compilediag.fixes.points import Figure, Point
from compilediag.timeline.counts import is_compile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import resumed_function

_OPERATIONS = "graph operations"


def compiled_point(baseline: Observed, runs: Sequence[Observed], declared: Declared) -> Point:
    """Whether as much is compiled, and as often called: nothing recompiles in a program that
    compiles nothing. Where a message is left out or a hook left to Python, at least half of the
    operations must be there: the change itself takes some, and how many is not known. Where the
    change makes in `__init__` what a call made, the graphs that made nothing are compared: the
    smallest of each frame. Calls of a function that has no graph without the change are none."""
    called = functions_by_order(item.function for item in baseline.timeline.invocations)
    eager = {*called.values()} - _with_graphs(baseline.timeline).keys()
    operations = 0.5 if declared.leaves_out or declared.disables else 1.0
    measures: tuple[tuple[str, float, Callable[[Observed], float]], ...] = (
        (
            _OPERATIONS,
            operations,
            lambda run: _operations(run.timeline, smallest=bool(declared.grown)),
        ),
        ("compiled calls", 1.0, lambda run: _calls(run.timeline, eager)),
        ("steps", 1.0, lambda run: len(run.timeline.steps)),
    )
    figures = [
        Figure(name, measure(baseline), min(map(measure, runs))) for name, _, measure in measures
    ]
    for figure, (_, share, _) in zip(figures, measures, strict=True):
        moved = declared.moved_out if figure.name == _OPERATIONS else 0
        if (figure.after or 0) < share * (figure.before or 0) - moved:
            fewer = f"{figure.name} {figure.before:g} → {figure.after:g}"
            return Point("compiled", False, f"less is compiled or called: {fewer}", tuple(figures))
    if not figures[0].after:
        return Point("compiled", False, "nothing is compiled", tuple(figures))
    gone = _not_compiled(baseline, runs, declared)
    if gone:
        return Point("compiled", False, f"{gone} is no longer compiled", tuple(figures))
    return Point("compiled", True, "as much is compiled and called", tuple(figures))


def _operations(timeline: Timeline, *, smallest: bool = False) -> int:
    """In the first graph of each frame, or in its smallest one; of captured graphs, whose code has
    another name each time, in the first of all. Parts of a function that a graph break divides
    count on their own: without the break its one graph holds them all."""
    chosen: dict[tuple[object, ...], int] = {}
    for item in timeline.compiles:
        if is_compile(item) and item.graph_ops:
            file = GENERATED if item.frame.file.startswith(GENERATED) else item.frame.file
            place = (item.process, file, item.frame.line, item.frame.function)
            known = chosen.setdefault(place, item.graph_ops)
            if smallest:
                chosen[place] = min(known, item.graph_ops)
    return sum(chosen.values())


def _calls(timeline: Timeline, apart: Collection[tuple[str, str, int]]) -> int:
    """Of compiled functions, but for some, and for those under a stance that compiles nothing. A
    batch that a `FixedShape` pads or splits is one; calls of its warm-up are none."""
    eager = sum(item.calls for item in timeline.stance_calls)
    keys = functions_by_order(item.function for item in timeline.invocations)
    counted = (item for item in timeline.invocations if keys[item.function] not in apart)
    called = sum(item.calls - item.padded for item in counted)
    return called + sum(map(batches, timeline.fixed_shapes)) - eager


def _not_compiled(baseline: Observed, runs: Iterable[Observed], declared: Declared) -> str | None:
    """A function that the program calls compiled and that has no graph with the change."""
    for key, name in _with_graphs(baseline.timeline).items():
        if declared.recaptured and key[0].startswith(GENERATED):
            continue
        if any(key not in _with_graphs(run.timeline) for run in runs):
            return name
    return None


def _with_graphs(timeline: Timeline) -> dict[tuple[str, str, int], str]:
    """The functions that the program calls compiled and that have a graph."""
    compiled = {
        (item.frame.file, item.frame.line)
        for item in timeline.compiles
        if is_compile(item) and item.graph_ops
    }
    # What follows a split is a part of the function too.
    parts = {
        (item.frame.file, resumed_function(item.frame.function))
        for item in timeline.compiles
        if is_compile(item) and item.graph_ops
    }
    called = [item.function for item in timeline.invocations]
    return {
        key: place.function
        for place, key in functions_by_order(called).items()
        if (place.file, place.line) in compiled
        or (place.file, place.function.rpartition(".")[2]) in parts
    }
