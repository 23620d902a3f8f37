"""The compile section and the findings of a receipt, from a Timeline and its diagnosis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from compilediag.diagnosis.causes.of_run import BlamedCause
from compilediag.diagnosis.figures.compile_costs import (
    compile_time,
    guards_section,
    seconds_section,
)
from compilediag.diagnosis.figures.devices import compile_memory
from compilediag.diagnosis.findings import (
    CauseId,
    Finding,
    changed_at,
    entered_record,
    shown_writers,
)
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    CompileSection,
    EventCause,
    FindingRecord,
    FrameDetail,
    GraphBreak,
    Headroom,
    WitnessSection,
    Writer,
)
from compilediag.receipt.schema.record import record_from
from compilediag.rules.breaks.text import read_break
from compilediag.rules.diagnose import Diagnosis
from compilediag.timeline.frames import BreakLine, is_compile, is_recompile
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.timeline import BreakSite, Compile, Timeline
from compilediag_harness.wire import plain

EVENTS_KEPT = 5_000
"""More compile events than this belong into a trace, not into a receipt; counts stay whole."""

FALSE_GUARDS_KEPT = 5_000
"""Most false guards listed of all entries that did not fit, the first recompiles first."""

FRAMES_KEPT = 50_000  #: Most frames listed, so that `show` can read the receipt; counts stay whole.
FindingIds = Mapping[CauseId | BreakLine, str]


def compile_section(timeline: Timeline, diagnosis: Diagnosis) -> CompileSection:
    """Build the section of compiles: counts by the definitions of docs/reference/receipt.md, and
    what they count."""
    ids, frames = diagnosis.finding_ids, timeline.frames[:FRAMES_KEPT]
    # A recompile counts once: under its primary cause.
    causes = map(diagnosis.causes.of, timeline.counted_recompiles)
    families = Counter(found[0].family if found else "unclassified" for found in causes)
    guarded = [item for item in timeline.compiles if is_compile(item)]
    return record_from(
        CompileSection,
        timeline.counts,
        time_s=compile_time(timeline),
        seconds=seconds_section(timeline),
        guards=guards_section(timeline),
        memory=compile_memory(timeline),
        recompiles_by_family=families,
        events=tuple(_events(guarded[:EVENTS_KEPT], timeline, diagnosis)),
        breaks=tuple(_break(site, timeline, ids) for site in timeline.breaks),
        frames_detail=tuple(
            record_from(
                FrameDetail,
                item,
                frame=item.where,
                headroom=Headroom(variants=item.compiles, limit=item.limit),
                epoch=item.key.epoch,
                process=item.key.process,
                entered_at=entered_record(item.entered_at),
                entered_from=item.entered_from or None,
            )
            for item in frames
        ),
    )


def events_left_out(timeline: Timeline) -> int:
    """Count compile events that `build_compile_section` counts and does not list."""
    return max(0, timeline.counts.compiles - EVENTS_KEPT)


def _events(
    compiles: Iterable[Compile], timeline: Timeline, diagnosis: Diagnosis
) -> Iterator[CompileEvent]:
    """List the compiles. A trace has no steps, a text log no seconds either: null, not zero."""
    ids = diagnosis.finding_ids
    stepped, timed = timeline.observes("steps"), timeline.observes("metrics_rows")
    room = FALSE_GUARDS_KEPT
    for item in compiles:
        again = item.recompile if is_recompile(item) else None
        causes = () if again is None else diagnosis.causes.of(again)
        missed = () if again is None else diagnosis.causes.entries.get(again.id, ())
        room -= sum(len(entry.guards) for entry in missed)
        listed = missed if room >= 0 else ()
        yield record_from(
            CompileEvent,
            item,
            step=item.step if stepped else None,
            kind="first" if again is None else "recompile",
            seconds=item.seconds if timed else None,
            causes=tuple(cause_record(found, ids) for found in causes),
            entered_at=entered_record(item.entered_at),
            entered_from=item.entered_from or None,
            entries=listed,
            entries_left_out=len(missed) - len(listed) + (again.entries_left_out if again else 0),
        )


def cause_record(cause: BlamedCause, ids: FindingIds) -> EventCause:
    """Make the record of a cause, with the id of the finding that reports it."""
    where, witnessed = cause.location or cause.place, cause.witnessed
    return record_from(
        EventCause,
        cause,
        file=where.file,
        line=where.line,
        function=where.function,
        writers=tuple(
            record_from(Writer, item, evidence="witnessed" if witnessed else "source")
            for item in shown_writers(cause.writers, witnessed=witnessed)
        ),
        finding=ids.get(cause.id),
        changed_at=changed_at(cause.changed),
    )


def witness_section(timeline: Timeline) -> WitnessSection | None:
    """Build the section of write tracing, of all processes together; None where it was off."""
    followed = timeline.witnessed
    if not followed:
        return None
    stopped = next((item for item in followed if item.stopped is not None), None)
    return WitnessSection(
        line_events=sum(item.line_events for item in followed),
        seconds=sum(item.seconds for item in followed),
        values=sum(item.values for item in followed),
        values_left_out=sum(item.values_left_out for item in followed),
        stopped=stopped.stopped if stopped is not None else None,
        stopped_step=stopped.step if stopped is not None else None,
    )


def _break(site: BreakSite, timeline: Timeline, ids: FindingIds) -> GraphBreak:
    report = read_break(site.text)
    return record_from(
        GraphBreak,
        site,
        gb_id=report.gb_id,
        category=report.category,
        reason=report.title,
        ownership=ownership_of(site.file, timeline.user_roots),
        finding=ids.get(site.at),
        entered_at=entered_record(site.entered_at),
        entered_from=site.entered_from or None,
    )


def finding_record(item: Finding, *, repeatable: bool = False) -> FindingRecord:
    """Make one finding as the receipt stores it; `repeatable`: the program's command line is known,
    so that changes can be tried."""
    tried = item.severity != "info"
    return record_from(
        FindingRecord,
        item,
        evidence=plain(item.evidence),
        next=f"compilediag {'fix' if repeatable and tried else 'explain'} {item.id[1:]}",
    )
