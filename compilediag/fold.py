"""Folds the events of a run's processes into one Timeline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from compilediag import fold_timings
from compilediag.batches import apart
from compilediag.cadence_groups import CadenceEvent, groups_of
from compilediag.cudagraph_runs import cudagraphs_of
from compilediag.device_memory import devices_of
from compilediag.fixed_shapes import FixedShapeEvent, fixed_shapes_of
from compilediag.invocation_calls import invocations_of
from compilediag.pipeline_loops import loops_of
from compilediag.step_labels import with_final_steps
from compilediag.sync_sites import sample_of
from compilediag.timeline import (
    BreakSite,
    CollectiveSchedule,
    Compile,
    Frame,
    FrameKey,
    Hazards,
    Process,
    Recompile,
    SkippedFrame,
    Step,
    TextLog,
    Timeline,
)
from compilediag.tracked_runs import tracked_of
from compilediag.train_log import TrainLog
from compilediag_harness.wire import (
    AblationWritten,
    CadenceAsked,
    CadenceDeclared,
    CadenceFired,
    CollectivesPlanned,
    Compiled,
    CompiledCallsMade,
    CudagraphRecorded,
    CudagraphsRan,
    DeviceMemoryRead,
    DeviceStepsTimed,
    DisabledCallsEnded,
    EnvironmentRead,
    Event,
    EvidenceLost,
    FaultOccurred,
    FixedShapeCompiled,
    FixedShapeUsed,
    FixedShapeWarmed,
    FrameSkipped,
    GraphBroke,
    HazardsChecked,
    HooksFound,
    KneeMeasured,
    Location,
    PaddingChecked,
    PipelineWorked,
    ProcessEnded,
    ProcessStarted,
    ProfileEnded,
    Recompiled,
    RowsRun,
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

_AT_LIMIT = re.compile(
    r"recompile[_ ]limit (?:reached|exceeded)|RecompileLimit|accumulated_recompile_limit"
)
_BREAK_AT = re.compile(r"user code at (?P<file>[^\n]+):(?P<line>\d+)\s*(?:\n|$)")
_STACK_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)')


@dataclass(slots=True)
class _ProcessFold:
    """What one process's events have added up to so far."""

    index: int
    started: ProcessStarted | None = None
    torch: TorchSeen | None = None
    facts: dict[str, object] = field(default_factory=dict[str, object])
    ended: ProcessEnded | None = None
    rows: list[Compiled] = field(default_factory=list[Compiled])
    questions: list[Recompiled] = field(default_factory=list[Recompiled])
    breaks: list[GraphBroke] = field(default_factory=list[GraphBroke])
    skipped: list[FrameSkipped] = field(default_factory=list[FrameSkipped])
    hazards: dict[Location, HazardsChecked] = field(default_factory=dict[Location, HazardsChecked])
    batches: list[StepsEnded] = field(default_factory=list[StepsEnded])
    unguarded: list[UnguardedChanged] = field(default_factory=list[UnguardedChanged])
    warnings: list[WarningSeen] = field(default_factory=list[WarningSeen])
    spans: list[SpanEnded] = field(default_factory=list[SpanEnded])
    disabled_calls: list[DisabledCallsEnded] = field(default_factory=list[DisabledCallsEnded])
    device: list[DeviceStepsTimed] = field(default_factory=list[DeviceStepsTimed])
    hooks: HooksFound | None = None
    syncs: list[SyncsSampled] = field(default_factory=list[SyncsSampled])
    cadences: list[CadenceEvent] = field(default_factory=list[CadenceEvent])
    fixed_shapes: list[FixedShapeEvent] = field(default_factory=list[FixedShapeEvent])
    batches_by_kind: dict[type, list[Any]] = field(default_factory=dict[type, list[Any]])
    """Events that are folded elsewhere."""
    lost: list[EvidenceLost] = field(default_factory=list[EvidenceLost])
    faults: list[FaultOccurred] = field(default_factory=list[FaultOccurred])

    def take(self, event: Event) -> None:
        match event:
            case ProcessStarted():
                self.started = event
            case TorchSeen():
                self.torch = event
            case EnvironmentRead():
                self.facts = {**self.facts, **event.facts}
            case ProcessEnded():
                self.ended = event
            case Compiled():
                self.rows.append(event)
            case Recompiled():
                self.questions.append(event)
            case GraphBroke():
                self.breaks.append(event)
            case FrameSkipped():
                self.skipped.append(event)
            case HazardsChecked():
                self.hazards[event.frame] = event
            case StepsEnded():
                self.batches.append(event)
            case UnguardedChanged():
                self.unguarded.append(event)
            case WarningSeen():
                self.warnings.append(event)
            case SpanEnded():
                self.spans.append(event)
            case DisabledCallsEnded():
                self.disabled_calls.append(event)
            case DeviceStepsTimed():
                self.device.append(event)
            case HooksFound():
                self.hooks = event
            case SyncsSampled():
                self.syncs.append(event)
            case CadenceDeclared() | CadenceAsked() | CadenceFired():
                self.cadences.append(event)
            case (
                CollectivesPlanned()
                | PipelineWorked()
                | RunTracked()
                | TrackedRunsLeftOut()
                | AblationWritten()
                | CompiledCallsMade()
                | DeviceMemoryRead()
                | ProfileEnded()
            ):
                self.batches_by_kind.setdefault(type(event), []).append(event)
            case CudagraphRecorded() | CudagraphsRan():
                self.batches_by_kind.setdefault(CudagraphsRan, []).append(event)
            case (
                FixedShapeUsed()
                | FixedShapeWarmed()
                | KneeMeasured()
                | FixedShapeCompiled()
                | PaddingChecked()
                | RowsRun()
            ):
                self.fixed_shapes.append(event)
            case EvidenceLost():
                self.lost.append(event)
            case FaultOccurred():
                self.faults.append(event)
            case _:
                pass  # CompileStarted and DynamoReset serve the live view


