"""A run in progress: the events of its processes as they arrive, and a snapshot at any time.

Memory does not grow with the steps: steps and spans are stored until their time can be settled
(`goodput.settle`); later accounts continue from there, and equal the account of all events.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from compilediag.diagnosis.figures.compile_costs import sum_compile_seconds
from compilediag.diagnosis.figures.goodput import (
    CATEGORIES,
    MAIN_THREAD,
    PRODUCTIVE,
    Account,
    Settled,
    compute_account,
    make_recompile_test,
    settle,
)
from compilediag.extensions.telemetry.metrics import OTHER, Labels, MetricsSnapshot
from compilediag.readers.journal import order_start
from compilediag.runs.supervised.child import ExitInfo
from compilediag.timeline.process import unpack_batches
from compilediag.timeline.timeline import Compile, Step, Timeline, fold
from compilediag_harness import wire

UNSETTLED_STEPS = 10_000
"""Newest steps whose time stays unsettled: a span may end late and cover many of them."""

MAX_UNSETTLED = 100_000
"""Steps and spans that are stored when they cannot be settled; beyond, the account is dropped."""

_NS = 1_000_000_000


@dataclass(slots=True)
class LiveProcess:
    """The events of one process that were read so far."""

    name: str
    """Of its journal."""
    started: wire.ProcessStarted | None = None
    events: list[wire.Event] = field(default_factory=list[wire.Event])
    """Those that `fold` turns into compiles, and the process's start and end."""
    steps: list[Step] = field(default_factory=list[Step])
    newest: Step | None = None
    spans: list[wire.SpanEnded] = field(default_factory=list[wire.SpanEnded])
    settled: Settled | None = None
    ended_steps: int = 0
    newest_s: float = 0.0
    newest_steps: int = 0
    """Sum and count of the steps that ended since `take_mean_step_s`."""
    tracked: wire.RunTracked | None = None
    """The last record of a `tracker()` of the program."""
    account_lost: bool = False
    """A span or a compile reached back into settled time: there is no account any more."""

    def add(self, events: Iterable[wire.Event]) -> None:
        """Add new events of the journal."""
        for event in unpack_batches(events):
            if isinstance(event, wire.ProcessStarted):
                self.started = self.started or event
            match event:
                case wire.StepsEnded():
                    self._take_steps(event)
                case wire.SpanEnded():
                    self._take_span(event)
                case wire.RunTracked():
                    self.tracked = event
                case wire.Recompiled():
                    self.events.append(replace(event, entries=()))
                case (
                    wire.Compiled()
                    | wire.GraphBroke()
                    | wire.ProcessStarted()
                    | wire.ProcessEnded()
                    | wire.TorchSeen()
                ):
                    self.events.append(event)
                case _:
                    pass
        if len(self.steps) + len(self.spans) > MAX_UNSETTLED:
            self._drop_account()

    def _take_steps(self, batch: wire.StepsEnded) -> None:
        walls = batch.list_walls()
        for offset, (end, wall_s) in enumerate(zip(batch.ends, walls, strict=False)):
            waited = batch.data_wait[offset] if offset < len(batch.data_wait) else None
            step = Step(0, batch.first + offset, end, wall_s, waited, None, None, 0.0)
            self.ended_steps += 1
            self.newest_s += wall_s
            self.newest_steps += 1
            self.newest = step
            if not self.account_lost:
                self.steps.append(step)

    def _take_span(self, span: wire.SpanEnded) -> None:
        if span.thread != MAIN_THREAD or span.name in PRODUCTIVE or self.account_lost:
            return
        if self.settled is not None and round(span.start * _NS) < self.settled.until_ns:
            self._drop_account()
        else:
            self.spans.append(span)

    def _drop_account(self) -> None:
        """Drop the account for good: none is better than a wrong one."""
        self.account_lost = True
        self.steps, self.spans, self.settled = [], [], None

    def take_mean_step_s(self) -> float | None:
        """Take the mean seconds of the steps since the previous call; None where none ended."""
        mean = self.newest_s / self.newest_steps if self.newest_steps else None
        self.newest_s, self.newest_steps = 0.0, 0
        return mean

    def compute_account(
        self, folded: Timeline, wall_s: float | None, *, orderly: bool
    ) -> Account | None:
        """Compute where the time went; None where it is not known. `folded`: timeline of `events`;
        `wall_s`: measured by the parent, once the run has ended; `orderly`: as in `goodput`."""
        if self.settled is not None:
            until = self.settled.until_ns
            spans = (
                (round(_compute_begin_s(event) * _NS), round(event.t * _NS))
                for event in folded.compiles
            )
            if any(begin < until < end for begin, end in spans):  # it reaches back into that time
                self._drop_account()
        if self.account_lost:
            return None
        self._settle_old(folded)
        timeline = replace(folded, steps=tuple(self.steps), spans=tuple(self.spans))
        return compute_account(timeline, wall_s, orderly=orderly, settled=self.settled)

    def _settle_old(self, folded: Timeline) -> None:
        """Settle the time of the older half, when twice `UNSETTLED_STEPS` are stored."""
        if len(self.steps) < 2 * UNSETTLED_STEPS:
            return
        cut = self.steps[len(self.steps) - UNSETTLED_STEPS - 1].end
        cut_ns, index = round(cut * _NS), bisect_right(self.steps, cut, key=lambda step: step.end)
        old = [span for span in self.spans if _compute_end_ns(span) <= cut_ns]
        young = [span for span in self.spans if _compute_end_ns(span) > cut_ns]
        compiles = [event for event in folded.compiles if round(event.t * _NS) <= cut_ns]
        later = [round(_compute_begin_s(event) * _NS) for event in folded.compiles[len(compiles) :]]
        # Invariant: no span or compile crosses the cut, or its time would count on both sides.
        if min([round(span.start * _NS) for span in young] + later, default=cut_ns) < cut_ns:
            return  # not here: the next snapshot cuts elsewhere
        before = Timeline(
            processes=tuple(replace(process, ended=None) for process in folded.processes),
            compiles=tuple(compiles),
            steps=tuple(self.steps[:index]),
            spans=tuple(old),
        )
        done = settle(before, cut_ns, self.settled)
        if done is not None:
            self.settled, self.spans = done, young
            del self.steps[:index]


