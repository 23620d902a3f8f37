"""A plain table: columns as wide as their widest cell, numbers to the right."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import compress

from compilediag.views.format import more
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width, pad

GAP = "  "
WIDE = 80


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    options: RenderOptions,
    *,
    right: Sequence[str] = (),
    shrink: str = "",
    wide_only: Container[str] = (),
    limit: int | None = None,
) -> list[str]:
    """Lines of a table of cleaned cells.

    Args:
        head: names of the columns.
        rows: one cell a column.
        options: how to draw.
        right: names of the columns that are set to the right.
        shrink: the column that is cut when the table is wider than the terminal.
        wide_only: names of the columns that a terminal narrower than `WIDE` has no room for.
        limit: rows to draw; a last line counts the others.
    """
    hidden = 0 if limit is None else len(rows) - limit
    if options.width < WIDE and wide_only:
        kept = [name not in wide_only for name in head]
        head, *rows = (list(compress(row, kept)) for row in (head, *rows))
    rows = rows[:limit]
    widths = [max(display_width(row[index]) for row in (head, *rows)) for index in range(len(head))]
    over = sum(widths) + len(GAP) * len(widths) - options.width
    if over > 0 and shrink:
        index = list(head).index(shrink)
        widths[index] = max(widths[index] - over, len(shrink), 8)
    lines = [options.styled(_line(head, head, widths, right, options), "dim")]
    lines += [_line(head, row, widths, right, options) for row in rows]
    return lines + more(hidden, ": compilediag show --json")


def _line(
    head: Sequence[str],
    row: Sequence[str],
    widths: list[int],
    right: Sequence[str],
    options: RenderOptions,
) -> str:
    cells: list[str] = []
    for name, cell, width in zip(head, row, widths, strict=True):
        shown = options.truncate(cell, width, keep_end=True)
        filled = pad(shown, width)
        cells.append(filled[len(shown) :] + shown if name in right else filled)
    return (GAP + GAP.join(cells)).rstrip()
