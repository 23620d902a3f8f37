"""Renders many receipts as one table: a line a configuration, with the medians of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compilediag.extensions.fleet.changes import LaneTrend
from compilediag.extensions.fleet.entry import KINDS, BadFile
from compilediag.extensions.fleet.measures import BY_NAME
from compilediag.extensions.fleet.stats import LaneStats
from compilediag.views.document import Table
from compilediag.views.format import count, more, quantity
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import table

MAX_NAMES = 3
"""Files named of each kind; `--json` has them all."""


MAX_LANES = 30
"""Lines of the table; `--json` has all configurations."""

_MISSING = "-"
_COLUMNS = (
    ("step", ("step_s",)),
    ("goodput", ("goodput",)),
    ("host memory", ("host_peak_bytes",)),
    ("GPU memory", ("device_allocated_peak_bytes", "device_reserved_peak_bytes")),
)
"""Columns with the measures they show; one that no configuration has is left out."""


def render_stats(lanes: Sequence[LaneStats], options: RenderOptions) -> str:
    """Render the table as text, with what the numbers leave out below it."""
    shown = lanes[:MAX_LANES]
    lines = [options.styled(span(lanes, options), "bold"), "", *_table(shown, options)]
    lines += more(len(lanes) - MAX_LANES, " lanes: --lane NAME, or --json")
    # What the line of a configuration alone does not show.
    remarks: list[str] = []
    for lane in shown:
        parts: list[str] = []
        if lane.checks.failed:
            parts.append(f"checks that failed: {counted(lane.checks.failed, options)}")
        endings = {name: number for name, number in lane.statuses.items() if name != "complete"}
        if endings:
            parts.append(f"runs that did not end well: {counted(endings, options)}")
        if len(lane.machines) > 1:
            machines = count(len(lane.machines), "machine")
            parts.append(f"on {machines}: {counted(lane.machines, options)}")
        if parts:
            remark = f"{options.text(lane.label, 80)}: {'; '.join(parts)}"
            remarks += options.wrap(remark, "  ", "    ")
    lines += ["", *remarks] if remarks else []
    return "\n".join(lines) + "\n"


def _table(lanes: Sequence[LaneStats], options: RenderOptions) -> list[str]:
    columns = [
        (name, measures)
        for name, measures in _COLUMNS
        if any(measure in lane.measures for lane in lanes for measure in measures)
    ]
    head = ("lane", "runs", "throughput", *(name for name, _ in columns), "checks")
    rows = [
        (
            options.text(lane.label, 80),
            f"{lane.receipts:,}",
            _medians(lane, (lane.throughput,) if lane.throughput else ()),
            *(_medians(lane, measures) for _, measures in columns),
            f"{lane.checks.passed} of {lane.checks.runs}" if lane.checks.runs else _MISSING,
        )
        for lane in lanes
    ]
    note = "medians of the runs; checks: how many of the last 100 runs passed all of theirs"
    if any(name == "GPU memory" for name, _ in columns):
        note += "; GPU memory: allocated / reserved, of the fullest device"
    lines = table(Table(head, rows, right=head[1:], shrink="lane"), options)
    return lines + options.wrap(note, "  ", style="dim")


def _medians(lane: LaneStats, measures: Sequence[str]) -> str:
    medians = [lane.measures[name].median if name in lane.measures else None for name in measures]
    texts = [
        _MISSING if median is None else quantity(median, BY_NAME[name].unit)
        for name, median in zip(measures, medians, strict=True)
    ]
    if all(median is None for median in medians):
        return _MISSING
    # `24.0 / 26.4 GiB`: a unit that all share is written once.
    if len({text.partition(" ")[2] for text in texts}) == 1:
        texts[:-1] = [text.partition(" ")[0] for text in texts[:-1]]
    return " / ".join(texts)


def span(lanes: Sequence[LaneTrend] | Sequence[LaneStats], options: RenderOptions) -> str:
    """Describe the span: `12 receipts of 3 lanes, 2026-01-01 to 2026-02-01`."""
    receipts = count(sum(lane.receipts for lane in lanes), "receipt")
    first, last = min(lane.first for lane in lanes), max(lane.last for lane in lanes)
    days = f"{options.text(first[:10], 40)} to {options.text(last[:10], 40)}"
    return f"{receipts} of {count(len(lanes), 'lane')}, {days}"


def counted(counts: Mapping[str, int], options: RenderOptions) -> str:
    """Format counts by name in one line: `5 failed, 2 killed`."""
    return ", ".join(f"{total:,} {options.text(name, 60)}" for name, total in counts.items())


def notes(problems: Sequence[BadFile], remarks: Sequence[str], options: RenderOptions) -> list[str]:
    """List the files that are not counted, by kind and by name, and what else is to be known."""
    lines: list[str] = []
    if problems:
        lines.append(options.styled(f"not counted: {count(len(problems), 'file')}", "bold"))
    for kind, description in KINDS.items():
        found = [item for item in problems if item.kind == kind]
        if found:
            names = ", ".join(options.path(item.path, 60) for item in found[:MAX_NAMES])
            more = f" and {len(found) - MAX_NAMES:,} more" if len(found) > MAX_NAMES else ""
            why = f": {options.text(found[0].text, 160)}" if len(found) == 1 else ""
            lines += options.wrap(f"{len(found):,} {description}: {names}{more}{why}", "  ", "    ")
    for remark in remarks:
        lines += options.wrap(f"note: {options.text(remark)}", "", "  ")
    return lines