def fold(
    journals: Sequence[Iterable[Event]],
    text_log: TextLog | None = None,
    user_roots: Sequence[str] = (),
    train_log: TrainLog | None = None,
) -> Timeline:
    """One Timeline of the events of every process, in the order of `journals`."""
    folds: list[_ProcessFold] = []
    for index, events in enumerate(journals):
        part = _ProcessFold(index)
        for event in with_final_steps(apart(events)):
            part.take(event)
        folds.append(part)
    by_part = [(part, _compiles(part)) for part in folds]
    compiles = [item for _, made in by_part for item in made]
    sources = [batch.source for part in folds for batch in part.batches]
    return Timeline(
        processes=tuple(
            Process(part.index, part.started, part.torch, part.facts, part.ended) for part in folds
        ),
        frames=tuple(frame for part, made in by_part for frame in _frames(part, made)),
        compiles=tuple(compiles),
        recompiles=tuple(item.recompile for item in compiles if item.recompile is not None),
        breaks=_break_sites(folds),
        collectives=_each(folds, CollectivesPlanned, _schedules),
        skipped=tuple(item for part in folds for item in _skipped(part)),
        hazards=tuple(item for part in folds for item in _hazards(part)),
        unguarded=tuple(item for part in folds for item in part.unguarded),
        warnings=tuple(item for part in folds for item in part.warnings),
        steps=tuple(item for part in folds for item in _steps(part)),
        step_source=sources[-1] if sources else None,
        spans=tuple(item for part in folds for item in part.spans),
        span_processes=tuple(part.index for part in folds for _ in part.spans),
        partial_phases=tuple(
            item for part in folds for item in fold_timings.partial_phases(part.index, part.batches)
        ),
        device_steps=tuple(
            item for part in folds for item in fold_timings.device_steps(part.index, part.device)
        ),
        disabled_calls=tuple(
            item
            for part in folds
            for item in fold_timings.disabled_calls(part.index, part.disabled_calls)
        ),
        hooks=tuple(item for part in folds for item in fold_timings.hooks(part.index, part.hooks)),
        syncs=tuple(sample_of(part.index, item) for part in folds for item in part.syncs),
        cadences=tuple(item for part in folds for item in groups_of(part.index, part.cadences)),
        pipelines=_each(folds, PipelineWorked, loops_of),
        tracked=_each(folds, RunTracked, tracked_of),
        tracked_left_out=sum(
            _each(folds, TrackedRunsLeftOut, lambda _, events: [item.count for item in events])
        ),
        ablations=_each(folds, AblationWritten, lambda _, events: events),
        invocations=_each(folds, CompiledCallsMade, invocations_of),
        device_memory=_each(folds, DeviceMemoryRead, devices_of),
        cudagraphs=_each(folds, CudagraphsRan, cudagraphs_of),
        fixed_shapes=tuple(
            item for part in folds for item in fixed_shapes_of(part.index, part.fixed_shapes)
        ),
        profiles=_each(folds, ProfileEnded, lambda _, events: events),
        lost=tuple(item for part in folds for item in part.lost),
        faults=tuple(item for part in folds for item in part.faults),
        text_log=text_log,
        train_log=train_log,
        user_roots=tuple(user_roots),
    )


