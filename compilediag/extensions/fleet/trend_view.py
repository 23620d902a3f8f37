"""Renders changes over many receipts, the worst first, with where each began."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from compilediag.extensions.fleet.changes import (
    ChangeEvent,
    LevelChange,
    Mark,
    Trend,
    get_event_order,
    group_changes,
)
from compilediag.extensions.fleet.measures import BY_NAME
from compilediag.extensions.fleet.stats import describe_span, format_counts
from compilediag.views.document import Kind
from compilediag.views.format import (
    draw_sparkline,
    format_more,
    format_pair,
    format_quantity,
    pluralize,
)
from compilediag.views.style import COLORS, RenderOptions
from compilediag.views.text import measure_width, pad

MAX_EVENTS = 6
"""Of one screen; `--all` shows the others, and what was undone."""
MAX_TRENDS = 8
_COMMIT = 10
SIGNS = {"worse": "bad", "beginning": "warn", "better": "good", "undone": "good"}


def render_trend(trends: Sequence[Trend], options: RenderOptions, *, complete: bool = False) -> str:
    """Render the trend as text: a headline, the changes by when they began, then what is steady."""
    events = list_events(trends)
    shown = [event for event in events if complete or event.state != "undone"]
    listed = shown if complete else shown[:MAX_EVENTS]
    sign, sentence = conclude_trend(trends, events)
    verdict = options.paint(f"{options.get_sign(sign)} {sentence}", COLORS[sign])
    lines = options.wrap_parts([verdict, describe_span(trends, options)], "", "  ")
    for event in listed:
        sign = SIGNS[event.state]
        title = f"{options.get_sign(sign)} {format_event_title(event, options)}"
        head, *rest = options.wrap(title, "", "    ")
        color = "dim" if event.state == "undone" else COLORS[sign]
        block = [options.paint(head, color), *rest]
        # A line a change: measure, levels, size, and a picture of the series.
        rows: list[tuple[str, ...]] = []
        for change in event.changes:
            series = next(own for own in event.trend.series if change in own.changes)
            values = raise_above_zero(series.points)
            low, high, ascii_only = min(values), max(values), options.ascii_only
            bars = draw_sparkline(values, low, high, len(values), ascii_only=ascii_only)
            rows.append((*format_change(change, options), "" if low == high else bars))
        widths = [max(map(measure_width, column)) for column in zip(*rows, strict=True)]
        block += [("    " + "  ".join(map(pad, row, widths))).rstrip() for row in rows]
        for text in list_circumstances(event, options):
            block += options.wrap(text, "    ", "      ")
        lines += ["", *block]
    hidden = len(events) - len(listed)
    if hidden:
        lines += ["", f"+{pluralize(hidden, 'more change')}, undone or older: --all"]
    visible = trends if complete else trends[:MAX_TRENDS]
    lines.append("")
    for trend in visible:
        lines += render_steady(trend, options, complete=complete)
    lines += format_more(len(trends) - len(visible), ": --all, or --configuration NAME")
    return "\n".join(lines) + "\n"


def list_events(trends: Sequence[Trend]) -> list[ChangeEvent]:
    """List the changes of all configurations, the worst first."""
    return sorted(chain.from_iterable(map(group_changes, trends)), key=get_event_order)


def conclude_trend(trends: Sequence[Trend], events: Sequence[ChangeEvent]) -> tuple[Kind, str]:
    """Conclude the trend: its sign and its sentence."""
    worse = sum(1 for event in events if event.state == "worse")
    if worse:
        return "bad", f"{pluralize(worse, 'change')} for the worse"
    if any(event.state == "beginning" for event in events):
        return "warn", "the newest receipts are worse"
    if any(series.enough for trend in trends for series in trend.series):
        return "good", "nothing got worse and stayed so"
    return "blind", "too few receipts to determine a trend"


def format_event_title(event: ChangeEvent, options: RenderOptions) -> str:
    """Format the configuration, and when the change began: the receipt and its commit, or the range
    where that is not sure."""
    change = event.surest
    began = f"since {_format_receipt(change.first, options)}"
    if not change.lasting:
        newest = "receipt" if change.receipts == 1 else f"{change.receipts} receipts"
        began = f"only the newest {newest}, {began}"
    elif change.candidates != 1:
        earliest = _format_receipt(change.earliest, options)
        latest = _format_receipt(change.latest, options)
        began = f"began between {earliest} and {latest}, in one of {change.candidates} receipts"
        began += f", most likely {options.format_path(change.first.path, 60)}"
    return f"{options.clean(event.trend.label, 80)}: {began}"


def _format_receipt(mark: Mark, options: RenderOptions) -> str:
    created = options.clean(mark.created[:16].replace("T", " "), 40)
    return f"{created} {options.format_path(mark.path, 70)} ({_format_commit(mark, options)})"


def _format_commit(mark: Mark, options: RenderOptions) -> str:
    if mark.commit is None:
        return "commit not known"
    changed = " with local changes" if mark.dirty else ""
    message = f' "{options.clean(mark.message, 50)}"' if mark.message else ""
    return f"commit {options.clean(mark.commit[:_COMMIT])}{changed}{message}"


def format_change(change: LevelChange, options: RenderOptions) -> tuple[str, str, str]:
    """Format measure, levels and size of a change."""
    measure = BY_NAME[change.measure]
    levels = format_pair(change.before, change.after, measure.unit, options.arrow)
    difference = change.after - change.before
    if measure.kind == "share":
        size = f"{100 * difference:+.0f} points"
    elif measure.kind == "count" or change.ratio is None:
        size = f"{difference:+,.4g}"
    else:
        share = 100 * (change.ratio - 1)
        size = f"{share:+.1f} %" if abs(share) < 9.95 else f"{share:+,.0f} %"
    return measure.label, levels, size


def raise_above_zero(points: Sequence[float]) -> list[float]:
    """Raise the points above zero, as a logarithmic scale needs them: counts may be zero."""
    low, high = min(points), max(points)
    lift = (high - low) / 8 - low if low <= 0 else 0.0
    return [point + lift for point in points]


def list_circumstances(event: ChangeEvent, options: RenderOptions) -> list[str]:
    """List what may explain the change, or rules an explanation out."""
    entries: list[str] = []
    change = event.surest
    if change.same_commit:
        entries = ["the commit is the same on both sides: the cause is not in the committed code"]
    elif change.last_before.commit is not None:
        entries = [f"before it: {_format_commit(change.last_before, options)}"]
    facts = dict.fromkeys(fact for other in event.changes for fact in other.also)
    if facts:
        changed = [
            f"{options.clean(fact.name, 40)} "
            + options.format_change(fact.before or "unknown", fact.after or "unknown", 60)
            for fact in facts
        ]
        entries.append(f"also changed there: {', '.join(changed)}")
    machines = dict.fromkeys(other.machine for other in event.changes if other.machine)
    if machines and event.trend.machines > 1:
        entries.append(f"on {', '.join(options.clean(name, 80) for name in machines)}")
    ends = dict.fromkeys(other.undone for other in event.changes if other.undone is not None)
    if ends and event.state == "undone":
        entries.append(f"until {_format_receipt(next(iter(ends)), options)}")
    return entries


def render_steady(trend: Trend, options: RenderOptions, *, complete: bool) -> list[str]:
    """Render what is steady, what could not be determined, and which receipts were left out.

    Counts that are and stay zero are listed on request, and so is the noise.
    """
    label = options.clean(trend.label, 80)
    about = f"{pluralize(trend.receipts, 'receipt')}"
    if trend.older:
        about += f", the newest of {trend.receipts + trend.older:,}"
    lines = options.wrap(f"{label}: {about}", "", "    ")
    known = (series for series in trend.series if series.enough)
    steady = [series for series in known if all(change.undone for change in series.changes)]
    parts: list[str] = []
    for series in steady:
        measure = BY_NAME[series.measure]
        part = measure.label
        if series.level is not None:
            part += f" {format_quantity(series.level, measure.unit)}"
            part += f" ±{100 * series.noise:.1f} %" if series.noise and complete else ""
            if series.machine is not None and trend.machines > 1:
                part += f" on {options.clean(series.machine, 80)}"
        parts += [part] if series.level or complete else []
    if parts:
        lines += options.wrap(f"unchanged: {', '.join(parts)}", "  ", "    ")
    few = [series for series in trend.series if not series.enough]
    if few:
        names = dict.fromkeys(BY_NAME[series.measure].label for series in few)
        text = f"too few receipts ({max(series.receipts for series in few)}, "
        text += f"of {trend.needed} on one machine): {', '.join(names)}"
        lines += options.wrap(text, "  ", "    ")
    if trend.left_out:
        lines += options.wrap(f"left out: {format_counts(trend.left_out, options)}", "  ", "    ")
    return lines
