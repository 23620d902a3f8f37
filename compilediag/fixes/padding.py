"""Whether the padding of a change is harmless, and how much of it there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compilediag.fixes.points import Figure, Point
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.padding_report import HARMFUL, HARMLESS, judged
from compilediag_harness.wire import Location, PaddingChecked


def padding_points(
    functions: Sequence[Location], baseline: Timeline, runs: Sequence[Timeline]
) -> Iterator[Point]:
    """The point "padding" of a change that pads the arguments of functions, for each of them. It
    fails where a check in any run found harm, where one could not tell, and where nothing was
    padded or checked."""
    for function in functions:
        before = _shapes_of(function, baseline)
        yield _point(before, [_shapes_of(function, run) for run in runs])


def _shapes_of(function: Location, timeline: Timeline) -> list[FixedShapeRun]:
    """By file and name: it may stand at another line."""
    name, file = function.function.rpartition(".")[2], f"/{function.file.lstrip('/')}"
    return [
        shape
        for shape in timeline.fixed_shapes
        if shape.function.function.rpartition(".")[2] == name
        and f"/{shape.function.file}".endswith(file)
        and shape.elements
    ]


def _point(before: Sequence[FixedShapeRun], runs: Sequence[Sequence[FixedShapeRun]]) -> Point:
    waste = [_waste(shapes) for shapes in runs if shapes]
    figures = (Figure("padding", _waste(before), max(waste, default=None), "%"),)
    if not all(runs):
        return Point("padding", False, "nothing was padded", figures)
    shapes = [shape for of_run in runs for shape in of_run]
    problem = next((found for shape in shapes for found in _problems(shape)), None)
    if problem is not None:
        return Point("padding", False, problem, figures)
    contents = min(len(check.probes) for shape in shapes for check in shape.checks)
    sentence = f"padding is harmless: {contents} contents of it gave the same"
    return Point("padding", True, sentence, figures)


def batches(shape: FixedShapeRun) -> int:
    """Batches that a `FixedShape` was called with."""
    return sum(shape.asked.values()) + shape.other_batches


def _waste(shapes: Sequence[FixedShapeRun]) -> float:
    """Padding in percent of the real elements."""
    real = sum(shape.elements for shape in shapes)
    run = sum(shape.run_elements for shape in shapes)
    return round(100 * (run / real - 1), 1) if real else 0.0


def _problems(shape: FixedShapeRun) -> Iterator[str]:
    name = shape.function.function
    if not shape.checks:
        yield f"whether padding harms {name} was not checked"
    for check in shape.checks:
        verdict = judged(check.kinds, check.unseen, check.probes)
        if verdict == "unsafe":
            yield f"padding is unsafe for {name}: {_why(check, harmful=True)}"
        elif verdict != "safe":
            yield f"whether padding harms {name} is unknown: {_why(check, harmful=False)}"


def _why(check: PaddingChecked, *, harmful: bool) -> str:
    """The first result for which it is so."""
    for path, kind, note in zip(check.outputs, check.kinds, check.notes, strict=True):
        if (kind in HARMFUL) if harmful else (kind not in HARMLESS):
            return f"{path or 'the result'} ({kind}): {note}"
    if check.unseen:
        return f"{check.unseen[0]} cannot be looked into"
    return "no other padding could be tried"
