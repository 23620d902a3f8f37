"""What changed over many receipts, as one page."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.extensions.fleet.changes import Event, LaneTrend
from compilediag.extensions.fleet.views.stats import span
from compilediag.extensions.fleet.views.trend import (
    all_events,
    change_cells,
    circumstances,
    conclusion,
    event_title,
    quiet_lines,
    raised,
)
from compilediag.views.document import (
    Overview,
    Paragraph,
    Picture,
    Preformatted,
    Section,
    Table,
)
from compilediag.views.html.page import Assets, render_overview
from compilediag.views.style import RenderOptions

HEAD = ("measure", "before and after", "change")
MAX_EVENTS = 100
_STATES = {
    "worse": "worse, and still so",
    "beginning": "worse in the newest receipts",
    "better": "better",
    "undone": "undone since",
}


def render_trend_page(lanes: Sequence[LaneTrend], assets: Assets, *, root: str = "") -> str:
    """The page: every change, the worst first, then what is steady.

    Args:
        lanes: with their changes.
        assets: templates, style and script.
        root: files below this folder are shown relative to it.
    """
    options = RenderOptions(root=root)
    events = all_events(lanes)
    kind, sentence = conclusion(lanes, events)
    steady = [line for lane in lanes for line in quiet_lines(lane, options, complete=True)]
    sections = [
        _event(number, event, options) for number, event in enumerate(events[:MAX_EVENTS], 1)
    ]
    sections.append(Section("steady", "Steady", "What is steady", (Preformatted(steady),)))
    hidden = len(events) - MAX_EVENTS
    more = f"{hidden} more changes: compilediag trend --json"
    about = Overview(
        title="trend",
        kind=kind,
        sentence=sentence,
        sections=sections,
        notes=[more] if hidden > 0 else (),
        facts=[("receipts", span(lanes, options))],
    )
    return render_overview(about, assets)


def _event(number: int, event: Event, options: RenderOptions) -> Section:
    rows = [change_cells(change, options) for change in event.changes]
    pictures = list[Picture]()
    for change, row in zip(event.changes, rows, strict=True):
        values = raised(event.lane.points_of(change))
        pictures.append(Picture(row[0], row[1], values, min(values), max(values)))
    return Section(
        f"change-{number}",
        f"Change {number}",
        event_title(event, options),
        (
            Paragraph(f"{_STATES[event.state]}.".capitalize(), circumstances(event, options)),
            Table(HEAD, rows, "changes that began together"),
        ),
        pictures=pictures,
    )
