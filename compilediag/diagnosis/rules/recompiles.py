"""Turns the causes of all counted recompiles into findings: one mechanism, families bring words.

Causes with one rule, variable and blamed function are one finding, over all steps and processes.
The seconds of a recompile go to its primary cause: how much of them another cause would have
cost alone nobody measured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compilediag.diagnosis.causes import causes_of
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Cause, Confidence, Finding, Fix
from compilediag.diagnosis.ownership import ownership_of
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import Location

_BY_KIND = frozenset(("CD105", "CD110", "CD111", "CD118"))
"""Codes whose kinds have different fixes: each kind is a finding of its own."""

_MOST_VALUES = 8
"""Distinct changes kept in the evidence."""


@dataclass(frozen=True, slots=True)
class Group:
    """The same cause in one or many recompiles; `causes` and `recompiles` are parallel."""

    code: str
    causes: tuple[Cause, ...]
    recompiles: tuple[Recompile, ...]
    location: Location
    planned: bool = False
    """Sizes that a warm-up compiled for: what was wanted, and no fault."""

    @property
    def first(self) -> Cause:
        return self.causes[0]

    @property
    def variable(self) -> str:
        return self.first.variable

    @property
    def name(self) -> str:
        """The variable for use in a sentence."""
        return f"`{self.variable}`" if self.variable else "the value"

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
        pairs = zip(self.causes, self.recompiles, strict=True)
        seconds = [recompile.seconds for cause, recompile in pairs if cause.primary]
        return sum(seconds) if any(seconds) else None

    @property
    def values(self) -> list[list[str | None]]:
        """Distinct [expected, actual] pairs, in order of appearance."""
        pairs = dict.fromkeys((cause.expected, cause.actual) for cause in self.causes)
        return [list(pair) for pair in pairs][:_MOST_VALUES]


@dataclass(frozen=True, slots=True)
class Wording:
    """What a family says about a group."""

    title: str
    """What happened, without the variable and its change: views print those beside it."""
    fix: str
    """The preferred fix, in the imperative."""
    caveat: str | None = None
    """What the fix costs, as measured."""


_PLANNED = Wording(
    "tensor argument of another size, in the warm-up of its fixed sizes",
    "nothing: each size is compiled once, before it is used",
)


Groups = Mapping[str, Sequence[Group]]
"""Groups by code, in the order of their first recompile."""


class RecompileRule(NamedTuple):
    """The rule of one code: its groups, in the family's words."""

    code: str
    word: Callable[[Group], Wording]
    enrich: Callable[[Finding, Timeline], Finding] | None = None
    """Adds to a finding what else the run tells of it."""

    def __call__(self, timeline: Timeline) -> Iterable[Finding]:
        return self.told(timeline, groups_of(timeline))

    def told(self, timeline: Timeline, groups: Groups) -> Iterable[Finding]:
        """The findings, where the timeline's groups are there already: two dozen rules share them,
        and a run may have thousands of recompiles."""
        for group in groups.get(self.code, ()):
            words = _PLANNED if group.planned else self.word(group)
            found = _finding(group, words, timeline.user_roots)
            yield found if self.enrich is None else self.enrich(found, timeline)


def groups_of(timeline: Timeline) -> Groups:
    """The groups of every code."""
    members: dict[tuple[Hashable, ...], list[tuple[Cause, Recompile, Location]]] = {}
    for recompile in timeline.counted_recompiles:
        seen: set[Hashable] = set()
        for cause in causes_of(recompile):
            code = cause.rule
            place = blamed(cause, recompile.frame, timeline.user_roots)
            planned = code == "CD105" and _in_warmup(recompile, timeline)
            key = (code, cause.variable, place.file, place.function, _kind_of(cause), planned)
            if key not in seen:
                seen.add(key)
                members.setdefault(key, []).append((cause, recompile, place))
    groups: dict[str, list[Group]] = {}
    for (code, *_, planned), found in members.items():
        causes, recompiles, places = zip(*found, strict=True)
        group = Group(str(code), causes, recompiles, places[0], bool(planned))
        groups.setdefault(group.code, []).append(group)
    return groups


def _in_warmup(recompile: Recompile, timeline: Timeline) -> bool:
    """A `FixedShape` was calling what it wraps at every size it will run at."""
    return any(
        warmed.began <= recompile.t <= warmed.t
        for item in timeline.fixed_shapes
        if item.process == recompile.process
        for warmed in item.warmed
    )


def blamed(cause: Cause, frame: Location, user_roots: tuple[str, ...]) -> Location:
    """The line to change: the user's line of the guard; where that lies in torch itself (an
    optimizer, a layer of torch.nn), the frame that was compiled, if that is not torch's too."""
    if cause.location is None:
        return frame
    if ownership_of(cause.location.file, user_roots) != "torch":
        return cause.location
    return cause.location if ownership_of(frame.file, user_roots) == "torch" else frame


def _kind_of(cause: Cause) -> str | None:
    return cause.kind if cause.rule in _BY_KIND else None


def _finding(group: Group, wording: Wording, user_roots: tuple[str, ...]) -> Finding:
    register = info(group.code)
    exact = any(cause.confidence == "exact" for cause in group.causes)
    confidence: Confidence = "exact" if exact else "text"
    return Finding(
        rule=group.code,
        slug=register.slug,
        severity="info" if group.planned else register.severity,
        confidence=confidence,
        family=register.family,
        variable=group.variable or None,
        title=wording.title,
        location=group.location,
        ownership=ownership_of(group.location.file, user_roots),
        count=len(group.recompiles),
        steps=tuple(sorted({recompile.step for recompile in group.recompiles})),
        cost_s=group.cost_s,
        fix=Fix(wording.fix, register.how, wording.caveat),
        evidence=_evidence(group),
    )


def _evidence(group: Group) -> dict[str, object]:
    first = group.first
    writers = dict.fromkeys(writer for cause in group.causes for writer in cause.writers)
    return {
        "compile_ids": [recompile.compile_id for recompile in group.recompiles],
        "roles": ["primary" if cause.primary else "also" for cause in group.causes],
        "processes": sorted({recompile.process for recompile in group.recompiles}),
        "kind": first.kind,
        "expected": first.expected,
        "actual": first.actual,
        "values": group.values,
        "guard": first.guard,
        "source": first.source,
        "writers": [
            {"function": writer.function, "file": writer.file, "line": writer.line}
            for writer in writers
        ],
    }
