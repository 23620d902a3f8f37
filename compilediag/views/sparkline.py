"""A series of durations as one line of small bars: eight heights, one character a value."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"


def sparkline(
    values: Sequence[float], low: float, high: float, width: int, *, ascii_only: bool = False
) -> str:
    """The bars of `values`; where there are more than `width`, the largest of each group.

    The scale is logarithmic from `low` to `high`, so that a step of a second does not flatten those
    of a millisecond. Give several series the same scale and they can be compared by eye.
    """
    bars = ASCII_BARS if ascii_only else BARS
    return "".join(bars[_height(value, low, high)] for value in squeezed(values, width))


def squeezed(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values, each the largest of equally many."""
    size = max(1, -(-len(values) // max(width, 1)))
    return [max(values[index : index + size]) for index in range(0, len(values), size)]


def _height(value: float, low: float, high: float) -> int:
    if not 0 < low < high or value <= low:
        return 0
    share = math.log(value / low) / math.log(high / low)
    return min(len(BARS) - 1, int(share * len(BARS)))
