"""Numbers in words: durations, shares, counts, and the steps at which something happened."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

NOT_MEASURED = "not measured"


def seconds(value: float | None) -> str:
    """A duration with two significant figures and its unit; "not measured" for None."""
    if value is None:
        return NOT_MEASURED
    if value < 0.000005:
        return "0 s"
    if value < 0.0995:
        return f"{_two_figures(value * 1e3)} ms"
    if value < 59.5:
        return f"{_two_figures(value)} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _two_figures(value: float) -> str:
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def percent(part: float | None, whole: float | None) -> str | None:
    """The share as "23 %"; None where one of the two was not measured."""
    if part is None or not whole or part < 0:
        return None
    share = 100 * part / whole
    if 0 < share < 1:
        return "<1 %"
    return f"{share:.0f} %"


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 recompile", "3 recompiles"; the plural takes an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def ordinal(number: int) -> str:
    """The number as a place: 1st, 2nd, 3rd, 4th, 11th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ending}"


def steps(numbers: Sequence[int], *, shown: int = 3) -> str:
    """When it happened: "step 1", "steps 3 to 9", "every 4th step from 4 to 24".


    A rhythm is only claimed for three steps or more that are all equally far apart.
    """
    distinct = sorted(set(numbers))
    if not distinct:
        return ""
    if len(distinct) == 1:
        return f"step {distinct[0]}"
    first, last = distinct[0], distinct[-1]
    gaps = {later - earlier for earlier, later in pairwise(distinct)}
    if len(distinct) >= 3 and len(gaps) == 1:
        gap = gaps.pop()
        if gap == 1:
            return f"steps {first} to {last}"
        return f"every {ordinal(gap)} step from {first} to {last}"
    listed = ", ".join(str(number) for number in distinct[:shown])
    more = len(distinct) - shown
    return f"steps {listed} (+{more} more)" if more > 0 else f"steps {listed}"
