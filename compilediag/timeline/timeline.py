"""Events folded into frames, compiles, steps and spans.

Pure: no files, no clock, no torch. The same events give the same Timeline, whether they come
live from a journal, from `watch()` in a test, or from an old TORCH_TRACE file. A run of several
processes is one Timeline: `process` (an index, 0 for the first) keeps their frames apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

from compilediag.receipt.schema.compiles import CompileGrowth, Counts
from compilediag.timeline.compiles import (
    Compile,
    CompileId,
    Precompiled,
    ProcessCaches,
    Recompile,
    TimedWarmCalls,
    caches_of,
    compile_memory_of,
    compiles_of,
    precompiled_of,
    rows_of,
    warm_calls_of,
)
from compilediag.timeline.devices import (
    CudagraphRun,
    DeviceUse,
    SampledStep,
    cudagraphs_of,
    devices_of,
    samples_of,
)
from compilediag.timeline.fixed_shapes import FixedShapeRun, fixed_shapes_of
from compilediag.timeline.frames import (
    BreakSite,
    Frame,
    break_sites,
    counts_of,
    frames_of,
    skipped_of,
)
from compilediag.timeline.invocations import (
    Calls,
    CallsOutside,
    DeviceStep,
    ModuleHook,
    PartialPhase,
    StanceCalls,
    Step,
    TimedCalls,
    device_steps_of,
    disabled_calls_of,
    held_states_of,
    hooks_of,
    invocations_of,
    partial_phases_of,
    stance_calls_of,
    steps_of,
    timed_calls_of,
)
from compilediag.timeline.process import ProcessEvents
from compilediag.timeline.recorded import (
    CadenceGroup,
    PipelineLoop,
    TrainLog,
    groups_of,
    loops_of,
    newest_of,
)
from compilediag_harness import wire

Kind = TypeVar("Kind")


@dataclass(slots=True)
class TextLog:
    """Counts of the text log of the run (TORCH_LOGS), made independently of the events."""

    recompiling_lines: int = 0
    """"Recompiling function" messages: one more than the real recompiles per frame at the limit."""
    limit_warnings: int = 0
    break_sites: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    profile_uses: tuple[str, ...] = ()
    """Messages about a stored dynamic-shape profile in use."""
    log_lines: int = 0
    """Lines that carry the prefix of torch's log."""
    unknown_lines: int = 0
    """Lines about recompiles or breaks that the reader could not understand: never ignored."""
    torn: bool = False
    lines_left_out: int = 0
    """Lines in the middle of long messages that are not in the log: they were counted instead."""
    over_limit: bool = False
    """Messages of some process are not in the log: it cannot be held against the events."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the run, as its journal has it."""

    index: int
    started: wire.ProcessStarted | None
    torch: wire.TorchSeen | None
    facts: dict[str, object]
    ended: wire.ProcessEnded | None
    journal_limit_bytes: int | None = None
    """Size of its journal above which only what counts are made of was recorded; None where it
    stayed below."""

    @property
    def rank(self) -> int | None:
        """The rank a launcher gave it; None where there was no launcher."""
        return self.started.rank if self.started is not None else None


def _of_parts(make: Callable[[ProcessEvents], Iterable[Any]]) -> Any:
    """Declare a field of a Timeline: what `make` collects from each process, one after the other.
    `fold` fills it."""
    return field(default=(), metadata={"make": make})


def _made(kind: type[Kind], make: Callable[[int, list[Kind]], Iterable[Any]]) -> Any:
    """Declare the same of the events of one kind, where there are any."""
    return _of_parts(lambda part: make(part.index, part.of(kind)) if part.of(kind) else ())


def _every(kind: type) -> Any:
    """Declare a field of the events of one kind as they are."""
    return _of_parts(lambda part: part.of(kind))


def _last(kind: type[Kind], key: Callable[[Kind], object]) -> Any:
    """Declare a field of the events of one kind, of those with the same key the last."""
    return _of_parts(lambda part: {key(event): event for event in part.of(kind)}.values())


