"""The variants of a cadence probe: their counts, and a picture of each one's steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compilediag.views.format import seconds
from compilediag.views.sparkline import sparkline
from compilediag.views.style import RenderOptions
from compilediag.views.table import table
from compilediag.views.text import clean, display_width

if TYPE_CHECKING:
    from compilediag.receipt.schema.cadence import CadenceSection, VariantRecord

NAME_CHARS = 24
PICTURE_COLUMNS = 32
MIN_PICTURE = 8


def variant_rows(section: CadenceSection, options: RenderOptions) -> list[str]:
    """One row a variant, the scale of the pictures, and what went wrong with a variant."""
    cells = [value for item in section.variants if item.picture for value in item.picture.cells_s]
    low, high = min(cells, default=0.0), max(cells, default=0.0)
    head = ("variant", "median", "longest", "frames", "recompiles", "breaks", "exit", "steps")
    rows = [_variant_row(item, options) for item in section.variants]
    taken = sum(max(display_width(row[i]) for row in (head[:-1], *rows)) + 2 for i in range(7)) + 4
    width = min(PICTURE_COLUMNS, max(MIN_PICTURE, options.width - taken))
    full: list[tuple[str, ...]] = []
    for item, row in zip(section.variants, rows, strict=True):
        values = item.picture.cells_s if item.picture is not None else None
        bars = "no step"
        if values is not None:
            bars = sparkline(values, low, high, width, ascii_only=options.ascii_only)
        full.append((*row, bars))
    lines = table(head, full, options, right=head[1:6])
    if high > 0:
        scale = f"steps: those after warm-up, from {seconds(low)} to {seconds(high)}, logarithmic"
        lines += options.wrap(scale, "  ", "    ", style="dim")
    for item in section.variants:
        if item.problem is not None:
            sentence = f"{options.text(item.name, NAME_CHARS)}: {options.text(item.problem)}"
            lines += options.wrap(sentence, "  ! ", style="yellow")
    return lines


def _variant_row(item: VariantRecord, options: RenderOptions) -> tuple[str, ...]:
    steps, counts = item.steps, item.counts
    name = options.truncate(options.text(item.name), NAME_CHARS)
    return (
        f"{name} alone" if item.kind == "alone" else name,
        seconds(steps.median) if steps is not None else "-",
        seconds(steps.max) if steps is not None else "-",
        str(counts.frames) if counts is not None else "-",
        str(counts.recompiles) if counts is not None else "-",
        str(counts.graph_breaks) if counts is not None else "-",
        "-" if item.exit_code is None else str(item.exit_code),
    )


def variant_sentence(number: int, total: int | None, kind: str, names: Sequence[str]) -> str:
    """What is printed before a variant starts."""
    description = {
        "configured": "configured, as the code says",
        "control": "control, every group off",
        "collision": "collision, all groups in the same steps",
    }.get(kind, f"{clean(names[0], limit=NAME_CHARS) if names else ''} alone")
    place = f"variant {number}" if total is None else f"variant {number} of {total}"
    return f"compilediag · {place}: {description}"
