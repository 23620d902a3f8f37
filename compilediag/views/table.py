"""A plain table: columns as wide as their widest cell, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.views.style import RenderOptions
from compilediag.views.text import columns, pad

GAP = "  "


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    look: RenderOptions,
    *,
    right: Sequence[str] = (),
    shrink: str = "",
) -> list[str]:
    """Lines of a table of cleaned cells.

    Args:
        head: names of the columns.
        rows: one cell a column.
        look: how to draw.
        right: names of the columns that are set to the right.
        shrink: the column that is cut when the table is wider than the terminal.
    """
    widths = [max(columns(row[index]) for row in (head, *rows)) for index in range(len(head))]
    over = sum(widths) + len(GAP) * len(widths) - look.width
    if over > 0 and shrink:
        place = list(head).index(shrink)
        widths[place] = max(widths[place] - over, len(shrink), 8)
    lines = [look.styled(_line(head, head, widths, right, look), "dim")]
    return [*lines, *(_line(head, row, widths, right, look) for row in rows)]


def _line(
    head: Sequence[str],
    row: Sequence[str],
    widths: list[int],
    right: Sequence[str],
    look: RenderOptions,
) -> str:
    cells: list[str] = []
    for name, cell, width in zip(head, row, widths, strict=True):
        shown = look.fit(cell, width, keep_end=True)
        filled = pad(shown, width)
        cells.append(filled[len(shown) :] + shown if name in right else filled)
    return (GAP + GAP.join(cells)).rstrip()
