"""The compile section and the findings of a receipt, from a Timeline and its diagnosis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from compilediag.diagnosis.causes.run_causes import BlamedCause
from compilediag.diagnosis.figures.accepted_sizes import list_accepted_sizes
from compilediag.diagnosis.figures.compile_costs import (
    build_guards_section,
    build_seconds_section,
    compute_compile_time,
)
from compilediag.diagnosis.figures.varied import MAX_VARIED, build_varied
from compilediag.diagnosis.findings import (
    CauseId,
    Finding,
    make_call_record,
    make_changed_at,
    make_writers,
)
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    CompileSection,
    EventCause,
    FindingRecord,
    FrameDetail,
    GraphBreak,
    Headroom,
    Need,
    WriteTracingSection,
)
from compilediag.receipt.schema.record import make_record
from compilediag.rules.breaks.break_report import read_break
from compilediag.rules.diagnose import Diagnosis
from compilediag.timeline.frames import BreakLine, is_compile, is_recompile
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import BreakSite, Compile, Timeline
from compilediag_harness.wire import make_jsonable

MAX_EVENTS = 5_000
"""More compile events than this belong into a trace, not into a receipt; counts stay whole."""

MAX_FALSE_GUARDS = 5_000
"""Most false guards listed of all entries that did not fit, the first recompiles first."""

MAX_FRAMES = 50_000  #: Most frames listed, so that `show` can read the receipt; counts stay whole.
FindingIds = Mapping[CauseId | BreakLine, str]


def build_compile_section(timeline: Timeline, diagnosis: Diagnosis) -> CompileSection:
    """Build the section of compiles: counts as docs/reference/receipt.md defines them, and rows."""
    ids, frames = diagnosis.finding_ids, timeline.frames[:MAX_FRAMES]
    # A recompile counts once: under its primary cause.
    causes = map(diagnosis.causes.get_causes, timeline.counted_recompiles)
    families = Counter(own[0].family if own else "unclassified" for own in causes)
    guarded = [attempt for attempt in timeline.compiles if is_compile(attempt)]
    needs = Counter(diagnosis.needs.values())
    varied = build_varied(timeline, diagnosis.causes)
    return make_record(
        CompileSection,
        timeline.counts,
        time_s=compute_compile_time(timeline),
        seconds=build_seconds_section(timeline),
        guards=build_guards_section(timeline),
        recompiles_by_family=families,
        **{need: needs[need] for need in get_args(Need)},
        varied=varied[:MAX_VARIED],
        varied_left_out=max(0, len(varied) - MAX_VARIED),
        events=tuple(_list_events(guarded[:MAX_EVENTS], timeline, diagnosis)),
        breaks=tuple(_make_break(site, timeline, ids) for site in timeline.breaks),
        frames_detail=tuple(
            make_record(
                FrameDetail,
                frame,
                frame=frame.where,
                headroom=Headroom(variants=frame.compiles, limit=frame.limit),
                epoch=frame.key.epoch,
                process=frame.key.process,
                entered_at=make_call_record(frame.entered_at),
                entered_from=frame.entered_from or None,
            )
            for frame in frames
        ),
        accepted_sizes=list_accepted_sizes(timeline),
    )


def count_events_left_out(timeline: Timeline) -> int:
    """Count compile events that `build_compile_section` counts and does not list."""
    return max(0, timeline.counts.compiles - MAX_EVENTS)


def _list_events(
    compiles: Iterable[Compile], timeline: Timeline, diagnosis: Diagnosis
) -> Iterator[CompileEvent]:
    """List the compiles. A trace has no steps, a text log no seconds either: null, not zero."""
    ids = diagnosis.finding_ids
    stepped, timed = timeline.can_observe("steps"), timeline.can_observe("metrics_rows")
    room = MAX_FALSE_GUARDS
    for attempt in compiles:
        again = attempt.recompile if is_recompile(attempt) else None
        causes = () if again is None else diagnosis.causes.get_causes(again)
        missed = () if again is None else diagnosis.causes.explained[again.id].entries
        room -= sum(len(entry.guards) for entry in missed)
        listed = missed if room >= 0 else ()
        yield make_record(
            CompileEvent,
            attempt,
            step=attempt.step if stepped else None,
            kind="first" if again is None else "recompile",
            seconds=attempt.seconds if timed else None,
            causes=tuple(make_cause_record(cause, ids) for cause in causes),
            entered_at=make_call_record(attempt.entered_at),
            entered_from=attempt.entered_from or None,
            entries=listed,
            need=None if again is None else diagnosis.needs.get(again.id),
            test=attempt.test or None,
            entries_left_out=len(missed) - len(listed) + (again.entries_left_out if again else 0),
        )


def make_cause_record(cause: BlamedCause, ids: FindingIds) -> EventCause:
    """Make the record of a cause, with the id of the finding that reports it."""
    where = cause.location or cause.place
    return make_record(
        EventCause,
        cause,
        file=where.file,
        line=where.line,
        function=where.function,
        writers=make_writers(cause),
        finding=ids.get(cause.id),
        changed_at=make_changed_at(cause.changed),
    )


def build_write_tracing(timeline: Timeline) -> WriteTracingSection | None:
    """Build the section of write tracing, of all processes together; None where it was off."""
    followed = timeline.write_traces
    if not followed:
        return None
    stopped = next((trace for trace in followed if trace.stopped is not None), None)
    return WriteTracingSection(
        line_events=sum(trace.line_events for trace in followed),
        seconds=sum(trace.seconds for trace in followed),
        values=sum(trace.values for trace in followed),
        values_left_out=sum(trace.values_left_out for trace in followed),
        stopped=stopped.stopped if stopped is not None else None,
        stopped_step=stopped.step if stopped is not None else None,
    )


def _make_break(site: BreakSite, timeline: Timeline, ids: FindingIds) -> GraphBreak:
    report = read_break(site.text)
    return make_record(
        GraphBreak,
        site,
        gb_id=report.gb_id,
        category=report.category,
        reason=report.title,
        ownership=classify_ownership(site.file, timeline.user_roots),
        finding=ids.get(site.at),
        entered_at=make_call_record(site.entered_at),
        entered_from=site.entered_from or None,
    )


def make_finding_record(finding: Finding, *, repeatable: bool = False) -> FindingRecord:
    """Make a finding as the receipt stores it; `repeatable`: changes can be tried."""
    tried = finding.severity != "info"
    return make_record(
        FindingRecord,
        finding,
        evidence=make_jsonable(finding.evidence),
        next=f"compilediag {'fix' if repeatable and tried else 'explain'} {finding.id[1:]}",
    )
