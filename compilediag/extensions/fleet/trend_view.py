"""Renders changes over many receipts, the worst first, with where each began: screen and page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from compilediag.extensions.fleet.changes import (
    LaneEvent,
    LaneTrend,
    LevelChange,
    Mark,
    events_of,
    order_of,
)
from compilediag.extensions.fleet.measures import BY_NAME
from compilediag.extensions.fleet.stats_view import counted, span
from compilediag.views.document import (
    Kind,
    LineChart,
    Overview,
    Paragraph,
    Preformatted,
    Section,
    Table,
)
from compilediag.views.format import count, more, pair, quantity, sparkline
from compilediag.views.html.page import Assets, render_overview
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width, pad

MAX_EVENTS = 6
"""Of one screen; `--all` shows the others, and what was undone."""
MAX_LANES = 8
_COMMIT = 10
SIGNS = {"worse": "bad", "beginning": "warn", "better": "good", "undone": "good"}
_COLORS = {"bad": "red", "warn": "yellow", "good": "green", "blind": "yellow"}
MAX_SECTIONS = 100
"""Of a page."""
_STATES = {
    "worse": "worse, and still so",
    "beginning": "worse in the newest receipts",
    "better": "better",
    "undone": "undone since",
}


def render_trend(
    lanes: Sequence[LaneTrend], options: RenderOptions, *, complete: bool = False
) -> str:
    """Render the trend as text: a headline, the changes by when they began, then what is steady."""
    events = all_events(lanes)
    shown = [event for event in events if complete or event.state != "undone"]
    listed = shown if complete else shown[:MAX_EVENTS]
    sign, sentence = conclusion(lanes, events)
    verdict = options.styled(f"{options.sign(sign)} {sentence}", _COLORS[sign])
    lines = options.wrap_items([verdict, span(lanes, options)], "", "  ")
    for event in listed:
        sign = SIGNS[event.state]
        title = f"{options.sign(sign)} {event_title(event, options)}"
        head, *rest = options.wrap(title, "", "    ")
        color = "dim" if event.state == "undone" else _COLORS[sign]
        block = [options.styled(head, color), *rest]
        # A line a change: measure, levels, size, and a picture of the series.
        rows: list[tuple[str, ...]] = []
        for change in event.changes:
            values = raised(event.lane.points_of(change))
            low, high, ascii_only = min(values), max(values), options.ascii_only
            bars = sparkline(values, low, high, len(values), ascii_only=ascii_only)
            rows.append((*change_cells(change, options), "" if low == high else bars))
        widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
        block += [("    " + "  ".join(map(pad, row, widths))).rstrip() for row in rows]
        for text in circumstances(event, options):
            block += options.wrap(text, "    ", "      ")
        lines += ["", *block]
    hidden = len(events) - len(listed)
    if hidden:
        lines += ["", f"+{count(hidden, 'more change')}, undone or older: --all"]
    shown_lanes = lanes if complete else lanes[:MAX_LANES]
    lines += [
        "",
        *(line for lane in shown_lanes for line in quiet_lines(lane, options, complete=complete)),
    ]
    lines += more(len(lanes) - len(shown_lanes), " lanes: --all, or --lane NAME")
    return "\n".join(lines) + "\n"


def all_events(lanes: Sequence[LaneTrend]) -> list[LaneEvent]:
    """List the changes of all configurations, the worst first."""
    return sorted(chain.from_iterable(map(events_of, lanes)), key=order_of)


def conclusion(lanes: Sequence[LaneTrend], events: Sequence[LaneEvent]) -> tuple[Kind, str]:
    """Conclude the trend: its sign and its sentence."""
    worse = sum(1 for event in events if event.state == "worse")
    if worse:
        return "bad", f"{count(worse, 'change')} for the worse"
    if any(event.state == "beginning" for event in events):
        return "warn", "the newest receipts are worse"
    if any(series.enough for lane in lanes for series in lane.series):
        return "good", "nothing got worse and stayed so"
    return "blind", "too few receipts to determine a trend"


def event_title(event: LaneEvent, options: RenderOptions) -> str:
    """Format the configuration, and when the change began: the receipt and its commit, or the range
    where that is not sure."""
    change = event.surest
    began = f"since {_receipt(change.first, options)}"
    if not change.lasting:
        newest = "receipt" if change.receipts == 1 else f"{change.receipts} receipts"
        began = f"only the newest {newest}, {began}"
    elif change.candidates != 1:
        earliest, latest = _receipt(change.earliest, options), _receipt(change.latest, options)
        began = f"began between {earliest} and {latest}, in one of {change.candidates} receipts"
        began += f", most likely {options.path(change.first.path, 60)}"
    return f"{options.text(event.lane.label, 80)}: {began}"


def _receipt(mark: Mark, options: RenderOptions) -> str:
    created = options.text(mark.created[:16].replace("T", " "), 40)
    return f"{created} {options.path(mark.path, 70)} ({_commit(mark, options)})"


def _commit(mark: Mark, options: RenderOptions) -> str:
    if mark.commit is None:
        return "commit not known"
    changed = " with local changes" if mark.dirty else ""
    message = f' "{options.text(mark.message, 50)}"' if mark.message else ""
    return f"commit {options.text(mark.commit[:_COMMIT])}{changed}{message}"


def change_cells(change: LevelChange, options: RenderOptions) -> tuple[str, str, str]:
    """Format measure, levels and size of a change."""
    measure = BY_NAME[change.measure]
    levels = pair(change.before, change.after, measure.unit, options.arrow)
    difference = change.after - change.before
    if measure.kind == "share":
        size = f"{100 * difference:+.0f} points"
    elif measure.kind == "count" or change.ratio is None:
        size = f"{difference:+,.4g}"
    else:
        share = 100 * (change.ratio - 1)
        size = f"{share:+.1f} %" if abs(share) < 9.95 else f"{share:+,.0f} %"
    return measure.label, levels, size


def raised(points: Sequence[float]) -> list[float]:
    """Raise the points above zero, as a logarithmic scale needs them: counts may be zero."""
    low, high = min(points), max(points)
    lift = (high - low) / 8 - low if low <= 0 else 0.0
    return [point + lift for point in points]


def circumstances(event: LaneEvent, options: RenderOptions) -> list[str]:
    """List what may explain the change, or rules an explanation out."""
    entries: list[str] = []
    change = event.surest
    if change.same_commit:
        entries = ["the commit is the same on both sides: the cause is not in the committed code"]
    elif change.last_before.commit is not None:
        entries = [f"before it: {_commit(change.last_before, options)}"]
    facts = dict.fromkeys(fact for item in event.changes for fact in item.also)
    if facts:
        changed = [
            f"{options.text(fact.name, 40)} "
            + options.change(fact.before or "unknown", fact.after or "unknown", 60)
            for fact in facts
        ]
        entries.append(f"also changed there: {', '.join(changed)}")
    machines = dict.fromkeys(item.machine for item in event.changes if item.machine)
    if machines and event.lane.machines > 1:
        entries.append(f"on {', '.join(options.text(name, 80) for name in machines)}")
    ends = dict.fromkeys(item.undone for item in event.changes if item.undone is not None)
    if ends and event.state == "undone":
        entries.append(f"until {_receipt(next(iter(ends)), options)}")
    return entries


def quiet_lines(lane: LaneTrend, options: RenderOptions, *, complete: bool) -> list[str]:
    """Render what is steady, what could not be determined, and which receipts were left out.

    Counts that are and stay zero are listed on request, and so is the noise.
    """
    label = options.text(lane.label, 80)
    about = f"{count(lane.receipts, 'receipt')}"
    if lane.older:
        about += f", the newest of {lane.receipts + lane.older:,}"
    lines = options.wrap(f"{label}: {about}", "", "    ")
    known = (item for item in lane.series if item.enough)
    steady = [item for item in known if all(change.undone for change in item.changes)]
    parts: list[str] = []
    for item in steady:
        measure = BY_NAME[item.measure]
        part = measure.label
        if item.level is not None:
            part += f" {quantity(item.level, measure.unit)}"
            part += f" ±{100 * item.noise:.1f} %" if item.noise and complete else ""
            if item.machine is not None and lane.machines > 1:
                part += f" on {options.text(item.machine, 80)}"
        parts += [part] if item.level or complete else []
    if parts:
        lines += options.wrap(f"unchanged: {', '.join(parts)}", "  ", "    ")
    few = [item for item in lane.series if not item.enough]
    if few:
        names = dict.fromkeys(BY_NAME[item.measure].label for item in few)
        text = f"too few receipts ({max(item.receipts for item in few)}, "
        text += f"of {lane.needed} on one machine): {', '.join(names)}"
        lines += options.wrap(text, "  ", "    ")
    if lane.left_out:
        lines += options.wrap(f"left out: {counted(lane.left_out, options)}", "  ", "    ")
    return lines


# --- as a page -----------------------------------------------------------------------------------


def render_trend_page(lanes: Sequence[LaneTrend], assets: Assets, *, root: str = "") -> str:
    """Render the page: every change, the worst first, then what is steady.

    Args:
        trends: with their changes.
        assets: templates, style and script.
        root: files below this folder are shown relative to it.
    """
    options = RenderOptions(root=root)
    events = all_events(lanes)
    kind, sentence = conclusion(lanes, events)
    steady = [line for lane in lanes for line in quiet_lines(lane, options, complete=True)]
    sections = [
        _section(number, event, options) for number, event in enumerate(events[:MAX_SECTIONS], 1)
    ]
    sections.append(Section("steady", "Steady", "What is steady", (Preformatted(steady),)))
    hidden = len(events) - MAX_SECTIONS
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


def _section(number: int, event: LaneEvent, options: RenderOptions) -> Section:
    rows = [change_cells(change, options) for change in event.changes]
    pictures = list[LineChart]()
    for change, row in zip(event.changes, rows, strict=True):
        values = raised(event.lane.points_of(change))
        pictures.append(LineChart(row[0], row[1], values, min(values), max(values)))
    return Section(
        f"change-{number}",
        f"Change {number}",
        event_title(event, options),
        (
            Paragraph(f"{_STATES[event.state]}.".capitalize(), circumstances(event, options)),
            Table(("measure", "before and after", "change"), rows, "changes that began together"),
        ),
        pictures=pictures,
    )
