"""The syncs section of a receipt: the sampled steps of the lead process, added up by line."""

from __future__ import annotations

from compilediag.receipt.schema.record import record_from
from compilediag.receipt.schema.running import SyncLineRecord, SyncsSection
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.syncs import SyncLine, lines_of
from compilediag.timeline.timeline import Timeline

MAX_LINES = 256
"""Lines kept: those with most reads."""


def syncs_section(timeline: Timeline) -> SyncsSection | None:
    """None when no step was sampled: zero would be a claim about the others."""
    process = timeline.lead
    samples = [sample for sample in timeline.syncs if sample.process == process]
    if not samples:
        return None
    lines = lines_of(samples)
    timed = [sample.seconds for sample in samples if sample.seconds is not None]
    return SyncsSection(
        sampled_steps=len(samples),
        on_device=any(sample.on_device for sample in samples),
        complete=all(sample.complete for sample in samples) and len(lines) <= MAX_LINES,
        lines=tuple(_line(line, timeline) for line in lines[:MAX_LINES]),
        seconds=sum(timed) if len(timed) == len(samples) else None,
    )


def _line(line: SyncLine, timeline: Timeline) -> SyncLineRecord:
    return record_from(
        SyncLineRecord,
        line,
        file=line.place.file,
        line=line.place.line,
        function=line.place.function,
        ownership=ownership_of(line.place.file, timeline.user_roots),
        loop_line=line.loop,
        most_in_a_step=line.most,
        steps=len(line.steps),
    )
