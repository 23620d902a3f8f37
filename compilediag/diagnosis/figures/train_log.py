"""A trainer's own output as parts of a receipt; the extension that read it has the arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from compilediag import extension_points
from compilediag.receipt.schema.invocations import Throughput
from compilediag.receipt.schema.memory import Allocator
from compilediag.receipt.schema.running import StepsSection
from compilediag.timeline.timeline import Timeline
from compilediag.timeline.train_log import TrainLog

Steps = Callable[[TrainLog, int | None], StepsSection | None]
WithPrinted = Callable[[Throughput | None, TrainLog, int | None], Throughput]

_READER = "the output of a trainer"


def logged_steps(timeline: Timeline, warmup: int | None) -> StepsSection | None:
    """The steps that the trainer printed; None where it printed none, or no number of them."""
    if timeline.train_log is None:
        return None
    steps: Steps = extension_points.load(extension_points.TRAIN_LOG_STEPS, _READER)
    return steps(timeline.train_log, warmup)


def with_logged(
    measured: Throughput | None, timeline: Timeline, warmup: int | None
) -> Throughput | None:
    """The throughput with the figures the trainer printed; what was measured is not replaced."""
    if timeline.train_log is None:
        return measured
    add: WithPrinted = extension_points.load(extension_points.TRAIN_LOG_THROUGHPUT, _READER)
    return add(measured, timeline.train_log, warmup)


def logged_allocator(timeline: Timeline) -> Allocator:
    """The peaks that the trainer printed."""
    if timeline.train_log is None:
        return Allocator()
    peaks = {name: int(peak) for name, peak in timeline.train_log.peaks.items()}
    return msgspec.convert(peaks, Allocator)


def logged_losses_finite(timeline: Timeline) -> bool | None:
    """Of the losses that the trainer printed; None where it printed none."""
    log = timeline.train_log
    if log is None or not (log.losses or log.losses_not_finite):
        return None
    return not log.losses_not_finite


def logged_counts(timeline: Timeline) -> dict[str, int]:
    """How much of a trainer's output was read, and how much of it was of no use."""
    log = timeline.train_log
    return {} if log is None else {f"train_log_{name}": n for name, n in log.counts.items()}