@dataclass(frozen=True)
class Timeline:
    """One run, folded. Sequences are in time order."""

    processes: tuple[Process, ...] = _of_parts(lambda part: [_process(part)])
    frames: tuple[Frame, ...] = ()
    compiles: tuple[Compile, ...] = _of_parts(compiles_of)
    ahead_of_time: tuple[wire.Compiled, ...] = _of_parts(lambda part: rows_of(part, ahead=True))
    """What was compiled for no frame of this process: `torch.export`, AOTInductor. It has no guard,
    cannot recompile and never runs eager; it is in no count but that of torch's rows."""
    recompiles: tuple[Recompile, ...] = ()
    """Every time torch recorded that no cache entry fits; `produced` is False at the limit."""
    breaks: tuple[BreakSite, ...] = ()
    caches: tuple[ProcessCaches, ...] = _of_parts(caches_of)
    precompiled: tuple[Precompiled, ...] = _of_parts(precompiled_of)
    """Of the processes that looked into a compile cache, as far as that was recorded."""
    collectives: tuple[wire.CollectivesPlanned, ...] = _every(wire.CollectivesPlanned)
    skipped: tuple[wire.FrameSkipped, ...] = _of_parts(skipped_of)
    """Frames that have no metrics row of their own, each once."""
    guarded_sizes: tuple[wire.SizesGuarded, ...] = _every(wire.SizesGuarded)
    guard_sets: tuple[wire.GuardsEvaluated, ...] = _every(wire.GuardsEvaluated)
    warm_calls: tuple[TimedWarmCalls, ...] = _made(wire.WarmCallsTimed, warm_calls_of)
    compile_memory: tuple[CompileGrowth, ...] = _made(wire.CompileMemoryRead, compile_memory_of)
    hazards: tuple[wire.HazardsChecked, ...] = _last(wire.HazardsChecked, lambda event: event.frame)
    unguarded: tuple[wire.UnguardedChanged, ...] = _every(wire.UnguardedChanged)
    warnings: tuple[wire.WarningSeen, ...] = _every(wire.WarningSeen)
    steps: tuple[Step, ...] = _of_parts(steps_of)
    spans: tuple[wire.SpanEnded, ...] = _every(wire.SpanEnded)
    cadences: tuple[CadenceGroup, ...] = _made(wire.CadenceDeclared, groups_of)
    pipelines: tuple[PipelineLoop, ...] = _made(wire.PipelineWorked, loops_of)
    tracked: tuple[wire.RunTracked, ...] = _made(wire.RunTracked, newest_of)
    """Each run as it was recorded last, in the order in which they began."""
    tracked_left_out: int = 0
    ablations: tuple[wire.AblationWritten, ...] = _every(wire.AblationWritten)
    invocations: tuple[Calls, ...] = _made(wire.CompiledCallsMade, invocations_of)
    stance_calls: tuple[StanceCalls, ...] = _made(wire.EagerStanceCalls, stance_calls_of)
    device_memory: tuple[DeviceUse, ...] = _made(wire.DeviceMemoryRead, devices_of)
    fixed_shapes: tuple[FixedShapeRun, ...] = _made(wire.FixedShapeUsed, fixed_shapes_of)
    cudagraphs: tuple[CudagraphRun, ...] = _made(wire.CudagraphsRan, cudagraphs_of)
    """Of the processes that recorded anything about CUDA graphs."""
    profiles: tuple[wire.ProfileEnded, ...] = _every(wire.ProfileEnded)
    partial_phases: tuple[PartialPhase, ...] = _made(wire.StepsEnded, partial_phases_of)
    device_steps: tuple[DeviceStep, ...] = _made(wire.DeviceStepsTimed, device_steps_of)
    """Fewer than `steps`: those whose events the device had passed."""
    disabled_calls: tuple[CallsOutside, ...] = _made(wire.DisabledCallsEnded, disabled_calls_of)
    hooks: tuple[ModuleHook, ...] = _made(wire.HooksFound, hooks_of)
    syncs: tuple[SampledStep, ...] = _made(wire.SyncsSampled, samples_of)
    """Of the sampled steps only."""
    witnessed: tuple[wire.Witnessed, ...] = _every(wire.Witnessed)
    """One of each process whose lines were followed, or were to be."""
    trial_applied: tuple[wire.TrialApplied, ...] = _last(
        wire.TrialApplied, lambda event: event.change
    )
    """Of a trial: each part of its plan that a process came to."""
    answers: tuple[wire.OutputsSampled, ...] = _every(wire.OutputsSampled)
    timed_calls: tuple[TimedCalls, ...] = _made(wire.CallsTimed, timed_calls_of)
    """Of a trial that times calls: those of sampled steps."""
    shadowed_calls: tuple[wire.CallShadowed, ...] = _every(wire.CallShadowed)
    """Of a trial that makes sampled calls eager beside them."""
    held_states: tuple[wire.StateRead, ...] = _made(wire.StateRead, held_states_of)
    random_states: tuple[wire.RandomStateRead, ...] = _every(wire.RandomStateRead)
    lost: tuple[wire.EvidenceLost, ...] = _every(wire.EvidenceLost)
    faults: tuple[wire.FaultOccurred, ...] = _every(wire.FaultOccurred)
    text_log: TextLog | None = None
    train_log: TrainLog | None = None
    """What a trainer printed of its own steps."""
    counted_ranks: tuple[int, ...] = ()
    """Ranks that are in no other field but the next, ascending: there was no room for them."""
    counted_compile_s: tuple[tuple[int, float], ...] = ()
    """Their compile seconds, by rank."""
    user_roots: tuple[str, ...] = ()
    """Folders whose files are the user's own (the working directory, the script's folder)."""

    @cached_property
    def lead(self) -> int:
        """Index of the process whose step times and wall time stand for the run: the lowest rank
        that made steps, else that compiled, else that imported torch. Ranks do the same work side
        by side: their seconds are not added up."""
        steppers = {step.process for step in self.steps}
        compilers = {attempt.process for attempt in self.compiles}
        importers = {process.index for process in self.processes if process.torch is not None}
        ranks = {process.index: process.rank or 0 for process in self.processes}
        candidates = steppers or compilers or importers
        if candidates:
            return min(candidates, key=lambda index: (ranks.get(index, 0), index))
        return self.processes[0].index if self.processes else 0

    @cached_property
    def counts(self) -> Counts:
        """Frames, compiles, recompiles, breaks and fallbacks of all processes."""
        return counts_of(self.frames, self.compiles, self.breaks)

    @cached_property
    def size_guards(self) -> dict[CompileId, tuple[wire.SizeGuard, ...]]:
        """The conditions on dynamic sizes of each compile that has any, in their order. Those of
        exports stand under the compile id ""."""
        guards: dict[CompileId, tuple[wire.SizeGuard, ...]] = {}
        for item in self.guarded_sizes:  # a backward, compiled later, adds to its forward's
            key = CompileId(item.process, item.epoch, item.compile_id)
            guards[key] = (*guards.get(key, ()), *item.guards)
        return guards

    def observes(self, hook: str) -> bool:
        """Whether the record of some process can hold this at all: that of a live run everything,
        a trace no steps, a text log no metrics. `hook`: a key of `TorchSeen.hooks`."""
        torches = [item.torch for item in self.processes if item.torch is not None]
        return not torches or any(torch.hooks.get(hook, True) for torch in torches)

    @property
    def counted_recompiles(self) -> tuple[Recompile, ...]:
        """The recompiles that count: a failed guard, and guarded code at the end."""
        return tuple(item for item in self.recompiles if item.produced)


