"""Figures of each configuration's receipts: medians, and how many runs passed their checks; and the
table of them, a line a configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from compilediag.extensions.fleet.changes import Trend
from compilediag.extensions.fleet.entry import (
    KINDS,
    BadFile,
    ConfigurationKey,
    Entry,
    choose_throughput,
    group_by_config,
    label_configs,
)
from compilediag.extensions.fleet.measures import BY_NAME, CHECKS, MEASURES
from compilediag.views.document import Table
from compilediag.views.format import format_more, format_quantity, pluralize
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import render_table

LAST_CHECKS = 100
"""The pass rate of checks is that of so many runs, the newest ones."""


class Figures(NamedTuple):
    """One measure of a configuration."""

    receipts: int
    """Receipts that have it."""
    median: float
    min: float
    max: float
    newest: float


class Passed(NamedTuple):
    """The checks of the newest runs."""

    runs: int
    """Runs with an outcome of any check, `LAST_CHECKS` at most."""
    passed: int
    """Those that passed all of theirs."""
    failed: dict[str, int]
    """How many of them failed each check."""


class Stats(NamedTuple):
    """The receipts of one configuration."""

    lane: ConfigurationKey
    label: str
    receipts: int
    first: str
    last: str
    """Times of the oldest and the newest."""
    statuses: dict[str, int]
    machines: dict[str, int]
    throughput: str | None
    """The measure that is its throughput."""
    measures: dict[str, Figures]
    checks: Passed


def compute_stats(entries: Sequence[Entry], last: int | None = None) -> tuple[Stats, ...]:
    """Compute the figures of each configuration. Shares and peaks are those
    of single runs, of which the median.

    Args:
        entries: in the order of time.
        last: only so many of each configuration, the newest; None for all.
    """
    groups = group_by_config(entries)
    labels = label_configs(groups)
    return tuple(
        _sum_up(config, labels[config], members[-last:] if last else members)
        for config, members in groups.items()
    )


def _sum_up(config: ConfigurationKey, label: str, entries: Sequence[Entry]) -> Stats:
    values = [entry.values for entry in entries]
    figures: dict[str, Figures] = {}
    for measure in MEASURES:
        having = [run_values[measure.name] for run_values in values if measure.name in run_values]
        if having and measure.name != CHECKS:
            extremes = min(having), max(having)
            figures[measure.name] = Figures(len(having), median(having), *extremes, having[-1])
    checked = [entry.failed for entry in entries if entry.failed is not None][-LAST_CHECKS:]
    failed = Counter(name for names in checked for name in names)
    return Stats(
        lane=config,
        label=label,
        receipts=len(entries),
        first=entries[0].created,
        last=entries[-1].created,
        statuses=dict(Counter(entry.status for entry in entries).most_common()),
        machines=dict(Counter(entry.machine for entry in entries).most_common()),
        throughput=choose_throughput(values),
        measures=figures,
        checks=Passed(len(checked), checked.count(()), dict(failed.most_common())),
    )


# --- the table ----------------------------------------------------------------------------------

MAX_NAMES = 3
"""Files named of each kind; `--json` has them all."""

MAX_ROWS = 30
"""Lines of the table; `--json` has all configurations."""

_MISSING = "-"
_COLUMNS = (
    ("step", ("step_s",)),
    ("goodput", ("goodput",)),
    ("host memory", ("host_peak_bytes",)),
    ("GPU memory", ("device_allocated_peak_bytes", "device_reserved_peak_bytes")),
)
"""Columns with the measures they show; one that no configuration has is left out."""


def render_stats(configs: Sequence[Stats], options: RenderOptions) -> str:
    """Render the table as text, with what the numbers leave out below it."""
    shown = configs[:MAX_ROWS]
    title = options.paint(describe_span(configs, options), "bold")
    lines = [title, "", *_render_table(shown, options)]
    lines += format_more(len(configs) - MAX_ROWS, ": --configuration NAME, or --json")
    # What the line of a configuration alone does not show.
    remarks: list[str] = []
    for config in shown:
        parts: list[str] = []
        if config.checks.failed:
            parts.append(f"checks that failed: {format_counts(config.checks.failed, options)}")
        endings = {name: number for name, number in config.statuses.items() if name != "complete"}
        if endings:
            parts.append(f"runs that did not end well: {format_counts(endings, options)}")
        if len(config.machines) > 1:
            machines = pluralize(len(config.machines), "machine")
            parts.append(f"on {machines}: {format_counts(config.machines, options)}")
        if parts:
            remark = f"{options.clean(config.label, 80)}: {'; '.join(parts)}"
            remarks += options.wrap(remark, "  ", "    ")
    lines += ["", *remarks] if remarks else []
    return "\n".join(lines) + "\n"


def _render_table(configs: Sequence[Stats], options: RenderOptions) -> list[str]:
    columns = [
        (name, measures)
        for name, measures in _COLUMNS
        if any(measure in config.measures for config in configs for measure in measures)
    ]
    head = ("configuration", "runs", "throughput", *(name for name, _ in columns), "checks")
    rows = [
        (
            options.clean(config.label, 80),
            f"{config.receipts:,}",
            _format_medians(config, (config.throughput,) if config.throughput else ()),
            *(_format_medians(config, measures) for _, measures in columns),
            f"{config.checks.passed} of {config.checks.runs}" if config.checks.runs else _MISSING,
        )
        for config in configs
    ]
    note = "medians of the runs; checks: how many of the last 100 runs passed all of theirs"
    if any(name == "GPU memory" for name, _ in columns):
        note += "; GPU memory: allocated / reserved, of the fullest device"
    lines = render_table(Table(head, rows, right=head[1:], shrink="configuration"), options)
    return lines + options.wrap(note, "  ", style="dim")


def _format_medians(config: Stats, names: Sequence[str]) -> str:
    medians = [config.measures[name].median if name in config.measures else None for name in names]
    texts = [
        _MISSING if median is None else format_quantity(median, BY_NAME[name].unit)
        for name, median in zip(names, medians, strict=True)
    ]
    if all(median is None for median in medians):
        return _MISSING
    # `24.0 / 26.4 GiB`: a unit that all share is written once.
    if len({text.partition(" ")[2] for text in texts}) == 1:
        texts[:-1] = [text.partition(" ")[0] for text in texts[:-1]]
    return " / ".join(texts)


def describe_span(configs: Sequence[Trend] | Sequence[Stats], options: RenderOptions) -> str:
    """Describe the span: `12 receipts of 3 configurations, 2026-01-01 to 2026-02-01`."""
    receipts = pluralize(sum(config.receipts for config in configs), "receipt")
    first, last = min(config.first for config in configs), max(config.last for config in configs)
    days = f"{options.clean(first[:10], 40)} to {options.clean(last[:10], 40)}"
    return f"{receipts} of {pluralize(len(configs), 'configuration')}, {days}"


def format_counts(counts: Mapping[str, int], options: RenderOptions) -> str:
    """Format counts by name in one line: `5 failed, 2 killed`."""
    return ", ".join(f"{total:,} {options.clean(name, 60)}" for name, total in counts.items())


def format_notes(bad: Sequence[BadFile], options: RenderOptions) -> str:
    """Format what the screen has below its tables: files that are not counted, by kind and name."""
    lines: list[str] = []
    if bad:
        lines.append(options.paint(f"not counted: {pluralize(len(bad), 'file')}", "bold"))
    for kind, description in KINDS.items():
        files = [file for file in bad if file.kind == kind]
        if files:
            names = ", ".join(options.format_path(file.path, 60) for file in files[:MAX_NAMES])
            more = f" and {len(files) - MAX_NAMES:,} more" if len(files) > MAX_NAMES else ""
            why = f": {options.clean(files[0].text, 160)}" if len(files) == 1 else ""
            lines += options.wrap(f"{len(files):,} {description}: {names}{more}{why}", "  ", "    ")
    return "".join(f"\n{line}" for line in lines) + "\n" if lines else ""
