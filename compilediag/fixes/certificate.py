"""Points of a certificate that are about one finding and one change: the finding is gone, and the
padding that the change adds harms nothing. All else is `certify`'s, which knows neither."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compilediag.certify.cost import make_figure
from compilediag.certify.points import JudgedPoint
from compilediag.fixes.proof_types import FindingIdentity, count_finding
from compilediag.receipt.schema.receipt import Receipt
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.padding_report import HARMFUL, HARMLESS, judge_padding
from compilediag_harness.wire import Location


def check_finding(
    identity: FindingIdentity, before: Receipt, after: Receipt, left: int = 0
) -> JudgedPoint:
    """Check that a finding is gone, but for `left` recompiles of it, whatever else recompiles."""
    count, now = count_finding(identity, before), count_finding(identity, after)
    figures = (make_figure(identity.unit, count, now),)
    if now > min(left, count - 1):
        text = f"its {identity.unit} {count} → {now}"
        text = f"{now} of {count} {identity.unit} remain" if now <= count else text
        return JudgedPoint("finding", "fails", text, figures)
    return JudgedPoint("finding", "holds", f"its {identity.unit} {count} → {now}", figures)


def check_padding(
    functions: Sequence[Location], before: Timeline, after: Timeline
) -> Iterator[JudgedPoint]:
    """Check padding, a point for each function whose arguments a change pads. It fails where a
    check found harm or was undetermined, and where nothing was padded or checked."""
    for function in functions:
        shapes = _find_shapes(function, after)
        waste, new_waste = map(_compute_waste, (_find_shapes(function, before), shapes))
        figures = (make_figure("padding", waste, new_waste, "%"),)
        problem = next((text for shape in shapes for text in _find_problems(shape)), None)
        if not shapes:
            problem = "nothing was padded"
        if problem is not None:
            yield JudgedPoint("padding", "fails", problem, figures)
            continue
        contents = min(len(check.probes) for shape in shapes for check in shape.checks)
        sentence = f"padding is harmless: {contents} contents of it gave the same"
        yield JudgedPoint("padding", "holds", sentence, figures)


def _find_shapes(function: Location, timeline: Timeline) -> list[FixedShapeRun]:
    """Find the `FixedShape`s of a function by file and name: it may stand at another line."""
    name, file = function.function.rpartition(".")[2], f"/{function.file.lstrip('/')}"
    return [
        shape
        for shape in timeline.fixed_shapes
        if shape.function.function.rpartition(".")[2] == name
        and f"/{shape.function.file}".endswith(file)
        and shape.elements
    ]


def _compute_waste(shapes: Sequence[FixedShapeRun]) -> float:
    """Compute padding in percent of the real elements."""
    real = sum(shape.elements for shape in shapes)
    run = sum(shape.run_elements for shape in shapes)
    return round(100 * (run / real - 1), 1) if real else 0.0


def _find_problems(shape: FixedShapeRun) -> Iterator[str]:
    name = shape.function.function
    if not shape.checks:
        yield f"whether padding harms {name} was not checked"
    for check in shape.checks:
        verdict = judge_padding(check.kinds, check.unseen, check.probes)
        if verdict == "safe":
            continue
        unsafe = verdict == "unsafe"
        known = f"whether padding harms {name} is unknown"
        if unsafe:
            known = f"padding is unsafe for {name}"
        why = "no other padding could be tried"
        if check.unseen:
            why = f"{check.unseen[0]} cannot be looked into"
        for path, kind, note in zip(check.outputs, check.kinds, check.notes, strict=True):
            if (kind in HARMFUL) if unsafe else (kind not in HARMLESS):
                why = f"{path or 'the result'} ({kind}): {note}"
                break
        yield f"{known}: {why}"