def _each(
    folds: Sequence[_ProcessFold],
    kind: type[Kind],
    made_of: Callable[[int, list[Kind]], Iterable[Made]],
) -> tuple[Made, ...]:
    """What the events of one kind make, process by process."""
    return tuple(
        item for part in folds for item in made_of(part.index, part.batches_by_kind.get(kind, []))
    )


def _compiles(part: _ProcessFold) -> list[Compile]:
    """The attempts of one process, each with the question torch asked before it."""
    questions = {(item.epoch, item.compile_id): item for item in part.questions}
    backward_s = _backward_seconds(part.rows)
    told = part.torch is None or part.torch.hooks.get("metrics_rows", True)
    # Rows made of a text log have no graph either: there a break says nothing about its frame.
    broken_ids = {(item.epoch, item.compile_id) for item in part.breaks if told}
    made: list[Compile] = []
    for reported in part.rows:
        row = _as_it_was(reported, broken_ids)
        key = (row.epoch, row.compile_id)
        question = questions.pop(key, None) if row.forward else None
        recompile = _recompile(part.index, row, question, backward_s.get(key, 0.0))
        made.append(
            Compile(
                process=part.index,
                compile_id=row.compile_id,
                epoch=row.epoch,
                frame=row.frame,
                step=row.step,
                t=row.t,
                kind=_kind(row, recompile),
                forward=row.forward,
                guarded=row.guarded,
                seconds=row.seconds,
                backend_s=row.backend_s,
                graph_ops=row.graph_ops,
                guards=row.guards,
                fail_type=row.fail_type,
                fail_reason=row.fail_reason,
                restart_reasons=row.restart_reasons,
                recompile=recompile,
                cache_hits=row.cache_hits,
                cache_misses=row.cache_misses,
            )
        )
    # A question without a row: the process died, or the compile raised before its row was made.
    made.extend(_unfinished(part.index, question) for question in questions.values())
    made.sort(key=lambda item: item.t)
    return made


def _as_it_was(row: Compiled, broken_ids: set[tuple[int, str]]) -> Compiled:
    """A frame given up at a break in a loop is not compiled, though 2.7 calls it guarded: it has a
    break and no graph, not even an empty one. Later versions say so themselves."""
    given_up = row.graph_ops is None and (row.epoch, row.compile_id) in broken_ids
    if not (row.forward and row.guarded and given_up):
        return row
    reason = row.fail_reason or "a graph break in a loop: the whole frame runs eager"
    return replace(row, guarded=False, fail_reason=reason)


