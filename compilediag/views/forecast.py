"""What has not happened yet: guards that are already false, and how near the recompile limit is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.finding_rows import place, title_of
from compilediag.views.lookups import numbered
from compilediag.views.style import RenderOptions
from compilediag.views.text import hanging_indent

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord, FrameDetail
    from compilediag.receipt.schema.receipt import Receipt

MOST_NAMES = 3


def outlook(receipt: Receipt, options: RenderOptions) -> list[str]:
    """The lines "armed" and "forecast"; none where there is nothing to say."""
    found = numbered(receipt)
    armed = [(number, item) for number, item in found if item.rule == "CD150"]
    forecast = [(number, item) for number, item in found if item.rule == "CD151"]
    lines: list[str] = []
    if armed:
        lines += _said("armed", _armed(armed, options), options)
    if forecast:
        number, item = forecast[0]
        sentence = f"{options.text(title_of(item))} (explain {number})"
        more = f"; +{len(forecast) - 1} more" if len(forecast) > 1 else ""
        lines += _said("forecast", sentence + more, options)
    else:
        fullest = fullest_frame(receipt)
        if fullest is not None:
            lines += _said("forecast", _headroom(fullest, options), options)
    return lines


def _said(label: str, sentence: str, options: RenderOptions) -> list[str]:
    lines = hanging_indent(sentence, options.width, f"{options.sign('warn')} {label}: ", "  ")
    return [options.styled(line, "yellow") for line in lines]


def _armed(armed: list[tuple[int, FindingRecord]], options: RenderOptions) -> str:
    """What will recompile at the next call, by name and place."""
    names = [
        options.text(item.variable or title_of(item), 60)
        + (f" ({place(item, options)})" if item.location is not None else "")
        for _, item in armed
    ]
    sentence = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        sentence += f" and {len(names) - MOST_NAMES} more"
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


def _headroom(item: FrameDetail, options: RenderOptions) -> str:
    where = f"{options.path(item.frame.file, 60)}:{item.frame.line}"
    used = f"{item.headroom.variants} of {item.headroom.limit} variants used"
    return f"{options.text(item.frame.function, 60)} ({where}): {used}; over that it runs eager"
