"""The search for the compiled frame and the layer of torch behind a difference of numbers; and
CD651: numbers differ beyond what eager's own rounding explains.

Runs in which frames are compiled by another backend (`TORCH_COMPILE_OVERRIDE_BACKENDS`) narrow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from compilediag.diagnosis.findings import Finding
from compilediag.fixes.numbers.first_difference import NumbersComparison, format_difference
from compilediag.receipt.schema.comparisons import NarrowedRecord, NumbersLayer
from compilediag.rules.environment_variables import format_export
from compilediag.rules.make_finding import make_finding
from compilediag.timeline.timeline import Timeline

VARIABLE = "TORCH_COMPILE_OVERRIDE_BACKENDS"

BISECT = "--bisect-numerics"


def find_number_differences(timeline: Timeline, numbers: NumbersComparison) -> Iterable[Finding]:
    """Find one for each callable that gives other numbers; the first one may have been narrowed."""
    narrowed = numbers.section.narrowed
    for difference in numbers.differences:
        record, name = difference.record, difference.record.function.function
        yield make_finding(
            timeline,
            "CD651",
            format_difference(record),
            _format_fix(narrowed),
            location=difference.function,
            variable=name,
            count=record.calls,
            steps=(record.step,),
            evidence={
                "call": record.call,
                "sampled_before": difference.before,
                "path": record.path,
                "dtype": record.dtype,
                "shape": [*difference.shape],
                "largest": record.largest,
                "eager_error": record.eager_error,
                "compiled_error": record.compiled_error,
                "layer": narrowed.layer if narrowed is not None else None,
                "frames": [*narrowed.frames] if narrowed is not None else [],
            },
        )
        narrowed = None


_WHERE = {
    "backend": "the backend's graph passes or code generation",
    "decompositions": "the decompositions of operators that inductor uses",
    "aot_autograd": "AOTAutograd",
    "dynamo": "what Dynamo captures",
}


def _format_fix(narrowed: NarrowedRecord | None) -> str:
    if narrowed is None or (narrowed.layer is None and narrowed.problem is None):
        return f"find the frame and the layer: compilediag measure against-eager {BISECT}"
    if narrowed.override is None:
        if narrowed.layer == "dynamo":
            return (
                "put torch.compiler.disable on it: it is in what Dynamo captures, whatever the "
                "backend, such as a change that no guard sees"
            )
        return f"put torch.compiler.disable on it: the layer was not found ({narrowed.problem})"
    return f"{format_export(VARIABLE, narrowed.override)}: it is in {format_layer(narrowed)}"


def format_layer(narrowed: NarrowedRecord) -> str:
    """Format layer and frames in words."""
    frames = ", ".join(narrowed.frames)
    layer = _WHERE[narrowed.layer] if narrowed.layer is not None else "an unknown layer"
    if not frames:
        return layer
    return f"{layer}, in {'frame' if len(narrowed.frames) == 1 else 'frames'} {frames}"


MAX_RUNS = 14

_STEPS: tuple[tuple[str, NumbersLayer], ...] = (("aot_eager", "backend"), ("eager", "aot_autograd"))
"""Backends that leave out one layer more each, and the layer that is left out."""

WITH_DECOMPOSITIONS = "aot_eager_decomp_partition"

Differs = Callable[[str], "bool | None"]
"""Whether the difference is still there with this value; None where that run shows nothing."""


class _Enough(Exception):
    """Raised where as many runs as may be were made."""


def narrow_difference(own: Sequence[str], rest: Sequence[str], differs: Differs) -> NarrowedRecord:
    """Narrow a difference to frames and a layer, by the ids of the frames of the callable that
    differs and of the others.

    Returns:
        `layer` is None where it was not found; `problem` says why.
    """
    runs = 0

    def check_differs(value: str) -> bool | None:
        nonlocal runs
        if runs == MAX_RUNS:
            raise _Enough
        runs += 1
        return differs(value)

    try:
        return replace(_find_layer(tuple(own), tuple(rest), check_differs), runs=runs)
    except _Enough:
        problem = f"not found in {MAX_RUNS} runs"
        return NarrowedRecord(layer=None, runs=MAX_RUNS, problem=problem)


def _find_layer(own: tuple[str, ...], others: tuple[str, ...], differs: Differs) -> NarrowedRecord:
    for backend, layer in _STEPS:
        value = f">=0:{backend}"
        still = differs(value)
        if still is None:
            return NarrowedRecord(layer=None, problem=f"the run with {value} shows nothing")
        if still:
            continue
        candidates, sure = (*own, *others), False
        if own and others and differs(_format_override(own, backend)) is False:
            candidates, sure = own, True
        narrowed, sure = _narrow_frames(candidates, backend, sure, differs)
        named = layer
        if layer == "backend" and differs(_format_override(narrowed, WITH_DECOMPOSITIONS)):
            named = "decompositions"  # they make the difference, without any generated code
        override = _format_override(narrowed, backend) if sure else value
        problem = None if sure else "several frames together: only all of them were tried"
        frames = narrowed if sure else ()
        return NarrowedRecord(layer=named, frames=frames, override=override, problem=problem)
    return NarrowedRecord(
        layer="dynamo",
        problem="it differs with every frame on the backend eager, too: the graphs themselves do",
    )


def _narrow_frames(
    frames: tuple[str, ...], backend: str, sure: bool, differs: Differs
) -> tuple[tuple[str, ...], bool]:
    """Narrow to the fewest of the frames that were seen to be enough, and whether they were seen to
    be: `sure` is that of all of them."""
    while len(frames) > 1:
        middle = len(frames) // 2
        for part in (frames[:middle], frames[middle:]):
            if differs(_format_override(part, backend)) is False:
                frames, sure = part, True
                break
        else:
            break
    if not sure:
        sure = differs(_format_override(frames, backend)) is False
    return frames, sure


def _format_override(frames: Sequence[str], backend: str) -> str:
    return f"{','.join(frames)}:{backend}"
