"""The stage between a Timeline and its findings: why each recompile of a run happened, worked out
once, and grouped by what is the same cause.

Rules, receipts, ranks and the pytest plugin read it; none of them works out a cause again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compilediag.diagnosis.causes.acts import ANOTHER_INSTANCE, by_act
from compilediag.diagnosis.causes.behind_breaks import BehindBreaks, behind_breaks
from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.causes.recompile import Explanation, explained
from compilediag.diagnosis.findings import Cause, CauseId
from compilediag.receipt.schema.compiles import MissedEntry
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.process import extended
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import Location

_BY_KIND = frozenset(("CD105", "CD106", "CD110", "CD111", "CD118"))
"""Codes whose kinds have different fixes: each kind is a cause of its own."""

_INPUTS = frozenset(("CD105", "CD106", "CD107"))
"""Codes of what a frame is called with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlamedCause(Cause):
    """A cause of one recompile of a run."""

    place: Location
    """The line to change."""
    id: CauseId
    """The same in every recompile of the run that has this cause."""


@dataclass(frozen=True, slots=True)
class RunCauses:
    """The causes of every recompile of a run."""

    by_compile: Mapping[CompileId, tuple[BlamedCause, ...]] = field(
        default_factory=dict[CompileId, tuple[BlamedCause, ...]]
    )
    """The primary cause first; attempts at the recompile limit included."""
    entries: Mapping[CompileId, tuple[MissedEntry, ...]] = field(
        default_factory=dict[CompileId, tuple[MissedEntry, ...]]
    )
    """The cache entries that did not fit, nearest first, as far as the process recorded them."""
    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict[str, Sequence[Group]])
    """By code, in the order of their first recompile; of recompiles that count."""
    behind: BehindBreaks = field(default_factory=BehindBreaks)
    """The frames that graph breaks made."""

    def of(self, recompile: Recompile) -> tuple[BlamedCause, ...]:
        """The causes of one recompile, the primary one first."""
        return self.by_compile[recompile.id]


def causes_in(timeline: Timeline) -> RunCauses:
    """Works out and groups the causes of every recompile."""
    known: dict[object, Explanation] = {}
    behind = behind_breaks(timeline)
    by_compile: dict[CompileId, tuple[BlamedCause, ...]] = {}
    entries: dict[CompileId, tuple[MissedEntry, ...]] = {}
    for item in timeline.recompiles:
        # Ranks do the same: what decides the causes decides them once.
        facts = (item.entries, item.reasons, item.frame, item.problem)
        found = known.get(facts) or known.setdefault(facts, explained(item))
        # Another instance of its class is called, or a broken function makes another call of it
        # within one step.
        nearest = found.entries[0].compile_id if found.entries else ""
        other = any(cause.rule == "CD117" for cause in found.causes)
        other = other or behind.between_calls(item, nearest)
        by_compile[item.id] = tuple(
            _blamed(cause, item, timeline, another_instance=other) for cause in found.causes
        )
        entries[item.id] = found.entries
    members: dict[CauseId, list[tuple[BlamedCause, Recompile]]] = {}
    for recompile in timeline.counted_recompiles:
        own: dict[CauseId, BlamedCause] = {}
        for cause in by_compile[recompile.id]:
            own.setdefault(cause.id, cause)  # what a recompile has twice counts once
        for key, cause in own.items():
            members.setdefault(key, []).append((cause, recompile))
    single: list[Group] = []
    for key, pairs in members.items():
        causes, again = zip(*pairs, strict=True)
        single.append(Group(key, causes, again, causes[0].place))
    groups: dict[str, list[Group]] = {}
    for group in by_act(single, timeline, behind):
        groups.setdefault(group.code, []).append(group)
    return RunCauses(by_compile, entries, groups, behind)


def _blamed(
    cause: Cause, recompile: Recompile, timeline: Timeline, *, another_instance: bool
) -> BlamedCause:
    # The user's line of the guard; where that lies in torch itself (an optimizer, a layer of
    # torch.nn), the frame that was compiled, if that is not torch's too.
    place, frame, roots = cause.location or recompile.frame, recompile.frame, timeline.user_roots
    if ownership_of(place.file, roots) == "torch" != ownership_of(frame.file, roots):
        place = frame
    kind = cause.kind if cause.rule in _BY_KIND else None
    if another_instance and cause.rule in _INPUTS:
        kind = ANOTHER_INSTANCE
    # A `FixedShape` was calling what it wraps at every size it will run at.
    planned = cause.rule == "CD105" and any(
        warmed.began <= recompile.t <= warmed.t
        for item in timeline.fixed_shapes
        if item.process == recompile.process
        for warmed in item.warmed
    )
    key = CauseId(cause.rule, cause.variable, place.file, place.function, kind, planned)
    return extended(cause, BlamedCause, place=place, id=key)
