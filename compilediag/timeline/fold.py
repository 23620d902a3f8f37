"""Folds the events of a run's processes into one Timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from compilediag.timeline import fold_timings as timings
from compilediag.timeline.cadence import groups_of
from compilediag.timeline.compiles import CollectiveSchedule
from compilediag.timeline.cudagraphs import cudagraphs_of
from compilediag.timeline.fixed_shapes import fixed_shapes_of
from compilediag.timeline.fold_breaks import break_sites
from compilediag.timeline.fold_compiles import compiles_of
from compilediag.timeline.fold_frames import frames_of, hazards_of, skipped_of
from compilediag.timeline.invocations import invocations_of
from compilediag.timeline.memory import devices_of
from compilediag.timeline.pipelines import loops_of
from compilediag.timeline.process import ProcessEvents
from compilediag.timeline.steps import SyncSample
from compilediag.timeline.syncs import sample_of
from compilediag.timeline.timeline import Process, TextLog, Timeline
from compilediag.timeline.tracked import tracked_of
from compilediag.timeline.train_log import TrainLog
from compilediag_harness.wire import (
    AblationWritten,
    CadenceDeclared,
    CollectivesPlanned,
    CompiledCallsMade,
    CudagraphsRan,
    DeviceMemoryRead,
    DeviceStepsTimed,
    DisabledCallsEnded,
    EnvironmentRead,
    Event,
    EvidenceLost,
    FaultOccurred,
    FixedShapeUsed,
    HazardsChecked,
    HooksFound,
    PipelineWorked,
    ProcessEnded,
    ProcessStarted,
    ProfileEnded,
    RunTracked,
    SpanEnded,
    StepsEnded,
    SyncsSampled,
    TorchSeen,
    TrackedRunsLeftOut,
    UnguardedChanged,
    WarningSeen,
)

Kind = TypeVar("Kind")
Made = TypeVar("Made")


def fold(
    journals: Sequence[Iterable[Event]],
    text_log: TextLog | None = None,
    user_roots: Sequence[str] = (),
    train_log: TrainLog | None = None,
    counted_ranks: tuple[int, ...] = (),
) -> Timeline:
    """One Timeline of the events of every process, in the order of `journals`."""
    parts = [ProcessEvents.of_process(index, events) for index, events in enumerate(journals)]
    made = [(part, compiles_of(part)) for part in parts]
    compiles = tuple(item for _, own in made for item in own)
    told = _Told(parts)
    return Timeline(
        processes=tuple(_process(part) for part in parts),
        frames=tuple(frame for part, own in made for frame in frames_of(part, own)),
        compiles=compiles,
        recompiles=tuple(item.recompile for item in compiles if item.recompile is not None),
        breaks=break_sites(parts),
        collectives=told.made(CollectivesPlanned, _schedules),
        skipped=tuple(item for part in parts for item in skipped_of(part)),
        hazards=told.made(HazardsChecked, hazards_of),
        unguarded=told.all(UnguardedChanged),
        warnings=told.all(WarningSeen),
        steps=tuple(item for part in parts for item in timings.steps(part)),
        step_source=told.last(StepsEnded, lambda batch: batch.source),
        spans=told.all(SpanEnded),
        span_processes=told.made(SpanEnded, lambda process, spans: [process] * len(spans)),
        partial_phases=told.made(StepsEnded, timings.partial_phases),
        device_steps=told.made(DeviceStepsTimed, timings.device_steps),
        disabled_calls=told.made(DisabledCallsEnded, timings.disabled_calls),
        hooks=told.made(HooksFound, timings.hooks),
        syncs=told.made(SyncsSampled, _samples),
        cadences=told.made(CadenceDeclared, groups_of),
        pipelines=told.made(PipelineWorked, loops_of),
        tracked=told.made(RunTracked, tracked_of),
        tracked_left_out=sum(item.count for item in told.all(TrackedRunsLeftOut)),
        ablations=told.all(AblationWritten),
        invocations=told.made(CompiledCallsMade, invocations_of),
        device_memory=told.made(DeviceMemoryRead, devices_of),
        cudagraphs=told.made(CudagraphsRan, cudagraphs_of),
        fixed_shapes=told.made(FixedShapeUsed, fixed_shapes_of),
        profiles=told.all(ProfileEnded),
        lost=told.all(EvidenceLost),
        faults=told.all(FaultOccurred),
        text_log=text_log,
        train_log=train_log,
        counted_ranks=counted_ranks,
        user_roots=tuple(user_roots),
    )


class _Told:
    """The events of all processes by kind, process by process."""

    def __init__(self, parts: Sequence[ProcessEvents]) -> None:
        self._parts = parts

    def all(self, kind: type[Kind]) -> tuple[Kind, ...]:
        return self.made(kind, lambda _, told: told)

    def made(
        self, kind: type[Kind], make: Callable[[int, list[Kind]], Iterable[Made]]
    ) -> tuple[Made, ...]:
        """What the events of one kind make, of the processes that told any."""
        heard = [part for part in self._parts if kind in part.by_kind]
        if not heard:
            return ()
        return tuple(item for part in heard for item in make(part.index, part.of(kind)))

    def last(self, kind: type[Kind], read: Callable[[Kind], Made]) -> Made | None:
        """What the last event of a kind says, of the last process that told any."""
        told = self.all(kind)
        return read(told[-1]) if told else None


def _process(part: ProcessEvents) -> Process:
    facts = {name: fact for told in part.of(EnvironmentRead) for name, fact in told.facts.items()}
    started, ended = part.last(ProcessStarted), part.last(ProcessEnded)
    return Process(part.index, started, part.last(TorchSeen), facts, ended)


def _schedules(process: int, events: Iterable[CollectivesPlanned]) -> list[CollectiveSchedule]:
    return [
        CollectiveSchedule(process, item.compile_id, item.epoch, item.operations) for item in events
    ]


def _samples(process: int, events: Iterable[SyncsSampled]) -> list[SyncSample]:
    return [sample_of(process, item) for item in events]
