"""The runs that a program tracked itself with `tracker()`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compilediag_harness.wire import RunTracked

_LOSS = re.compile(r"(?:.*[/.\-: _])?loss", re.IGNORECASE | re.DOTALL)


def newest_of(_: int, records: Iterable[RunTracked]) -> list[RunTracked]:
    """Each run of one process as it was recorded last, in the order in which they began."""
    last = {record.number: record for record in records}
    return [last[number] for number in sorted(last)]


def losses_finite(runs: Iterable[RunTracked]) -> bool | None:
    """Whether every loss that was recorded is finite; None where none was. A loss is a metric with
    "loss" for the last word of its name."""
    losses = [metric for run in runs for metric in run.metrics if _LOSS.fullmatch(metric.name)]
    if any(metric.not_finite for metric in losses):
        return False
    return True if any(metric.count for metric in losses) else None