def _backward_seconds(rows: Sequence[Compiled]) -> dict[tuple[int, str], float]:
    """Seconds of lazily compiled backwards, which bear the compile id of their forward."""
    seconds: dict[tuple[int, str], float] = {}
    for row in rows:
        if not row.forward:
            key = (row.epoch, row.compile_id)
            seconds[key] = seconds.get(key, 0.0) + row.seconds
    return seconds


def _recompile(
    process: int, row: Compiled, question: Recompiled | None, backward_s: float
) -> Recompile | None:
    """The recompile behind a row: from torch's question, or from the row's own reason where the
    question could not be heard."""
    if not row.forward or (question is None and row.recompile_reason is None):
        return None
    if question is None:
        reasons = (str(row.recompile_reason),)
        question = Recompiled(
            row.t,
            row.step,
            row.compile_id,
            row.epoch,
            row.frame,
            reasons,
            (),
            0.0,
            "torch's question was not heard: only its first reason is known",
        )
    return Recompile(
        process=process,
        compile_id=row.compile_id,
        epoch=row.epoch,
        frame=question.frame,
        step=question.step,
        t=question.t,
        reasons=question.reasons,
        entries=question.entries,
        seconds=row.seconds + backward_s if row.guarded else 0.0,
        produced=row.guarded,
        problem=question.problem,
        analysis_s=question.analysis_s,
    )


def _unfinished(process: int, question: Recompiled) -> Compile:
    recompile = Recompile(
        process,
        question.compile_id,
        question.epoch,
        question.frame,
        question.step,
        question.t,
        question.reasons,
        question.entries,
        0.0,
        False,
        question.problem,
        question.analysis_s,
    )
    return Compile(
        process=process,
        compile_id=question.compile_id,
        epoch=question.epoch,
        frame=question.frame,
        step=question.step,
        t=question.t,
        kind="failed",
        forward=True,
        guarded=False,
        seconds=0.0,
        backend_s=None,
        graph_ops=None,
        guards=None,
        fail_type=None,
        fail_reason="no metrics row: the compile did not end",
        restart_reasons=(),
        recompile=recompile,
    )


def _kind(row: Compiled, recompile: Recompile | None) -> str:
    if not row.forward:
        return "backward"
    if _AT_LIMIT.search(row.fail_type or "") or _AT_LIMIT.search(row.fail_reason or ""):
        return "limit"
    if not row.guarded:
        return "failed"
    return "first" if recompile is None else "recompile"


def _frames(part: _ProcessFold, compiles: Sequence[Compile]) -> list[Frame]:
    limits = {(row.epoch, row.compile_id): row for row in part.rows}
    grouped: dict[FrameKey, list[Compile]] = {}
    for item in compiles:
        if item.forward:
            grouped.setdefault(item.key, []).append(item)
    frames: list[Frame] = []
    for key, attempts in grouped.items():
        guarded = [a for a in attempts if a.guarded]
        at_limit = next((a for a in attempts if a.kind == "limit"), None)
        refused = None if guarded else attempts[-1]
        cause = at_limit or refused
        rows = [r for a in guarded if (r := limits.get((a.epoch, a.compile_id))) is not None]
        frames.append(
            Frame(
                key=key,
                where=attempts[0].frame,
                compiles=len(guarded),
                graphs=sum(1 for a in guarded if a.graph_ops),
                guards=guarded[-1].guards if guarded else None,
                guard_eval_us=rows[-1].guard_eval_us if rows else None,
                limit=next((r.limit for r in rows), None),
                limit_hit_step=at_limit.step if at_limit else None,
                ran_eager=cause is not None,
                eager_reason=_eager_reason(cause),
            )
        )
    return frames


def _eager_reason(cause: Compile | None) -> str | None:
    if cause is None:
        return None
    return cause.fail_reason or cause.fail_type or "torch gave no reason"


