"""Numbers as text: durations, shares, counts, quantities with units, steps, series as small bars.
`format_seconds` has two figures, for a glance; `format_quantity` three, for changes of a percent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

NOT_MEASURED = "not measured"


def format_seconds(value: float | None) -> str:
    """Format a duration with two significant figures and its unit; "not measured" for None."""
    if value is None:
        return NOT_MEASURED
    if value < 0.000005:
        return "0 s"
    if value < 0.0995:
        return f"{_format_two_digits(value * 1e3)} ms"
    if value < 59.5:
        return f"{_format_two_digits(value)} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _format_two_digits(value: float) -> str:
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def format_percent(part: float | None, whole: float | None) -> str | None:
    """Format a share as "23 %"; None where one of the two was not measured."""
    if part is None or not whole or part < 0:
        return None
    share = 100 * part / whole
    if 0 < share < 1:
        return "<1 %"
    return f"{share:.0f} %"


def pluralize(number: int, noun: str) -> str:
    """Format a number with its noun: "1 recompile", "3 recompiles"; the plural takes an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def join_words(words: Sequence[str]) -> str:
    """Join words as a sentence lists them: "1, 2 and 3"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def format_more(left: int, ending: str = "", indent: str = "  ") -> list[str]:
    """Format the last line of a list that was cut: "+3 more: --json"; [] where nothing is left."""
    return [f"{indent}+{left:,} more{ending}"] if left > 0 else []


def format_ordinal(number: int) -> str:
    """Format a number as a place: 1st, 2nd, 3rd, 4th, 11th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ending}"


def format_steps(numbers: Sequence[int], *, shown: int = 3) -> str:
    """Format step numbers: "step 1", "steps 3 to 9", "every 4th step from 4 to 24".

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
        return f"every {format_ordinal(gap)} step from {first} to {last}"
    listed = ", ".join(str(number) for number in distinct[:shown])
    more = len(distinct) - shown
    return f"steps {listed} (+{more} more)" if more > 0 else f"steps {listed}"


def format_quantity(value: float, unit: str) -> str:
    """Format a number with its unit: seconds and bytes in the size that reads best, shares in %."""
    if unit == "s":
        if value >= 3600:
            return f"{format_three_digits(value / 3600)} h"
        if value >= 120:
            return f"{format_three_digits(value / 60)} min"
        if value >= 0.9995 or value == 0:
            return f"{format_three_digits(value)} s"
        if value >= 1e-3:
            return f"{format_three_digits(value * 1e3)} ms"
        return f"{format_three_digits(value * 1e6)} us"
    if unit == "bytes":
        for name in ("B", "KiB", "MiB", "GiB", "TiB"):
            if value < 999.5:
                return f"{format_three_digits(value)} {name}"
            value /= 1024
        return f"{format_three_digits(value)} PiB"
    if unit == "share":
        return f"{format_three_digits(100 * value)} %"
    if unit in ("count", "ratio"):
        return format_three_digits(value)
    return f"{format_three_digits(value)} {unit}"


def format_pair(before: float, after: float, unit: str, arrow: str) -> str:
    """Format two numbers of one unit; counts in full, so that 1,001 differs from 1,000."""
    if unit == "count" and before == int(before) and after == int(after):
        return f"{int(before):,} {arrow} {int(after):,}"
    return f"{format_quantity(before, unit)} {arrow} {format_quantity(after, unit)}"


def format_metric(name: str, value: float | None) -> str:
    """Format a metric with the unit that its name ends in; "not measured" for None."""
    if value is None:
        return NOT_MEASURED
    if name.endswith("_per_s"):
        return f"{format_number(value)}/s"
    for ending, unit in (("_bytes", "bytes"), ("_fraction", "share"), ("_s", "s")):
        if name.endswith(ending):
            return format_quantity(value, unit)
    return format_number(value)


def format_number(value: float) -> str:
    """Format a number of any size, whatever it measures, to four significant figures."""
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_three_digits(value: float) -> str:
    """Format a number with three significant figures, thousands apart; whole ones as they are."""
    size = abs(value)
    if size >= 99.95 or value == round(value):
        return f"{value:,.0f}"
    if size < 0.001:
        return f"{value:.2e}"
    rounded = float(f"{value:.3g}")
    return f"{rounded:.{2 - math.floor(math.log10(abs(rounded)))}f}"


# --- series --------------------------------------------------------------------------------------

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"


def draw_sparkline(
    values: Sequence[float], low: float, high: float, width: int, *, ascii_only: bool = False
) -> str:
    """Draw `values` as bars; where there are more than `width`, the largest of each group.

    The scale is logarithmic from `low` to `high`, so that a step of a second does not flatten those
    of a millisecond. Give several series the same scale and they can be compared by eye.
    """
    bars = ASCII_BARS if ascii_only else BARS
    shares = (compute_log_share(value, low, high) for value in reduce_to_width(values, width))
    return "".join(bars[min(int(share * len(bars)), len(bars) - 1)] for share in shares)


def reduce_to_width(values: Sequence[float], width: int) -> list[float]:
    """Reduce a series to at most `width` values, each the largest of equally many."""
    size = max(1, -(-len(values) // max(width, 1)))
    return [max(values[index : index + size]) for index in range(0, len(values), size)]


def compute_log_share(value: float, low: float, high: float) -> float:
    """Compute how far `value` is from `low` to `high` on a logarithmic scale: 0 to 1 and beyond."""
    if not 0 < low < high or value <= low:
        return 0.0
    return math.log(value / low) / math.log(high / low)
