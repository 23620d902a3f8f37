"""What the sections of every page are made of: tables, bars, small line charts, sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_ROWS = 200
HEATS = 8
"""Shades of a heat map, 0 being none."""

_WIDTH, _HEIGHT = 240, 40


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as texts."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()
    """Names of the columns with numbers."""
    bars: tuple[float, ...] = ()
    """Of each row, 0 to 100: drawn as a bar in a column of its own."""
    heats: tuple[tuple[int, ...], ...] = ()
    """Of each cell its shade, 0 to `HEATS`."""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """A small line chart."""

    title: str
    caption: str
    points: str
    """Of an SVG polyline in a box of `width` by `height`."""
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, 0 to 100."""

    name: str
    text: str
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page under a heading."""

    id: str
    short: str
    """Its name among the links at the top."""
    title: str
    sentences: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    """Drawn as one bar."""
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    text: str = ""
    """The same as a screen of the terminal, for what no table has."""


def table(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    bars: Sequence[float] = (),
) -> Table:
    """A table of the first `MAX_ROWS` rows.

    Args:
        title: its caption.
        head: names of the columns.
        rows: one cell a column.
        right: names of the columns with numbers.
        bars: a number of each row, of which a bar is drawn.
    """
    most = max(bars, default=0.0)
    return Table(
        title,
        tuple(head),
        tuple(tuple(row) for row in rows[:MAX_ROWS]),
        tuple(right),
        tuple(round(100 * max(0.0, each) / most, 1) for each in bars[:MAX_ROWS]) if most else (),
        left_out=max(0, len(rows) - MAX_ROWS),
    )


def heated(made: Table, columns: Sequence[Sequence[float | None]]) -> Table:
    """The table with cells shaded by how far they are above the least of their column.

    Args:
        made: the table.
        columns: the numbers in its columns, empty for a column without shades; None: not known.
    """
    shades = [_shades(values) if values else [0] * len(made.rows) for values in columns]
    return replace(made, heats=tuple(zip(*shades, strict=True)) if shades else ())


def _shades(values: Sequence[float | None]) -> list[int]:
    known = [each for each in values if each is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high <= low:
        return [0] * len(values)
    return [0 if each is None else round(HEATS * (each - low) / (high - low)) for each in values]


def picture(title: str, caption: str, values: Sequence[float], low: float, high: float) -> Picture:
    """A line through the values on a logarithmic scale from `low` to `high`, so that charts with
    the same bounds can be compared by eye."""
    step = _WIDTH / max(1, len(values) - 1)
    points = " ".join(
        f"{index * step:.1f},{(1 - _share(value, low, high)) * (_HEIGHT - 2) + 1:.1f}"
        for index, value in enumerate(values)
    )
    return Picture(title, caption, points)


def _share(value: float, low: float, high: float) -> float:
    if not 0 < low < high or value <= low:
        return 0.0
    return min(1.0, math.log(value / low) / math.log(high / low))


def shares(parts: Sequence[tuple[str, str, float]]) -> tuple[Share, ...]:
    """Name, text and size of each part, side by side.

    Args:
        parts: the size is in any unit.
    """
    whole = sum(max(0.0, size) for _, _, size in parts)
    found: list[Share] = []
    start = 0.0
    for name, text, size in parts:
        width = round(100 * max(0.0, size) / whole, 2) if whole else 0.0
        found.append(Share(name, text, round(start, 2), width))
        start += width
    return tuple(found)
