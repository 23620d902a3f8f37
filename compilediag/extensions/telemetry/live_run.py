"""A run in progress: the events of its processes as they arrive, and a snapshot at any time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from compilediag.diagnosis.figures.compile_seconds import compile_seconds
from compilediag.diagnosis.figures.goodput import CATEGORIES, is_recompile_time, recompile_ids
from compilediag.extensions.telemetry.labels import OTHER, Labels
from compilediag.extensions.telemetry.live_process import LiveProcess
from compilediag.extensions.telemetry.metrics import MetricsSnapshot
from compilediag.timeline.fold import fold
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Event, RunTracked


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How the run ended, as measured by its parent."""

    exit_code: int
    wall_s: float
    complete: bool
    """It ended by itself, with success."""


class LiveRun:
    """Accumulates the events of a run."""

    def __init__(self, started_unix: float, secrets: Iterable[str] = ()) -> None:
        secrets = tuple(secrets)
        self._started_unix = started_unix
        self._processes: dict[str, LiveProcess] = {}
        self._labels = Labels(CATEGORIES, secrets)
        self._run_labels, self._metric_labels = Labels((), secrets), Labels((), secrets)

    def add(self, events: Mapping[str, list[Event]]) -> None:
        """New events, by the name of their journal."""
        for name, new in events.items():
            self._processes.setdefault(name, LiveProcess(name)).add(new)

    def snapshot(
        self,
        at_unix: float,
        wall_s: float = 0.0,
        *,
        records_lost: int = 0,
        losses: Mapping[tuple[str, str], int] | None = None,
        end: RunEnd | None = None,
    ) -> MetricsSnapshot:
        """The state now. The mean step time is of the steps since the previous snapshot."""
        processes = sorted(self._processes.values(), key=LiveProcess.start_order)
        timeline = fold([item.events for item in processes])
        counts, ids = timeline.counts, recompile_ids(timeline)
        parts = compile_seconds(timeline.compiles)
        again = [item.seconds for item in timeline.compiles if is_recompile_time(item, ids)]
        snapshot = MetricsSnapshot(
            at_unix=at_unix,
            started_unix=self._started_unix,
            wall_s=wall_s if end is None else end.wall_s,
            active=end is None,
            exit_code=None if end is None else end.exit_code,
            processes=sum(item.started is not None for item in processes),
            frames=counts.frames,
            compiles=counts.compiles,
            recompiles=counts.recompiles,
            graph_breaks=counts.graph_breaks,
            compile_first_s=sum(item.seconds for item in timeline.compiles) - sum(again),
            compile_again_s=sum(again),
            compile_phase_s={} if parts is None else dict(parts.by_phase),
            records_lost=records_lost,
            losses=dict(losses or {}),
        )
        if records_lost or not processes:
            return snapshot
        return self._with_steps(snapshot, _lead(timeline, processes), end)

    def _with_steps(
        self, snapshot: MetricsSnapshot, lead: LiveProcess, end: RunEnd | None
    ) -> MetricsSnapshot:
        step_s = lead.take_mean_step_s()
        folded = fold([lead.events])
        ended = folded.processes[0].ended is not None
        snapshot = replace(snapshot, steps=lead.ended_steps or None, step_s=step_s)
        if lead.tracked is not None:
            snapshot = self._with_tracked(snapshot, lead.tracked)
        account = lead.account(
            folded,
            None if end is None else end.wall_s,
            orderly=ended or (end is not None and end.complete),
        )
        if account is None:
            return snapshot
        # Zero seconds of a category may mean none, or none that was measured: not exported.
        badput = {name: taken / 1e9 for name, taken in account.badput_ns.items() if taken}
        return replace(
            snapshot,
            goodput_s=None if account.goodput_ns is None else account.goodput_ns / 1e9,
            goodput=account.fraction,
            badput_s=self._labels.sum_by_label(badput),
        )

    def _with_tracked(self, snapshot: MetricsSnapshot, run: RunTracked) -> MetricsSnapshot:
        last = {item.name: item.last for item in run.metrics if item.last is not None}
        return replace(
            snapshot,
            tracked=self._by_labels(run.name, last),
            tracked_per_s=self._by_labels(run.name, run.per_s),
        )

    def _by_labels(self, run: str, values: Mapping[str, float]) -> dict[tuple[str, str], float]:
        """Those with labels of their own: a sum or mean of different metrics has no meaning."""
        labelled = {
            (self._run_labels.label(run), self._metric_labels.label(name)): value
            for name, value in values.items()
        }
        return {
            labels: value
            for labels, value in labelled.items()
            if OTHER not in labels and math.isfinite(value)
        }


def _lead(timeline: Timeline, processes: list[LiveProcess]) -> LiveProcess:
    """The process whose steps the receipt would report if the run were over now."""
    newest = [
        replace(item.newest, process=index)
        for index, item in enumerate(processes)
        if item.newest is not None
    ]
    return processes[replace(timeline, steps=tuple(newest)).lead]
