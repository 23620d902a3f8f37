"""Figures of each configuration's receipts: medians, and how many runs passed their checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from compilediag.extensions.fleet.entry import (
    ConfigurationKey,
    Entry,
    choose_throughput,
    group_by_config,
    label_configs,
)
from compilediag.extensions.fleet.measures import CHECKS, MEASURES

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
