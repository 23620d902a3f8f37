"""Folds the events of a run's processes into one Timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from compilediag.timeline.breaks import break_sites
from compilediag.timeline.compiles import (
    caches_of,
    compile_memory_of,
    compiles_of,
    precompiled_of,
    rows_of,
    warm_calls_of,
)
from compilediag.timeline.devices import cudagraphs_of, devices_of, sample_of
from compilediag.timeline.fixed_shapes import fixed_shapes_of
from compilediag.timeline.frames import frames_of, newest_hazards, skipped_of
from compilediag.timeline.invocations import (
    held_states_of,
    invocations_of,
    outcomes_of,
    stance_calls_of,
    timed_calls_of,
)
from compilediag.timeline.process import ProcessEvents
from compilediag.timeline.recorded import TrainLog, groups_of, loops_of, newest_of
from compilediag.timeline.steps import (
    device_steps_of,
    disabled_calls_of,
    hooks_of,
    partial_phases_of,
    steps_of,
)
from compilediag.timeline.timeline import Process, TextLog, Timeline
from compilediag_harness.wire import (
    AblationWritten,
    CadenceDeclared,
    CallShadowed,
    CallsTimed,
    CollectivesPlanned,
    CompiledCallsMade,
    CompileMemoryRead,
    CudagraphsRan,
    DeviceMemoryRead,
    DeviceStepsTimed,
    DisabledCallsEnded,
    EagerStanceCalls,
    EnvironmentRead,
    Event,
    EvidenceLost,
    FaultOccurred,
    FixedShapeUsed,
    GuardsEvaluated,
    HazardsChecked,
    HooksFound,
    JournalLimited,
    OutputsSampled,
    PipelineWorked,
    ProcessEnded,
    ProcessStarted,
    ProfileEnded,
    RandomStateRead,
    RunTracked,
    SizesGuarded,
    SpanEnded,
    StateRead,
    StepsEnded,
    SyncsSampled,
    TorchSeen,
    TrackedRunsLeftOut,
    TrialApplied,
    UnguardedChanged,
    WarmCallsTimed,
    WarningSeen,
    Witnessed,
)

Kind = TypeVar("Kind")
Made = TypeVar("Made")


def fold(
    journals: Sequence[Iterable[Event]],
    text_log: TextLog | None = None,
    user_roots: Sequence[str] = (),
    train_log: TrainLog | None = None,
    counted_ranks: tuple[int, ...] = (),
    counted_compile_s: tuple[tuple[int, float], ...] = (),
) -> Timeline:
    """One Timeline of the events of every process, in the order of `journals`."""
    parts = [ProcessEvents.of_process(index, events) for index, events in enumerate(journals)]
    compiles = tuple(item for part in parts for item in compiles_of(part))

    def made(
        kind: type[Kind], make: Callable[[int, list[Kind]], Iterable[Made]]
    ) -> tuple[Made, ...]:
        """What the events of one kind make, process by process."""
        return tuple(
            item
            for part in parts
            if kind in part.by_kind
            for item in make(part.index, part.of(kind))
        )

    def every(kind: type[Kind]) -> tuple[Kind, ...]:
        return made(kind, lambda _, events: events)

    return Timeline(
        processes=tuple(_process(part) for part in parts),
        frames=tuple(frames_of(compiles)),
        compiles=compiles,
        ahead_of_time=tuple(item for part in parts for item in rows_of(part, ahead=True)),
        recompiles=tuple(item.recompile for item in compiles if item.recompile is not None),
        breaks=break_sites(parts, compiles, user_roots),
        caches=tuple(found for part in parts if (found := caches_of(part)) is not None),
        precompiled=tuple(item for part in parts for item in precompiled_of(part)),
        collectives=every(CollectivesPlanned),
        skipped=tuple(item for part in parts for item in skipped_of(part)),
        guarded_sizes=every(SizesGuarded),
        guard_sets=every(GuardsEvaluated),
        warm_calls=made(WarmCallsTimed, warm_calls_of),
        compile_memory=made(CompileMemoryRead, compile_memory_of),
        hazards=made(HazardsChecked, newest_hazards),
        unguarded=every(UnguardedChanged),
        warnings=every(WarningSeen),
        steps=tuple(item for part in parts for item in steps_of(part)),
        spans=every(SpanEnded),
        partial_phases=made(StepsEnded, partial_phases_of),
        device_steps=made(DeviceStepsTimed, device_steps_of),
        disabled_calls=made(DisabledCallsEnded, disabled_calls_of),
        hooks=made(HooksFound, hooks_of),
        syncs=made(SyncsSampled, lambda process, events: [sample_of(process, e) for e in events]),
        cadences=made(CadenceDeclared, groups_of),
        pipelines=made(PipelineWorked, loops_of),
        tracked=made(RunTracked, newest_of),
        tracked_left_out=sum(item.count for item in every(TrackedRunsLeftOut)),
        ablations=every(AblationWritten),
        invocations=made(CompiledCallsMade, invocations_of),
        stance_calls=made(EagerStanceCalls, stance_calls_of),
        device_memory=made(DeviceMemoryRead, devices_of),
        cudagraphs=made(CudagraphsRan, cudagraphs_of),
        fixed_shapes=made(FixedShapeUsed, fixed_shapes_of),
        profiles=every(ProfileEnded),
        witnessed=every(Witnessed),
        trial_applied=made(TrialApplied, outcomes_of),
        answers=every(OutputsSampled),
        timed_calls=made(CallsTimed, timed_calls_of),
        shadowed_calls=every(CallShadowed),
        held_states=made(StateRead, held_states_of),
        random_states=every(RandomStateRead),
        lost=every(EvidenceLost),
        faults=every(FaultOccurred),
        text_log=text_log,
        train_log=train_log,
        counted_ranks=counted_ranks,
        counted_compile_s=counted_compile_s,
        user_roots=tuple(user_roots),
    )


def _process(part: ProcessEvents) -> Process:
    facts = {name: fact for read in part.of(EnvironmentRead) for name, fact in read.facts.items()}
    started, ended = part.last(ProcessStarted), part.last(ProcessEnded)
    limited = part.last(JournalLimited)
    limit_bytes = limited.limit_bytes if limited is not None else None
    return Process(part.index, started, part.last(TorchSeen), facts, ended, limit_bytes)