def _break_sites(folds: Sequence[_ProcessFold]) -> tuple[BreakSite, ...]:
    """Breaks by file and line: repeats at a recompile or a restart are one site."""
    sites: dict[tuple[str, int], _BreakReports] = {}
    for part in folds:
        for event in part.breaks:
            place = break_place(event.text)
            if place is not None:
                found = sites.setdefault((place.file, place.line), _BreakReports([], {}, {}))
                found.events.append(event)
                found.functions[place.function] = None
                found.processes[part.index] = None
    return tuple(_break_site(*place, found) for place, found in sites.items())


class _BreakReports(NamedTuple):
    """What was told of one line; mappings are ordered sets."""

    events: list[GraphBroke]
    functions: dict[str, None]
    processes: dict[int, None]


def _break_site(file: str, line: int, found: _BreakReports) -> BreakSite:
    first = found.events[0]
    return BreakSite(
        file,
        line,
        next((name for name in found.functions if name), ""),
        first.text,
        len(found.events),
        tuple(dict.fromkeys(event.compile_id for event in found.events)),
        first.step,
        tuple(found.processes),
    )


def _schedules(process: int, events: Iterable[CollectivesPlanned]) -> list[CollectiveSchedule]:
    return [
        CollectiveSchedule(process, item.compile_id, item.epoch, item.operations) for item in events
    ]


def break_place(text: str) -> Location | None:
    """Where torch says a graph break is: its headline, else the innermost line of its stack."""
    above = text.split("\nTraceback (most recent call last)", maxsplit=1)[0]
    stack = [
        Location(found["file"], int(found["line"]), found["function"].strip())
        for found in _STACK_LINE.finditer(above)
    ]
    headline = _BREAK_AT.search(text.split("\n", 1)[0] + "\n")
    if headline is None:
        return stack[-1] if stack else None
    file, line = headline["file"], int(headline["line"])
    same = [place for place in stack if place.file == file and place.line == line]
    return Location(file, line, same[-1].function if same else "")


def _skipped(part: _ProcessFold) -> list[SkippedFrame]:
    """Refused frames that have no metrics row of their own, each once."""
    rows = {(row.frame.file, row.frame.function) for row in part.rows}
    found: dict[tuple[str, str], SkippedFrame] = {}
    for event in part.skipped:
        key = (event.frame.file, event.frame.function)
        if key not in rows and key not in found:
            found[key] = SkippedFrame(part.index, event.frame, event.reason, event.step)
    return list(found.values())


def _hazards(part: _ProcessFold) -> list[Hazards]:
    return [
        Hazards(
            part.index,
            event.frame,
            event.step,
            event.guards,
            event.checked,
            event.unevaluated,
            event.skipped,
        )
        for event in part.hazards.values()
    ]


def _steps(part: _ProcessFold) -> list[Step]:
    compile_s: dict[int, float] = {}
    for row in part.rows:
        compile_s[row.step] = compile_s.get(row.step, 0.0) + row.seconds
    steps: list[Step] = []
    for batch in part.batches:
        for offset, (end, wall_s) in enumerate(zip(batch.ends, batch.every_wall(), strict=False)):
            number = batch.first + offset
            steps.append(
                Step(
                    process=part.index,
                    number=number,
                    end=end,
                    wall_s=wall_s,
                    data_wait_s=_at(batch.data_wait, offset),
                    optimizer_s=_at(batch.optimizer, offset),
                    spans_s=_at(batch.spans, offset),
                    compile_s=compile_s.get(number, 0.0),
                    forward_s=_at(batch.forward, offset),
                    backward_s=_at(batch.backward, offset),
                    noted=batch.noted,
                    measuring_s=0.0 if offset else batch.measuring_s,
                )
            )
    return steps


def _at(values: tuple[float, ...], index: int) -> float | None:
    """None where the phase was not measured: an empty tuple is not zero seconds."""
    return values[index] if index < len(values) else None
