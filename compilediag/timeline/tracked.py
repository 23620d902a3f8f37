"""The runs that a program tracked itself with `tracker()`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compilediag_harness.wire import RunTracked


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """One run of one process, as it was recorded last."""

    process: int
    run: RunTracked


def tracked_of(process: int, records: Iterable[RunTracked]) -> list[TrackedRun]:
    """The runs of one process, in the order in which they began."""
    last = {record.number: record for record in records}
    return [TrackedRun(process, last[number]) for number in sorted(last)]


def losses_finite(runs: Iterable[TrackedRun]) -> bool | None:
    """Whether every loss that was recorded is finite; None where none was. A loss is a metric with
    "loss" for the last word of its name."""
    counts = [
        (metric.count, metric.not_finite)
        for item in runs
        for metric in item.run.metrics
        if _last_word(metric.name) == "loss"
    ]
    if any(not_finite for _, not_finite in counts):
        return False
    return True if any(count for count, _ in counts) else None


def _last_word(name: str) -> str:
    for mark in "/.-: ":
        name = name.replace(mark, "_")
    return name.rpartition("_")[2].lower()
