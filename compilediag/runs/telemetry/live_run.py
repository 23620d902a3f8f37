"""A run that goes on: the events of its processes as they come, a reading whenever it is asked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from compilediag.diagnosis.figures.goodput import (
    CATEGORIES,
    Account,
    is_recompile_time,
    recompile_ids,
)
from compilediag.runs.telemetry.labels import OTHER, Labels
from compilediag.runs.telemetry.live_process import LiveProcess
from compilediag.runs.telemetry.snapshot import MetricsSnapshot
from compilediag.timeline.fold import fold
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Event, ProcessStarted, RunTracked


@dataclass(frozen=True, slots=True)
class End:
    """How the run ended, as its parent saw it."""

    exit_code: int
    wall_s: float
    complete: bool
    """It ended by itself, with success."""


class LiveRun:
    """Adds up what the journals tell; pure but for what it was told."""

    def __init__(self, started_unix: float, secrets: Iterable[str] = ()) -> None:
        self._started_unix = started_unix
        self._processes: dict[str, LiveProcess] = {}
        self._labels = Labels(CATEGORIES, tuple(secrets))
        self._runs, self._metrics = (Labels((), tuple(secrets)) for _ in range(2))

    def take(self, events: Mapping[str, list[Event]]) -> None:
        """What each journal told since the last time, by its name."""
        for name, new in events.items():
            self._processes.setdefault(name, LiveProcess(name)).take(new)

    def reading(
        self,
        at_unix: float,
        wall_s: float = 0.0,
        *,
        records_lost: int = 0,
        losses: Mapping[tuple[str, str], int] | None = None,
        end: End | None = None,
    ) -> MetricsSnapshot:
        """What is known now. Steps and their time are told since the reading before."""
        processes = sorted(self._processes.values(), key=_start_order)
        timeline = fold([item.events for item in processes])
        ids = recompile_ids(timeline)
        again = [item.seconds for item in timeline.compiles if is_recompile_time(item, ids)]
        every = [item.seconds for item in timeline.compiles]
        reading = MetricsSnapshot(
            at_unix=at_unix,
            started_unix=self._started_unix,
            wall_s=wall_s if end is None else end.wall_s,
            active=end is None,
            exit_code=None if end is None else end.exit_code,
            processes=sum(_has_started(item) for item in processes),
            frames=timeline.counts.frames,
            compiles=timeline.counts.compiles,
            recompiles=timeline.counts.recompiles,
            graph_breaks=timeline.counts.graph_breaks,
            compile_first_s=sum(every) - sum(again),
            compile_again_s=sum(again),
            records_lost=records_lost,
            losses=dict(losses or {}),
        )
        lead = _lead(timeline, processes)
        return reading if lead is None or records_lost else self._with_steps(reading, lead, end)

    def _with_steps(
        self, reading: MetricsSnapshot, lead: LiveProcess, end: End | None
    ) -> MetricsSnapshot:
        step_s = lead.rest_told()
        folded = fold([lead.events])
        ended = folded.processes[0].ended is not None
        found = lead.account(
            folded,
            None if end is None else end.wall_s,
            orderly=ended or (end is not None and end.complete),
        )
        known = replace(reading, steps=lead.ended_steps or None, step_s=step_s)
        if lead.tracked is not None:
            known = self._with_tracked(known, lead.tracked)
        return known if found is None else self._with_account(known, found)

    def _with_account(self, reading: MetricsSnapshot, found: Account) -> MetricsSnapshot:
        # Zero seconds of a category may be none, or none that anybody measured: not told.
        badput = {name: taken / 1e9 for name, taken in found.badput_ns.items() if taken}
        return replace(
            reading,
            goodput_s=None if found.goodput_ns is None else found.goodput_ns / 1e9,
            goodput=found.fraction,
            badput_s=self._labels.added_up(badput),
        )

    def _with_tracked(self, reading: MetricsSnapshot, run: RunTracked) -> MetricsSnapshot:
        last = {item.name: item.last for item in run.metrics if item.last is not None}
        return replace(
            reading,
            tracked=self._by_labels(run.name, last),
            tracked_per_s=self._by_labels(run.name, run.per_s),
        )

    def _by_labels(self, run: str, values: Mapping[str, float]) -> dict[tuple[str, str], float]:
        """Those that get labels of their own: a mean of other things would mean nothing."""
        told = {(self._runs.of(run), self._metrics.of(name)): v for name, v in values.items()}
        return {
            labels: value
            for labels, value in told.items()
            if OTHER not in labels and math.isfinite(value)
        }


def _lead(timeline: Timeline, processes: list[LiveProcess]) -> LiveProcess | None:
    """The process that the receipt would tell the steps of, were the run over now."""
    if not processes:
        return None
    newest = [
        replace(item.newest, process=place)
        for place, item in enumerate(processes)
        if item.newest is not None
    ]
    return processes[replace(timeline, steps=tuple(newest)).lead]


def _has_started(process: LiveProcess) -> bool:
    return any(isinstance(event, ProcessStarted) for event in process.events)


def _start_order(process: LiveProcess) -> tuple[bool, str, str]:
    started = next((item for item in process.events if isinstance(item, ProcessStarted)), None)
    return (started is None, started.started_utc if started else "", process.name)
