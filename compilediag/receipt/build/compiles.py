"""The compile section and the findings of a receipt, from a Timeline and its diagnosis."""

from __future__ import annotations

from dataclasses import dataclass

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from compilediag.diagnosis.findings import Cause, Finding
from compilediag.diagnosis.figures.goodput import is_recompile_time, recompile_ids
from compilediag.diagnosis.ownership import ownership_of
from compilediag.receipt.schema.compiles import (CompileEvent, CompileSection, CompileTime, EventCause, FindingRecord, FixRecord, FrameDetail, FrameName, GraphBreak, Headroom, Place, Writer)
from compilediag.receipt.build.relative_paths import PathShortener
from compilediag.diagnosis.rules.break_text import read_break
from compilediag.timeline.counts import is_compile, is_recompile
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Recompile, Timeline
from compilediag_harness.wire import Location, plain

EVENTS_KEPT = 5_000
"""More compile events than this belong into a trace, not into a receipt; counts stay whole."""

FRAMES_KEPT = 50_000
"""Most frames listed, so that `show` can read the receipt; counts stay whole."""

CausesOf = Callable[[Recompile], Sequence[Cause]]


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes of every recompile that counts, read once."""

    by_compile: Mapping[tuple[int, int, str], tuple[Cause, ...]]
    by_family: Mapping[str, int]

    @classmethod
    def of(cls, timeline: Timeline, causes_of: CausesOf) -> Causes:
        """A recompile counts once in `by_family`: under its primary cause."""
        found: dict[tuple[int, int, str], tuple[Cause, ...]] = {}
        families: Counter[str] = Counter()
        for item in timeline.counted_recompiles:
            causes = tuple(sorted(causes_of(item), key=lambda cause: not cause.primary))
            found[item.process, item.epoch, item.compile_id] = causes
            families[causes[0].family if causes else "unclassified"] += 1
        return cls(found, dict(families))


def compile_section(timeline: Timeline, causes: Causes, places: PathShortener) -> CompileSection:
    """Counts by the definitions of docs/receipt.md, and what they count."""
    counts, guarded = timeline.counts, [item for item in timeline.compiles if is_compile(item)]
    told = _Told.of(timeline)
    return CompileSection(
        frames=counts.frames,
        compiles=counts.compiles,
        recompiles=counts.recompiles,
        graphs=counts.graphs,
        graph_breaks=counts.graph_breaks,
        eager_fallbacks=counts.eager_fallbacks,
        recompile_limit_hits=counts.recompile_limit_hits,
        time_s=_times(timeline),
        recompiles_by_family=dict(causes.by_family),
        events=tuple(_event(item, causes, places, told) for item in guarded[:EVENTS_KEPT]),
        breaks=tuple(_break(site, timeline, places) for site in timeline.breaks),
        frames_detail=tuple(_frame(item, places) for item in timeline.frames[:FRAMES_KEPT]),
    )


def events_left_out(timeline: Timeline) -> int:
    """Compile events that `compile_section` counts and does not list."""
    return max(0, timeline.counts.compiles - EVENTS_KEPT)


def _times(timeline: Timeline) -> CompileTime:
    """Backward compiles and failed attempts cost time too: the total is of all attempts."""
    if not timeline.tells("metrics_rows"):
        return CompileTime(total=None, first_compile=None, recompile=None, backend=None)
    if not timeline.compiles:
        return CompileTime(total=0.0, first_compile=0.0, recompile=0.0, backend=0.0)
    ids = recompile_ids(timeline)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for item in timeline.compiles:
        seconds[is_recompile_time(item, ids)].append(item.seconds)
    first, again = sum(seconds[False]), sum(seconds[True])
    backend = [item.backend_s for item in timeline.compiles if item.backend_s is not None]
    return CompileTime(
        total=first + again,
        first_compile=first,
        recompile=again,
        backend=sum(backend) if backend else None,
    )


def _name(where: Location, places: PathShortener) -> FrameName:
    return FrameName(function=where.function, file=places.short(where.file), line=where.line)


@dataclass(frozen=True, slots=True)
class _Told:
    """What the record of a run tells at all: a trace no steps, a text log no seconds either."""

    steps: bool
    seconds: bool

    @classmethod
    def of(cls, timeline: Timeline) -> _Told:
        return cls(timeline.tells("steps"), timeline.tells("metrics_rows"))


def _event(item: Compile, causes: Causes, places: PathShortener, told: _Told) -> CompileEvent:
    found = causes.by_compile.get((item.process, item.epoch, item.compile_id), ())
    again = is_recompile(item)
    return CompileEvent(
        compile_id=item.compile_id,
        epoch=item.epoch,
        frame=_name(item.frame, places),
        step=item.step if told.steps else None,
        kind="recompile" if again else "first",
        seconds=item.seconds if told.seconds else None,
        graph_ops=item.graph_ops,
        guards=item.guards,
        causes=tuple(_cause(cause, places) for cause in found) if again else (),
        process=item.process,
    )


def _cause(cause: Cause, places: PathShortener) -> EventCause:
    where = cause.location
    return EventCause(
        family=cause.family,
        source=cause.source,
        variable=cause.variable,
        guard=places.shorten(cause.guard),
        expected=cause.expected,
        actual=cause.actual,
        file=places.short(where.file) if where is not None else None,
        line=where.line if where is not None else None,
        function=where.function if where is not None else None,
        primary=cause.primary,
        writers=tuple(
            Writer(function=item.function, file=places.short(item.file), line=item.line)
            for item in cause.writers
        ),
        rule=cause.rule,
        kind=cause.kind,
        confidence=cause.confidence,
    )


def _break(site: BreakSite, timeline: Timeline, places: PathShortener) -> GraphBreak:
    report = read_break(site.text)
    return GraphBreak(
        file=places.short(site.file),
        line=site.line,
        function=site.function,
        gb_id=report.gb_id,
        category=report.category,
        reason=places.shorten(report.title),
        count=site.count,
        ownership=ownership_of(site.file, timeline.user_roots),
    )


def _frame(item: Frame, places: PathShortener) -> FrameDetail:
    return FrameDetail(
        frame=_name(item.where, places),
        compiles=item.compiles,
        guards=item.guards,
        guard_eval_us=item.guard_eval_us,
        headroom=Headroom(variants=item.compiles, limit=item.limit),
        ran_eager=item.ran_eager,
        eager_reason=places.shorten(item.eager_reason),
        epoch=item.key.epoch,
        process=item.key.process,
    )


def finding_record(item: Finding, places: PathShortener) -> FindingRecord:
    """One finding as the receipt keeps it."""
    where = item.location
    return FindingRecord(
        id=item.id,
        rule=item.rule,
        slug=item.slug,
        severity=item.severity,
        confidence=item.confidence,
        family=item.family,
        variable=item.variable,
        title=places.shorten(item.title),
        location=None
        if where is None
        else Place(file=places.short(where.file), line=where.line, function=where.function),
        ownership=item.ownership,
        count=item.count,
        steps=item.steps,
        cost_s=item.cost_s,
        evidence=places.shorten(_own(item.evidence)),
        fix=FixRecord(
            summary=places.shorten(item.fix.summary),
            how=item.fix.how,
            caveat=item.fix.caveat,
            verified=item.fix.verified,
            proof=item.fix.proof,
        ),
        also=item.also,
    )


def _own(evidence: dict[str, object]) -> Any:
    """JSON-ready values as new ones, which no rule holds; text for what is none of JSON's."""
    try:
        return msgspec.to_builtins(evidence, str_keys=True)
    except TypeError:
        return plain(evidence)
