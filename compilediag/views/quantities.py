"""Measures in words: three figures and a unit, so that a change of a percent can be seen."""

from __future__ import annotations

import math

from compilediag.views.words import NOT_MEASURED

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def quantity(value: float, unit: str) -> str:
    """A number with its unit: seconds and bytes in the size that reads best, shares in percent."""
    if unit == "s":
        return _seconds(value)
    if unit == "bytes":
        return _bytes(value)
    if unit == "share":
        return f"{three_figures(100 * value)} %"
    if unit in ("count", "ratio"):
        return three_figures(value)
    return f"{three_figures(value)} {unit}"


def pair(before: float, after: float, unit: str, arrow: str) -> str:
    """Two numbers of one unit; counts in full, so that 1,001 differs from 1,000."""
    if unit == "count" and before == int(before) and after == int(after):
        return f"{int(before):,} {arrow} {int(after):,}"
    return f"{quantity(before, unit)} {arrow} {quantity(after, unit)}"


def measured(name: str, value: float | None) -> str:
    """A figure with the unit that its name ends in; "not measured" for None."""
    if value is None:
        return NOT_MEASURED
    if name.endswith("_per_s"):
        return f"{figure(value)}/s"
    for ending, unit in (("_bytes", "bytes"), ("_fraction", "share"), ("_s", "s")):
        if name.endswith(ending):
            return quantity(value, unit)
    return figure(value)


def figure(value: float) -> str:
    """A number of any size, to four significant figures: what a program calls its metrics says
    nothing about their size."""
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def three_figures(value: float) -> str:
    """The number with three significant figures, thousands apart; whole numbers as they are."""
    size = abs(value)
    if size >= 99.95 or value == round(value):
        return f"{value:,.0f}"
    if size < 0.001:
        return f"{value:.2e}"
    rounded = float(f"{value:.3g}")
    return f"{rounded:.{2 - math.floor(math.log10(abs(rounded)))}f}"


def _seconds(value: float) -> str:
    if value >= 3600:
        return f"{three_figures(value / 3600)} h"
    if value >= 120:
        return f"{three_figures(value / 60)} min"
    if value >= 0.9995 or value == 0:
        return f"{three_figures(value)} s"
    return (
        f"{three_figures(value * 1e3)} ms" if value >= 1e-3 else f"{three_figures(value * 1e6)} us"
    )


def _bytes(value: float) -> str:
    step = 0
    while value >= 999.5 and step + 1 < len(_BYTES):
        value /= 1024
        step += 1
    return f"{three_figures(value)} {_BYTES[step]}"
