"""What the screens of many receipts share: their heading, counts by name, uncounted files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compilediag.extensions.fleet.changes import LaneTrend
from compilediag.extensions.fleet.entry import KINDS, Problem
from compilediag.extensions.fleet.stats import LaneStats
from compilediag.views.format import count
from compilediag.views.style import RenderOptions

MAX_NAMES = 3
"""Files named of each kind; `--json` has them all."""


def span(lanes: Sequence[LaneTrend] | Sequence[LaneStats], options: RenderOptions) -> str:
    """`12 receipts of 3 lanes, 2026-01-01 to 2026-02-01`."""
    receipts = count(sum(lane.receipts for lane in lanes), "receipt")
    first, last = min(lane.first for lane in lanes), max(lane.last for lane in lanes)
    days = f"{options.text(first[:10], 40)} to {options.text(last[:10], 40)}"
    return f"{receipts} of {count(len(lanes), 'lane')}, {days}"


def counted(counts: Mapping[str, int], options: RenderOptions) -> str:
    """Counts by name in one line: `5 failed, 2 killed`."""
    return ", ".join(f"{total:,} {options.text(name, 60)}" for name, total in counts.items())


def notes(problems: Sequence[Problem], remarks: Sequence[str], options: RenderOptions) -> list[str]:
    """Files that are not counted, by kind and by name, and what else is to be known."""
    lines: list[str] = []
    if problems:
        lines.append(options.styled(f"not counted: {count(len(problems), 'file')}", "bold"))
    for kind, description in KINDS.items():
        found = [item for item in problems if item.kind == kind]
        if found:
            lines += options.wrap(_named(found, description, options), "  ", "    ")
    for remark in remarks:
        lines += options.wrap(f"note: {options.text(remark)}", "", "  ")
    return lines


def _named(found: Sequence[Problem], description: str, options: RenderOptions) -> str:
    names = ", ".join(options.path(item.path, 60) for item in found[:MAX_NAMES])
    more = f" and {len(found) - MAX_NAMES:,} more" if len(found) > MAX_NAMES else ""
    why = f": {options.text(found[0].text, 160)}" if len(found) == 1 else ""
    return f"{len(found):,} {description}: {names}{more}{why}"