class LiveRun:
    """The events of a run, accumulated."""

    def __init__(self, started_unix: float, secrets: Iterable[str] = ()) -> None:
        secrets = tuple(secrets)
        self._started_unix = started_unix
        self._processes: dict[str, LiveProcess] = {}
        self._labels = Labels(CATEGORIES, secrets)
        self._run_labels, self._metric_labels = Labels((), secrets), Labels((), secrets)

    def add(self, events: Mapping[str, list[wire.Event]]) -> None:
        """Add new events, by the name of their journal."""
        for name, new in events.items():
            self._processes.setdefault(name, LiveProcess(name)).add(new)

    def take_snapshot(
        self,
        at_unix: float,
        wall_s: float = 0.0,
        *,
        records_lost: int = 0,
        losses: Mapping[tuple[str, str], int] | None = None,
        end: ExitInfo | None = None,
    ) -> MetricsSnapshot:
        """Take the state now. The mean step time is of the steps since the previous snapshot."""
        processes = sorted(self._processes.values(), key=lambda p: order_start(p.started, p.name))
        timeline = fold([process.events for process in processes])
        counts, is_again = timeline.counts, make_recompile_test(timeline)
        parts = sum_compile_seconds(timeline.compiles)
        total_s = sum(event.seconds for event in timeline.compiles)
        again = [event.seconds for event in timeline.compiles if is_again(event)]
        snapshot = MetricsSnapshot(
            at_unix=at_unix,
            started_unix=self._started_unix,
            wall_s=wall_s if end is None else end.wall_s,
            active=end is None,
            exit_code=None if end is None else end.exit_code,
            processes=sum(process.started is not None for process in processes),
            frames=counts.frames,
            compiles=counts.compiles,
            recompiles=counts.recompiles,
            graph_breaks=counts.graph_breaks,
            compile_s={"first": total_s - sum(again), "recompile": sum(again)},
            compile_phase_s={} if parts is None else dict(parts.by_phase),
            records_lost=records_lost,
            losses=dict(losses or {}),
        )
        if records_lost or not processes:
            return snapshot
        # The process whose steps the receipt would report if the run were over now.
        newest = [
            replace(process.newest, process=index)
            for index, process in enumerate(processes)
            if process.newest is not None
        ]
        lead = processes[replace(timeline, steps=tuple(newest)).lead]
        return self._add_steps(snapshot, lead, end)

    def _add_steps(
        self, snapshot: MetricsSnapshot, lead: LiveProcess, end: ExitInfo | None
    ) -> MetricsSnapshot:
        step_s = lead.take_mean_step_s()
        folded = fold([lead.events])
        ended = folded.processes[0].ended is not None
        by_itself = end is not None and not (end.returncode or end.interrupts or end.timed_out)
        snapshot = replace(snapshot, steps=lead.ended_steps or None, step_s=step_s)
        if (run := lead.tracked) is not None:
            last = {metric.name: metric.last for metric in run.metrics if metric.last is not None}
            snapshot = replace(
                snapshot,
                tracked=self._label_values(run.name, last),
                tracked_per_s=self._label_values(run.name, run.per_s),
            )
        account = lead.compute_account(
            folded,
            None if end is None else end.wall_s,
            orderly=ended or by_itself,
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

    def _label_values(self, run: str, values: Mapping[str, float]) -> dict[tuple[str, str], float]:
        """Label values that get a label of their own: a sum of different metrics has no meaning."""
        labelled = {
            (self._run_labels.make_label(run), self._metric_labels.make_label(name)): value
            for name, value in values.items()
        }
        return {
            labels: value
            for labels, value in labelled.items()
            if OTHER not in labels and math.isfinite(value)
        }


def _compute_end_ns(span: wire.SpanEnded) -> int:
    return round((span.start + span.wall_s) * _NS)


def _compute_begin_s(event: Compile) -> float:
    analysis_s = event.recompile.analysis_s if event.recompile is not None else 0.0
    return event.t - event.seconds - analysis_s
