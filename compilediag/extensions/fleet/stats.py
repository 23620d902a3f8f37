"""Figures of each configuration's receipts: medians, and how many runs passed their checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from compilediag.extensions.fleet.entry import Entry, LaneKey, by_lane, labels_of, throughput_of
from compilediag.extensions.fleet.measures import CHECKS, MEASURES

LAST_CHECKS = 100
"""The pass rate of checks is that of so many runs, the newest ones."""


class Figures(NamedTuple):
    """One measure of a lane."""

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


class LaneStats(NamedTuple):
    """The receipts of one lane."""

    lane: LaneKey
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


def stats_of(entries: Sequence[Entry], last: int | None = None) -> tuple[LaneStats, ...]:
    """Compute the figures of each configuration. Shares and peaks are those
    of single runs, of which the median.

    Args:
        entries: in the order of time.
        last: only so many of each configuration, the newest; None for all.
    """
    lanes = by_lane(entries)
    labels = labels_of(lanes)
    return tuple(
        _lane(lane, labels[lane], members[-last:] if last else members)
        for lane, members in lanes.items()
    )


def _lane(lane: LaneKey, label: str, entries: Sequence[Entry]) -> LaneStats:
    values = [entry.values for entry in entries]
    found: dict[str, Figures] = {}
    for item in MEASURES:
        having = [each[item.name] for each in values if item.name in each]
        if having and item.name != CHECKS:
            extremes = min(having), max(having)
            found[item.name] = Figures(len(having), median(having), *extremes, having[-1])
    answered = [entry.failed for entry in entries if entry.failed is not None][-LAST_CHECKS:]
    failed = Counter(name for names in answered for name in names)
    return LaneStats(
        lane=lane,
        label=label,
        receipts=len(entries),
        first=entries[0].created,
        last=entries[-1].created,
        statuses=dict(Counter(entry.status for entry in entries).most_common()),
        machines=dict(Counter(entry.machine for entry in entries).most_common()),
        throughput=throughput_of(values),
        measures=found,
        checks=Passed(len(answered), answered.count(()), dict(failed.most_common())),
    )
