"""Whether as much is compiled with a change, and as often called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from compilediag.fixes.answers import functions_by_order
from compilediag.fixes.changes import Declared
from compilediag.fixes.observed import Observed
from compilediag.fixes.padding import batches
from compilediag.fixes.points import Figure, Point
from compilediag.timeline.counts import is_compile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import resumed_function

_GENERATED = "<eval_with_key>"
"""How the files of captured graphs begin."""


def compiled_point(baseline: Observed, runs: Sequence[Observed], declared: Declared) -> Point:
    """Whether as much is compiled, and as often called: nothing recompiles in a program that
    compiles nothing. Where a hook is left to Python, at least half of the operations must be there:
    the change itself takes some, and how many is not known."""
    operations = 0.5 if declared.disables else 1.0
    measures: tuple[tuple[str, float, Callable[[Observed], float]], ...] = (
        ("graph operations", operations, lambda run: _operations(run.timeline)),
        ("compiled calls", 1.0, lambda run: _calls(run.timeline)),
        ("steps", 1.0, lambda run: len(run.timeline.steps)),
    )
    figures = [
        Figure(name, measure(baseline), min(map(measure, runs))) for name, _, measure in measures
    ]
    for figure, (_, share, _) in zip(figures, measures, strict=True):
        if (figure.after or 0) < share * (figure.before or 0):
            fewer = f"{figure.name} {figure.before:g} → {figure.after:g}"
            return Point("compiled", False, f"less is compiled or called: {fewer}", tuple(figures))
    if not figures[0].after:
        return Point("compiled", False, "nothing is compiled", tuple(figures))
    gone = _not_compiled(baseline, runs)
    if gone:
        return Point("compiled", False, f"{gone} is no longer compiled", tuple(figures))
    return Point("compiled", True, "as much is compiled and called", tuple(figures))


def _operations(timeline: Timeline) -> int:
    """In the first graph of each frame; of captured graphs, whose code has another name each time,
    in the first of all. Parts of a function that a graph break divides count on their own: without
    the break its one graph holds them all."""
    chosen: dict[tuple[object, ...], int] = {}
    for item in timeline.compiles:
        if is_compile(item) and item.graph_ops:
            file = _GENERATED if item.frame.file.startswith(_GENERATED) else item.frame.file
            place = (item.process, file, item.frame.line, item.frame.function)
            chosen.setdefault(place, item.graph_ops)
    return sum(chosen.values())


def _calls(timeline: Timeline) -> int:
    """Of compiled functions, but for those under a stance that compiles nothing. A batch that a
    `FixedShape` pads or splits is one; calls of its warm-up are none."""
    eager = sum(item.calls for item in timeline.stance_calls)
    called = sum(item.calls - item.padded for item in timeline.invocations)
    return called + sum(map(batches, timeline.fixed_shapes)) - eager


def _not_compiled(baseline: Observed, runs: Iterable[Observed]) -> str | None:
    """A function that the program calls compiled and that has no graph with the change."""
    for key, name in _with_graphs(baseline.timeline).items():
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
