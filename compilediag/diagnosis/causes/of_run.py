"""The stage between a Timeline and its findings: why each recompile of a run happened, worked out
once, and grouped by what is the same cause.

Rules, receipts, ranks and the pytest plugin read it; none of them works out a cause again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from compilediag.diagnosis.causes.acts import ANOTHER_INSTANCE, by_act
from compilediag.diagnosis.causes.behind_breaks import BehindBreaks, behind_breaks
from compilediag.diagnosis.causes.recompile import Explained, explained
from compilediag.diagnosis.findings import Act, Cause, CauseId, Evidence, shown_writers
from compilediag.receipt.schema.compiles import MissedEntry
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import Location, ValueChange

_BY_KIND = frozenset(("CD105", "CD106", "CD110", "CD111", "CD118"))
"""Codes whose kinds have different fixes: each kind is a cause of its own."""

_INPUTS = frozenset(("CD105", "CD106", "CD107"))
"""Codes of what a frame is called with."""

_MAX_VALUES = 8
"""Distinct changes kept in the evidence."""

_MAX_NAMED = 4
"""Variables named in a sentence."""


class BlamedCause(NamedTuple):
    """A cause of one recompile."""

    cause: Cause
    place: Location
    """The line to change."""
    id: CauseId
    """The same in every recompile of the run that has this cause."""


@dataclass(frozen=True, slots=True)
class Group:
    """The same cause in one or many recompiles; `causes` and `recompiles` are parallel."""

    id: CauseId
    causes: tuple[Cause, ...]
    recompiles: tuple[Recompile, ...]
    location: Location
    together: tuple[Group, ...] = ()
    """Others of the same code that changed in the same recompiles and alike, by the same act."""
    follows: tuple[Group, ...] = ()
    """What the same act changed elsewhere or otherwise: in frames that are called from there, in
    another guard of the same value, in other values."""
    act: Act | None = None
    """The line that changed several values, where it is known."""

    @property
    def parts(self) -> tuple[Group, ...]:
        """Itself and all others of the act."""
        return (self, *self.together, *self.follows)

    @property
    def all_recompiles(self) -> tuple[Recompile, ...]:
        """Those of all parts, each once, in time order."""
        found = {recompile.id: recompile for part in self.parts for recompile in part.recompiles}
        if len(self.parts) == 1:
            return tuple(found.values())
        return tuple(sorted(found.values(), key=lambda item: (item.process, item.t)))

    @property
    def code(self) -> str:
        return self.id.rule

    @property
    def planned(self) -> bool:
        """Sizes that a warm-up compiled for: intended, and no fault."""
        return self.id.planned

    @property
    def first(self) -> Cause:
        return self.causes[0]

    @property
    def variable(self) -> str:
        return self.first.variable

    @property
    def variables(self) -> tuple[str, ...]:
        """Its variable, and those that changed with it."""
        return tuple(dict.fromkeys(each.variable for each in (self, *self.together)))

    @property
    def name(self) -> str:
        """The variable for use in a sentence, with those that changed with it."""
        names = [f"`{variable}`" for variable in self.variables if variable]
        if len(names) > _MAX_NAMED:
            return f"{', '.join(names[:_MAX_NAMED])} and {len(names) - _MAX_NAMED} more"
        return (
            " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names) or "the value"
        )

    @property
    def kind(self) -> str | None:
        return self.first.kind

    @property
    def function(self) -> str:
        """The function whose line is blamed, for use in a sentence."""
        return f"`{self.location.function}`" if self.location.function else "the function"

    @property
    def cost_s(self) -> float | None:
        """Seconds of the recompiles this cause was primary for; None when it never was."""
        seconds = [
            recompile.seconds
            for group in self.parts
            for cause, recompile in zip(group.causes, group.recompiles, strict=True)
            if cause.primary
        ]
        return sum(seconds) if any(seconds) else None

    @property
    def writers(self) -> list[tuple[Location, Evidence]]:
        """Lines that write the variable, each once: those that were seen to; of recompiles whose
        change was not seen, those that could by their source."""
        seen = dict.fromkeys(w for cause in self.causes if cause.witnessed for w in cause.writers)
        guesses = (cause.writers for cause in self.causes if not cause.witnessed)
        others = [w for found in guesses for w in shown_writers(found, witnessed=False)]
        guessed = [writer for writer in dict.fromkeys(others) if writer not in seen]
        return [*((writer, "witnessed") for writer in seen), *((w, "source") for w in guessed)]

    @property
    def changed(self) -> ValueChange | None:
        """How the value was seen to change for the first recompile, which is the one shown."""
        return self.first.changed

    @property
    def values(self) -> list[list[str | None]]:
        """Distinct [expected, actual] pairs, in order of appearance."""
        same = [part for part in self.follows if part.variable == self.variable]
        causes = [cause for part in (self, *same) for cause in part.causes]
        pairs = dict.fromkeys((cause.expected, cause.actual) for cause in causes)
        return [list(pair) for pair in pairs][:_MAX_VALUES]


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

    def blamed(self, recompile: Recompile) -> tuple[BlamedCause, ...]:
        """The causes of one recompile with the lines to change, the primary one first."""
        return self.by_compile[recompile.id]

    def of(self, recompile: Recompile) -> tuple[Cause, ...]:
        """The causes of one recompile, the primary one first."""
        return tuple(item.cause for item in self.by_compile[recompile.id])


def causes_in(timeline: Timeline) -> RunCauses:
    """Works out and groups the causes of every recompile."""
    known: dict[object, Explained] = {}
    behind = behind_breaks(timeline)
    by_compile: dict[CompileId, tuple[BlamedCause, ...]] = {}
    entries: dict[CompileId, tuple[MissedEntry, ...]] = {}
    for item in timeline.recompiles:
        # Ranks do the same: what decides the causes decides them once.
        facts = (item.entries, item.reasons, item.frame, item.problem)
        found = known.get(facts)
        if found is None:
            found = known[facts] = explained(item)
        other = _is_another_instance(item, found, behind)
        by_compile[item.id] = tuple(
            _blamed(cause, item, timeline, another_instance=other) for cause in found.causes
        )
        entries[item.id] = found.entries
    groups = _grouped(timeline, by_compile, behind)
    return RunCauses(by_compile, entries, groups, behind)


def _is_another_instance(recompile: Recompile, found: Explained, behind: BehindBreaks) -> bool:
    """Whether what the frame is called with differs because another instance of its class is
    called, or because another call within one step of a broken function is made."""
    if any(cause.rule == "CD117" for cause in found.causes):
        return True
    nearest = found.entries[0].compile_id if found.entries else ""
    return behind.between_calls(recompile, nearest)


def _blamed(
    cause: Cause, recompile: Recompile, timeline: Timeline, *, another_instance: bool
) -> BlamedCause:
    place = _place_to_change(cause, recompile.frame, timeline.user_roots)
    kind = cause.kind if cause.rule in _BY_KIND else None
    if another_instance and cause.rule in _INPUTS:
        kind = ANOTHER_INSTANCE
    planned = cause.rule == "CD105" and _in_warmup(recompile, timeline)
    key = CauseId(cause.rule, cause.variable, place.file, place.function, kind, planned)
    return BlamedCause(cause, place, key)


def _place_to_change(cause: Cause, frame: Location, user_roots: tuple[str, ...]) -> Location:
    """The user's line of the guard; where that lies in torch itself (an optimizer, a layer of
    torch.nn), the frame that was compiled, if that is not torch's too."""
    if cause.location is None:
        return frame
    if ownership_of(cause.location.file, user_roots) != "torch":
        return cause.location
    return cause.location if ownership_of(frame.file, user_roots) == "torch" else frame


def _in_warmup(recompile: Recompile, timeline: Timeline) -> bool:
    """A `FixedShape` was calling what it wraps at every size it will run at."""
    return any(
        warmed.began <= recompile.t <= warmed.t
        for item in timeline.fixed_shapes
        if item.process == recompile.process
        for warmed in item.warmed
    )


def _grouped(
    timeline: Timeline,
    by_compile: Mapping[CompileId, tuple[BlamedCause, ...]],
    behind: BehindBreaks,
) -> dict[str, list[Group]]:
    members: dict[CauseId, list[tuple[Cause, Recompile, Location]]] = {}
    for recompile in timeline.counted_recompiles:
        # A cause that a recompile has twice counts once: its first occurrence.
        own = {item.id: item for item in reversed(by_compile[recompile.id])}
        for key in dict.fromkeys(item.id for item in by_compile[recompile.id]):
            members.setdefault(key, []).append((own[key].cause, recompile, own[key].place))
    single: list[Group] = []
    for key, found in members.items():
        causes, again, places = zip(*found, strict=True)
        single.append(Group(key, causes, again, places[0]))
    groups: dict[str, list[Group]] = {}
    for group in by_act(single, timeline, behind):
        groups.setdefault(group.code, []).append(group)
    return groups
