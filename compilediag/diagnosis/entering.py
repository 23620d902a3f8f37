"""Where the program entered what a finding is about: of its cause, its graph break or its frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.findings import CauseId, Entered, Finding
from compilediag.timeline.breaks import BreakLine
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, UserCall


def with_callers(
    findings: Iterable[Finding], timeline: Timeline, causes: RunCauses
) -> Sequence[Finding]:
    """The findings, each with the call of the program's own that led to it first; those of which a
    rule has determined it, or nothing is recorded, as they are."""
    known = _known(timeline, causes)
    return [_with_caller(finding, known) for finding in findings]


class _Inside(NamedTuple):
    """A line of the program's own inside what was compiled: nearer than the call of it."""

    entered_at: UserCall
    entered_from: str = ""


def _known(
    timeline: Timeline, causes: RunCauses
) -> Mapping[CauseId | BreakLine | Location, Entered]:
    found: dict[CauseId | BreakLine | Location, Entered] = {}
    for recompile in timeline.recompiles:
        for blamed in causes.blamed(recompile):
            own = blamed.cause.own
            found.setdefault(blamed.id, recompile if own is None else _Inside(own))
    for site in timeline.breaks:
        found.setdefault(site.at, site)
    for frame in timeline.frames:
        found.setdefault(frame.where, frame)
    for skipped in timeline.skipped:
        found.setdefault(skipped.frame, skipped)
    return found


def _with_caller(
    finding: Finding, known: Mapping[CauseId | BreakLine | Location, Entered]
) -> Finding:
    if finding.entered_at is not None or finding.entered_from:
        return finding
    places = (*finding.about, *([] if finding.location is None else [finding.location]))
    for place in places:
        found = known.get(place)
        if found is not None and (found.entered_at is not None or found.entered_from):
            return replace(finding, entered_at=found.entered_at, entered_from=found.entered_from)
    return finding
