"""What has not happened yet: guards that are already false, frames near the recompile limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.finding_rows import place, title_of
from compilediag.views.lookups import numbered
from compilediag.views.style import RenderOptions

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord, FrameDetail
    from compilediag.receipt.schema.receipt import Receipt

MAX_NAMES = 3


def outlook(receipt: Receipt, options: RenderOptions) -> list[str]:
    """The lines "armed" and "forecast"; none where there is nothing to report."""
    armed = [item for item in receipt.findings if item.rule == "CD150"]
    forecasts = [pair for pair in numbered(receipt) if pair[1].rule == "CD151"]
    lines = options.warning(_armed(armed, options), "armed: ") if armed else []
    if forecasts:
        number, item = forecasts[0]
        sentence = f"{options.text(title_of(item))} (explain {number})"
        others = f"; +{len(forecasts) - 1} more" if len(forecasts) > 1 else ""
        return lines + options.warning(sentence + others, "forecast: ")
    fullest = fullest_frame(receipt)
    if fullest is not None:
        lines += options.warning(_headroom(fullest, receipt, options), "forecast: ")
    return lines


def _armed(armed: list[FindingRecord], options: RenderOptions) -> str:
    """What will recompile at the next call, by name and place."""
    names = [
        options.text(item.variable or title_of(item), 60)
        + (f" ({place(item, options)})" if item.location is not None else "")
        for item in armed
    ]
    sentence = ", ".join(names[:MAX_NAMES])
    if len(names) > MAX_NAMES:
        sentence += f" and {len(names) - MAX_NAMES} more"
    changed = "has changed" if len(names) == 1 else "have changed"
    return f"{sentence} {changed} since it was compiled: the next call recompiles"


def fullest_frame(receipt: Receipt) -> FrameDetail | None:
    """The compiled frame nearest its recompile limit, if it has used at least half of it."""
    known = [
        item for item in receipt.compile.frames_detail if item.headroom.limit and not item.ran_eager
    ]
    if not known:
        return None
    fullest = max(known, key=lambda item: item.headroom.variants / (item.headroom.limit or 1))
    half = 2 * fullest.headroom.variants >= (fullest.headroom.limit or 0)
    return fullest if half else None


def _headroom(item: FrameDetail, receipt: Receipt, options: RenderOptions) -> str:
    where = options.place(item.frame.file, item.frame.line)
    used = f"{item.headroom.variants} of {item.headroom.limit} variants used"
    fullgraph = receipt.header.lane.numerics_flags.fullgraph
    over = "torch raises (fullgraph=True)" if fullgraph else "it runs eager"
    return f"{options.text(item.frame.function, 60)} ({where}): {used}; over that {over}"
