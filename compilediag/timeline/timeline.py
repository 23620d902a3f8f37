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

from compilediag.receipt.schema.compiles import Counts
from compilediag.timeline.compiles import (
    Compile,
    CompileId,
    ProcessCaches,
    Recompile,
    TimedWarmCalls,
    collect_caches,
    collect_compiles,
    collect_warm_calls,
    select_rows,
)
from compilediag.timeline.devices import (
    CudagraphRun,
    DeviceUse,
    SampledStep,
    collect_cudagraphs,
    collect_devices,
    collect_samples,
)
from compilediag.timeline.fixed_shapes import FixedShapeRun, collect_fixed_shapes
from compilediag.timeline.frames import (
    BreakSite,
    Frame,
    collect_breaks,
    collect_frames,
    collect_skipped,
    compute_counts,
)
from compilediag.timeline.invocations import (
    Calls,
    CallsOutside,
    StanceCalls,
    Step,
    TimedCalls,
    collect_disabled_calls,
    collect_held_states,
    collect_invocations,
    collect_stance_calls,
    collect_steps,
    collect_timed_calls,
)
from compilediag.timeline.process import ProcessEvents
from compilediag.timeline.recorded import (
    CadenceGroup,
    PipelineLoop,
    TrainLog,
    collect_cadences,
    collect_loops,
    select_newest_runs,
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
    """Size of its journal above which only counts were recorded; None where it stayed below."""

    @property
    def rank(self) -> int | None:
        """The rank a launcher gave it; None where there was no launcher."""
        return self.started.rank if self.started is not None else None


def _declare(make: Callable[[ProcessEvents], Iterable[Any]]) -> Any:
    """Declare a field of a Timeline: `make` collects it from each process; `fold` fills it."""
    return field(default=(), metadata={"make": make})


def _collect(kind: type[Kind], make: Callable[[int, list[Kind]], Iterable[Any]]) -> Any:
    """Declare the same of the events of one kind, where there are any."""
    return _declare(lambda part: make(part.index, part.get_all(kind)) if part.get_all(kind) else ())


def _collect_every(kind: type) -> Any:
    """Declare a field of the events of one kind as they are."""
    return _declare(lambda part: part.get_all(kind))


def _collect_last(kind: type[Kind], key: Callable[[Kind], object]) -> Any:
    """Declare a field of the events of one kind, of those with the same key the last."""
    return _declare(lambda part: {key(event): event for event in part.get_all(kind)}.values())


@dataclass(frozen=True)
class Timeline:
    """One run, folded. Sequences are in time order."""

    processes: tuple[Process, ...] = _declare(lambda part: [_make_process(part)])
    frames: tuple[Frame, ...] = ()
    compiles: tuple[Compile, ...] = _declare(collect_compiles)
    ahead_of_time: tuple[wire.Compiled, ...] = _declare(lambda part: select_rows(part, ahead=True))
    """What was compiled for no frame of this process: `torch.export`, AOTInductor. It has no guard,
    cannot recompile and never runs eager; it is in no count but that of torch's rows."""
    recompiles: tuple[Recompile, ...] = ()
    """Every time torch recorded that no cache entry fits; `produced` is False at the limit."""
    served: tuple[wire.EntryServed, ...] = _collect_every(wire.EntryServed)
    """Cache entries of frames that were compiled again, once each after each recompile."""
    breaks: tuple[BreakSite, ...] = ()
    caches: tuple[ProcessCaches, ...] = _declare(collect_caches)
    """Of the processes that looked into a compile cache, as far as that was recorded."""
    collectives: tuple[wire.CollectivesPlanned, ...] = _collect_every(wire.CollectivesPlanned)
    skipped: tuple[wire.FrameSkipped, ...] = _declare(collect_skipped)
    """Frames that have no metrics row of their own, each once."""
    guarded_sizes: tuple[wire.SizesGuarded, ...] = _collect_every(wire.SizesGuarded)
    guard_sets: tuple[wire.GuardsEvaluated, ...] = _collect_every(wire.GuardsEvaluated)
    warm_calls: tuple[TimedWarmCalls, ...] = _collect(wire.WarmCallsTimed, collect_warm_calls)
    guarded_inputs: tuple[wire.InputsGuarded, ...] = _collect_every(wire.InputsGuarded)
    risk_checks: tuple[wire.HazardsChecked, ...] = _collect_last(
        wire.HazardsChecked, lambda event: event.frame
    )
    unguarded: tuple[wire.UnguardedChanged, ...] = _collect_every(wire.UnguardedChanged)
    lost_effects: tuple[wire.EffectLost, ...] = _collect_every(wire.EffectLost)
    warnings: tuple[wire.WarningSeen, ...] = _collect_every(wire.WarningSeen)
    steps: tuple[Step, ...] = _declare(collect_steps)
    spans: tuple[wire.SpanEnded, ...] = _collect_every(wire.SpanEnded)
    cadences: tuple[CadenceGroup, ...] = _collect(wire.CadenceDeclared, collect_cadences)
    pipelines: tuple[PipelineLoop, ...] = _collect(wire.PipelineWorked, collect_loops)
    tracked: tuple[wire.RunTracked, ...] = _collect(wire.RunTracked, select_newest_runs)
    """Each run as it was recorded last, in the order in which they began."""
    tracked_left_out: int = 0
    ablations: tuple[wire.AblationWritten, ...] = _collect_every(wire.AblationWritten)
    invocations: tuple[Calls, ...] = _collect(wire.CompiledCallsMade, collect_invocations)
    stance_calls: tuple[StanceCalls, ...] = _collect(wire.EagerStanceCalls, collect_stance_calls)
    device_memory: tuple[DeviceUse, ...] = _collect(wire.DeviceMemoryRead, collect_devices)
    fixed_shapes: tuple[FixedShapeRun, ...] = _collect(wire.FixedShapeUsed, collect_fixed_shapes)
    cudagraphs: tuple[CudagraphRun, ...] = _collect(wire.CudagraphsRan, collect_cudagraphs)
    """Of the processes that recorded anything about CUDA graphs."""
    """Fewer than `steps`: those whose events the device had passed."""
    disabled_calls: tuple[CallsOutside, ...] = _collect(
        wire.DisabledCallsEnded, collect_disabled_calls
    )
    syncs: tuple[SampledStep, ...] = _collect(wire.SyncsSampled, collect_samples)
    """Of the sampled steps only."""
    write_traces: tuple[wire.Witnessed, ...] = _collect_every(wire.Witnessed)
    """One of each process whose lines were followed, or were to be."""
    trial_applied: tuple[wire.TrialApplied, ...] = _collect_last(
        wire.TrialApplied, lambda event: event.change
    )
    """Of a trial: each part of its plan that a process came to."""
    timed_calls: tuple[TimedCalls, ...] = _collect(wire.CallsTimed, collect_timed_calls)
    """Of a trial that times calls: those of sampled steps."""
    held_states: tuple[wire.StateRead, ...] = _collect(wire.StateRead, collect_held_states)
    random_states: tuple[wire.RandomStateRead, ...] = _collect_every(wire.RandomStateRead)
    recordings: tuple[wire.RecordingStarted, ...] = _collect_every(wire.RecordingStarted)
    """Of a run that was recorded, as all of the following: one of each process."""
    recorded_calls: tuple[wire.CallsRecorded, ...] = _collect_every(wire.CallsRecorded)
    graphs_run: tuple[wire.GraphRun, ...] = _collect_every(wire.GraphRun)
    printed: tuple[wire.LinesPrinted, ...] = _collect_every(wire.LinesPrinted)
    saved: tuple[wire.ValuesSaved, ...] = _collect_every(wire.ValuesSaved)
    loaded: tuple[wire.SourcesLoaded, ...] = _collect_every(wire.SourcesLoaded)
    lines_run: tuple[wire.LinesRun, ...] = _collect_every(wire.LinesRun)
    callers: tuple[wire.CallersSeen, ...] = _collect_every(wire.CallersSeen)
    varied_calls: tuple[wire.CallVaried, ...] = _collect_every(wire.CallVaried)
    varying_ends: tuple[wire.VaryingEnded, ...] = _collect_every(wire.VaryingEnded)
    lost: tuple[wire.EvidenceLost, ...] = _collect_every(wire.EvidenceLost)
    faults: tuple[wire.FaultOccurred, ...] = _collect_every(wire.FaultOccurred)
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
        return compute_counts(self.frames, self.compiles, self.breaks)

    @cached_property
    def size_guards(self) -> dict[CompileId, tuple[wire.SizeGuard, ...]]:
        """The conditions on dynamic sizes of each compile that has any, in their order. Those of
        exports stand under the compile id ""."""
        guards: dict[CompileId, tuple[wire.SizeGuard, ...]] = {}
        for guarded in self.guarded_sizes:  # a backward, compiled later, adds to its forward's
            key = CompileId(guarded.process, guarded.epoch, guarded.compile_id)
            guards[key] = (*guards.get(key, ()), *guarded.guards)
        return guards

    def can_observe(self, hook: str) -> bool:
        """True if the record of some process can hold this at all: that of a live run everything,
        a trace no steps, a text log no metrics. `hook`: a key of `TorchSeen.hooks`."""
        torches = [process.torch for process in self.processes if process.torch is not None]
        return not torches or any(torch.hooks.get(hook, True) for torch in torches)

    @property
    def counted_recompiles(self) -> tuple[Recompile, ...]:
        """The recompiles that count: a failed guard, and guarded code at the end."""
        return tuple(recompile for recompile in self.recompiles if recompile.produced)


# Invariant: a maker sees one process; what needs several (frames, breaks) is made in `fold`.
_MAKERS = {column.name: column.metadata["make"] for column in fields(Timeline) if column.metadata}


def fold(
    journals: Sequence[Iterable[wire.Event]],
    text_log: TextLog | None = None,
    user_roots: Sequence[str] = (),
    train_log: TrainLog | None = None,
    counted_ranks: tuple[int, ...] = (),
    counted_compile_s: tuple[tuple[int, float], ...] = (),
) -> Timeline:
    """Fold the events of every process, in the order of `journals`, into one Timeline."""
    parts = [ProcessEvents.collect(index, events) for index, events in enumerate(journals)]
    made = {
        name: tuple(record for part in parts for record in make(part))
        for name, make in _MAKERS.items()
    }
    compiles: tuple[Compile, ...] = made["compiles"]
    return Timeline(
        **made,
        frames=tuple(collect_frames(compiles, parts)),
        recompiles=tuple(event.recompile for event in compiles if event.recompile is not None),
        breaks=collect_breaks(parts, compiles, user_roots),
        tracked_left_out=sum(
            left_out.count for part in parts for left_out in part.get_all(wire.TrackedRunsLeftOut)
        ),
        text_log=text_log,
        train_log=train_log,
        counted_ranks=counted_ranks,
        counted_compile_s=counted_compile_s,
        user_roots=tuple(user_roots),
    )


def _make_process(part: ProcessEvents) -> Process:
    facts: dict[str, object] = {}
    for read in part.get_all(wire.EnvironmentRead):
        facts |= read.facts
    started, ended = part.get_last(wire.ProcessStarted), part.get_last(wire.ProcessEnded)
    limited = part.get_last(wire.JournalLimited)
    limit_bytes = limited.limit_bytes if limited is not None else None
    return Process(part.index, started, part.get_last(wire.TorchSeen), facts, ended, limit_bytes)


def list_present_ranks(timeline: Timeline) -> tuple[int, ...]:
    """List the ranks whose journals arrived; without a launcher the one process is rank 0."""
    started = [process for process in timeline.processes if process.started is not None]
    ranks = {process.rank for process in started if process.rank is not None}
    ranks.update(timeline.counted_ranks)
    if not ranks and started:
        return (0,)
    return tuple(sorted(ranks))


def find_lead_process(timeline: Timeline) -> Process | None:
    """Find the process that most of a receipt is about; None without a process."""
    return next((process for process in timeline.processes if process.index == timeline.lead), None)


def select_spans(timeline: Timeline, process: int) -> Iterator[wire.SpanEnded]:
    """Select the spans of one process."""
    return (span for span in timeline.spans if span.process == process)


def find_world_size(timeline: Timeline) -> int | None:
    """Find the largest world size a process recorded; None where there was no launcher."""
    starts = [process.started for process in timeline.processes if process.started is not None]
    return max((start.world_size for start in starts if start.world_size is not None), default=None)