# Invariant: a maker sees one process; what needs several (frames, breaks) is made in `fold`.
_MAKERS = {each.name: each.metadata["make"] for each in fields(Timeline) if each.metadata}


def fold(
    journals: Sequence[Iterable[wire.Event]],
    text_log: TextLog | None = None,
    user_roots: Sequence[str] = (),
    train_log: TrainLog | None = None,
    counted_ranks: tuple[int, ...] = (),
    counted_compile_s: tuple[tuple[int, float], ...] = (),
) -> Timeline:
    """Fold the events of every process, in the order of `journals`, into one Timeline."""
    parts = [ProcessEvents.of_process(index, events) for index, events in enumerate(journals)]
    made = {
        name: tuple(item for part in parts for item in make(part)) for name, make in _MAKERS.items()
    }
    compiles: tuple[Compile, ...] = made["compiles"]
    return Timeline(
        **made,
        frames=tuple(frames_of(compiles)),
        recompiles=tuple(item.recompile for item in compiles if item.recompile is not None),
        breaks=break_sites(parts, compiles, user_roots),
        tracked_left_out=sum(
            item.count for part in parts for item in part.of(wire.TrackedRunsLeftOut)
        ),
        text_log=text_log,
        train_log=train_log,
        counted_ranks=counted_ranks,
        counted_compile_s=counted_compile_s,
        user_roots=tuple(user_roots),
    )


def _process(part: ProcessEvents) -> Process:
    facts = {
        name: fact for read in part.of(wire.EnvironmentRead) for name, fact in read.facts.items()
    }
    started, ended = part.last(wire.ProcessStarted), part.last(wire.ProcessEnded)
    limited = part.last(wire.JournalLimited)
    limit_bytes = limited.limit_bytes if limited is not None else None
    return Process(part.index, started, part.last(wire.TorchSeen), facts, ended, limit_bytes)


def ranks_present(timeline: Timeline) -> tuple[int, ...]:
    """List the ranks whose journals arrived; without a launcher the one process is rank 0."""
    started = [process for process in timeline.processes if process.started is not None]
    ranks = {process.rank for process in started if process.rank is not None}
    ranks.update(timeline.counted_ranks)
    if not ranks and started:
        return (0,)
    return tuple(sorted(ranks))


def lead_process(timeline: Timeline) -> Process | None:
    """Find the process that most of a receipt is about; None without a process."""
    return next((item for item in timeline.processes if item.index == timeline.lead), None)


def spans_of(timeline: Timeline, process: int) -> Iterator[wire.SpanEnded]:
    """Select the spans of one process."""
    return (span for span in timeline.spans if span.process == process)


def world_size(timeline: Timeline) -> int | None:
    """Find the largest world size a process recorded; None where there was no launcher."""
    started = [process.started for process in timeline.processes if process.started is not None]
    return max((each.world_size for each in started if each.world_size is not None), default=None)
