"""The receipt with what the comparison of numbers found, and CD651: numbers differ beyond what
eager's own rounding explains."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from compilediag.diagnosis.findings import Finding
from compilediag.fixes.numbers.first_difference import Difference, Numbers, difference_sentence
from compilediag.receipt.assemble import amended
from compilediag.receipt.schema.comparisons import NarrowedRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.make_finding import make_finding
from compilediag.rules.variables import export_line
from compilediag.timeline.timeline import Timeline

VARIABLE = "TORCH_COMPILE_OVERRIDE_BACKENDS"

BISECT = "--bisect-numerics"


def with_numbers(
    receipt: Receipt, timeline: Timeline, numbers: Numbers, secret_values: Sequence[str] = ()
) -> Receipt:
    """The receipt of the first compiled run, which has its section `against_eager`, with the
    numbers in that and the findings of CD651 after its own; redacted and bounded like the rest.

    Args:
        receipt: of the first compiled run.
        timeline: what it was made from.
        numbers: what the comparison found.
        secret_values: what must not stand in a receipt.
    """
    if receipt.against_eager is None:
        return receipt
    return amended(
        receipt,
        timeline,
        other_numbers(timeline, numbers),
        secret_values,
        against_eager=msgspec.structs.replace(receipt.against_eager, numbers=numbers.section),
    )


def other_numbers(timeline: Timeline, numbers: Numbers) -> list[Finding]:
    """One for each callable that gives other numbers than eager on the same input."""
    return [
        _finding(timeline, each, numbers.section.narrowed if place == 0 else None)
        for place, each in enumerate(numbers.differences)
    ]


def _finding(
    timeline: Timeline, difference: Difference, narrowed: NarrowedRecord | None
) -> Finding:
    found = difference.record
    name = found.function.function
    return make_finding(
        timeline,
        "CD651",
        difference_sentence(found),
        _fix(narrowed),
        location=difference.function,
        variable=name,
        count=found.calls,
        steps=(found.step,),
        evidence={
            "call": found.call,
            "sampled_before": difference.before,
            "path": found.path,
            "dtype": found.dtype,
            "shape": [*difference.shape],
            "largest": found.largest,
            "eager_error": found.eager_error,
            "compiled_error": found.compiled_error,
            "layer": narrowed.layer if narrowed is not None else None,
            "frames": [*narrowed.frames] if narrowed is not None else [],
        },
    )


_WHERE = {
    "backend": "the backend's graph passes or code generation",
    "decompositions": "the decompositions of operators that inductor uses",
    "aot_autograd": "AOTAutograd",
    "dynamo": "what Dynamo captures",
}


def _fix(narrowed: NarrowedRecord | None) -> str:
    if narrowed is None or (narrowed.layer is None and narrowed.problem is None):
        return f"find the frame and the layer: compilediag run --against-eager {BISECT}"
    if narrowed.override is None:
        if narrowed.layer == "dynamo":
            return (
                "put torch.compiler.disable on it: it is in what Dynamo captures, whatever the "
                "backend, such as a change that no guard sees"
            )
        return f"put torch.compiler.disable on it: the layer was not found ({narrowed.problem})"
    return f"{export_line(VARIABLE, narrowed.override)}: it is in {where(narrowed)}"


def where(narrowed: NarrowedRecord) -> str:
    """Layer and frames in words."""
    frames = ", ".join(narrowed.frames)
    layer = _WHERE[narrowed.layer] if narrowed.layer is not None else "an unknown layer"
    if not frames:
        return layer
    return f"{layer}, in {'frame' if len(narrowed.frames) == 1 else 'frames'} {frames}"
