"""Whether compiled calls give the numbers of eager: one sentence, and where they first do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import count, three_figures
from compilediag.views.style import RenderOptions

if TYPE_CHECKING:
    from compilediag.receipt.schema.numbers import (
        NarrowedRecord,
        NumberDifference,
        NumbersSection,
    )

_LAYERS = {
    "backend": "the backend (graph passes, code generation)",
    "decompositions": "decompositions, before code is generated",
    "aot_autograd": "AOTAutograd",
    "dynamo": "what Dynamo captures",
}


def numbers_sentence(section: NumbersSection) -> str:
    """What was compared, and the first difference. What it quotes of the target is not made
    safe."""
    if section.same is None:
        return f"not compared: {section.problem}"
    compared = f"{count(section.values, 'value')} of {count(section.calls, 'compiled call')}"
    if section.same:
        left = section.unstable + section.undetermined
        but = f"; {count(left, 'other')} not judged" if left else ""
        return f"those of eager, within rounding: {compared}{but}"
    first = section.differences[0]
    what = f", {first.path.lstrip('.')}" if first.path else ""
    return (
        f"differ from eager, first in call {first.call} (step {first.step}) of "
        f"{first.function.function}{what}: {first.text} ({first.dtype})"
    )


def numbers_lines(section: NumbersSection, options: RenderOptions, *, complete: bool) -> list[str]:
    """The sentence, the errors of the first difference, frame and layer, what limits it."""
    lines = options.wrap(options.text(numbers_sentence(section)), "  numbers: ", "    ")
    for found in section.differences[: None if complete else 1]:
        if found.eager_error is not None and found.compiled_error is not None:
            lines += options.wrap(options.text(_errors(found)), "    ")
    if section.narrowed is not None:
        lines += options.wrap(options.text(narrowed_sentence(section.narrowed)), "    ")
    for note in section.notes:
        lines += options.wrap(options.text(note), "    note: ", style="dim")
    return lines


def _errors(found: NumberDifference) -> str:
    assert found.eager_error is not None
    assert found.compiled_error is not None
    return (
        f"{found.function.function}: error against float64 {three_figures(found.compiled_error)} "
        f"compiled, {three_figures(found.eager_error)} eager"
    )


def narrowed_sentence(narrowed: NarrowedRecord) -> str:
    """Frame and layer, and with what the difference vanishes."""
    if narrowed.layer is None:
        return f"frame and layer not found: {narrowed.problem}"
    frames = f", frame {' and '.join(narrowed.frames)}" if narrowed.frames else ""
    found = f"it is in {_LAYERS[narrowed.layer]}{frames}"
    if narrowed.override is not None:
        found = f"{found}: gone with TORCH_COMPILE_OVERRIDE_BACKENDS={narrowed.override}"
    return f"{found} ({narrowed.problem})" if narrowed.problem else found
