"""Turns the causes of all counted recompiles into findings: one mechanism for all families.

Causes with one rule, variable and blamed function are one finding, over all steps and processes.
The seconds of a recompile go to its primary cause: nobody measured how much of them another cause
would have cost alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compilediag.diagnosis.causes import causes_of
from compilediag.diagnosis.findings import Cause, Finding
from compilediag.diagnosis.ownership import ownership_of
from compilediag.diagnosis.rules.make_finding import make_finding, pick
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import Location

_BY_KIND = frozenset(("CD105", "CD110", "CD111", "CD118"))
"""Codes whose kinds have different fixes: each kind is a finding of its own."""

_MAX_VALUES = 8
"""Distinct changes kept in the evidence."""


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """The same cause in one or more recompiles; `causes` and `recompiles` are parallel."""

    code: str
    causes: tuple[Cause, ...]
    recompiles: tuple[Recompile, ...]
    location: Location
    planned: bool = False
    """Sizes that a warm-up compiled on purpose: no fault."""

    @property
    def first(self) -> Cause:
        return self.causes[0]

    @property
    def kind(self) -> str | None:
        return self.first.kind

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
        return [list(pair) for pair in pairs][:_MAX_VALUES]

    def fill(self, text: str) -> str:
        """The text of a `Wording` with this group's names in it."""
        variable, function = self.first.variable, self.location.function
        return text.format(
            name=f"`{variable}`" if variable else "the value",
            function=f"`{function}`" if function else "the function",
            variable=variable,
            **{letter: variable or letter for letter in "dix"},
            inputs=variable or "the inputs",
            kind=self.kind,
            setting=(self.kind or "").replace("_", " "),
            guard=self.first.guard,
            dimension=_dimension(self.first),
        )


class Wording(NamedTuple):
    """What a family reports of a group; the fields of `CauseGroup.fill` stand in braces."""

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

Groups = Mapping[str, Sequence[CauseGroup]]
"""Groups by code, in the order of their first recompile."""


class RecompileRule(NamedTuple):
    """The rule of one code: its groups, in the family's words."""

    code: str
    wording_of: Callable[[CauseGroup], Wording]
    enrich: Callable[[Finding, Timeline], Finding] | None = None
    """Adds to a finding what else is recorded about it in the run."""

    def __call__(self, timeline: Timeline) -> Iterable[Finding]:
        return self.findings(timeline, groups_of(timeline))

    def findings(self, timeline: Timeline, groups: Groups) -> Iterable[Finding]:
        """The findings from groups made once: two dozen rules share them, and a run may have
        thousands of recompiles."""
        for group in groups.get(self.code, ()):
            wording = _PLANNED if group.planned else self.wording_of(group)
            found = _finding(timeline, group, wording)
            yield found if self.enrich is None else self.enrich(found, timeline)


def groups_of(timeline: Timeline) -> Groups:
    """The groups of every code."""
    members: dict[tuple[Hashable, ...], list[tuple[Cause, Recompile, Location]]] = {}
    for recompile in timeline.counted_recompiles:
        seen: set[Hashable] = set()
        for cause in causes_of(recompile):
            code = cause.rule
            location = blamed(cause, recompile.frame, timeline.user_roots)
            planned = code == "CD105" and _in_warmup(recompile, timeline)
            kind = cause.kind if code in _BY_KIND else None
            key = (code, cause.variable, location.file, location.function, kind, planned)
            if key not in seen:
                seen.add(key)
                members.setdefault(key, []).append((cause, recompile, location))
    groups: dict[str, list[CauseGroup]] = {}
    for (code, *_, planned), found in members.items():
        causes, recompiles, locations = zip(*found, strict=True)
        group = CauseGroup(str(code), causes, recompiles, locations[0], bool(planned))
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


def _dimension(cause: Cause) -> str:
    """The dimension that torch named, else the first one that differs between the two sizes."""
    named = re.search(r"at index (\d+)", cause.guard)
    if named is not None:
        return named[1]
    before = re.findall(r"[\d*]+", cause.expected or "")
    after = re.findall(r"[\d*]+", cause.actual or "")
    if len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            if old not in (new, "*"):
                return str(index)
    return "dim"


def _finding(timeline: Timeline, group: CauseGroup, wording: Wording) -> Finding:
    first, causes, recompiles = group.first, group.causes, group.recompiles
    return make_finding(
        timeline,
        group.code,
        group.fill(wording.title),
        group.fill(wording.fix),
        caveat=wording.caveat,
        location=group.location,
        variable=first.variable or None,
        severity="info" if group.planned else None,
        confidence="exact" if any(item.confidence == "exact" for item in causes) else "text",
        count=len(recompiles),
        steps=(recompile.step for recompile in recompiles),
        cost_s=group.cost_s,
        evidence={
            "compile_ids": [recompile.compile_id for recompile in recompiles],
            "roles": ["primary" if cause.primary else "also" for cause in causes],
            "processes": sorted({recompile.process for recompile in recompiles}),
            **pick(first, "kind", "expected", "actual"),
            "values": group.values,
            **pick(first, "guard", "source"),
            "writers": [
                pick(writer, "function", "file", "line")
                for writer in dict.fromkeys(writer for cause in causes for writer in cause.writers)
            ],
        },
    )
