"""Everything behind a count as lines of text: each cause, break, frame and compile. Pure.

Text of the program under test goes through `views.text.clean`; nothing is cut but what is longer
than a line of a terminal can bear.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.diagnose import Diagnosis
from compilediag.diagnosis.findings import Cause, Finding
from compilediag.diagnosis.rules.break_text import read_break
from compilediag.receipt.build.relative_paths import PathShortener
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Recompile, Timeline
from compilediag.views.text import clean
from compilediag.views.words import seconds, steps
from compilediag_harness.wire import Location

_MOST_CHANGES = 8
_VALUE_CHARS = 120
_FOLDED_CHARS = 2000


@dataclass(slots=True)
class _Group:
    """One cause over all the recompiles it had a part in."""

    first: Cause
    place: Location
    recompiles: list[Recompile]
    changes: dict[tuple[str | None, str | None], None]
    writers: dict[Location, None]
    guards: dict[str, None]


class Listing:
    """Writes the lines of one run, with its paths and what the rules know of its causes."""

    def __init__(self, timeline: Timeline, diagnosis: Diagnosis) -> None:
        self._timeline = timeline
        self._findings = diagnosis.findings
        self._causes = diagnosis.causes
        self._places = PathShortener(timeline)

    def causes(self, recompiles: Iterable[Recompile]) -> list[str]:
        """Every cause of these recompiles with its variable, place, guard, writers and fix."""
        groups, unknown = self._grouped(recompiles)
        lines: list[str] = []
        for group in groups:
            lines += self._cause(group)
        for item in unknown:
            why = "; ".join(item.reasons) or item.problem or "torch gave no reason"
            name = self._name(item.frame)
            lines += [
                f"CD190 could not determine why torch compiled {name} again",
                f"  {self.at(item.frame)} · {self._when([item])}",
                f"  torch says: {self._text(why)}",
            ]
        return lines

    def cause_of(self, rule: str, variable: str | None) -> list[str]:
        """The lines of one cause; none where this run has no such cause."""
        groups, _ = self._grouped(self._timeline.recompiles)
        same = [g for g in groups if g.first.rule == rule and g.first.variable == variable]
        return [line for group in same for line in self._cause(group)]

    def breaks(self, sites: Iterable[BreakSite]) -> list[str]:
        """Every graph break with its place, torch's reason and the fix."""
        lines: list[str] = []
        for site in sites:
            where = Location(site.file, site.line, site.function)
            told = self._finding_at("CD2", where)
            title = read_break(site.text).title if told is None else told.title
            code = "graph break" if told is None else told.rule
            lines += [f"{code} {self._text(title)}", f"  {self.at(where)}", *self._fix(told)]
        return lines

    def eager(self, frames: Iterable[Frame]) -> list[str]:
        """Every frame that ran without compiled code, and why."""
        lines: list[str] = []
        for frame in frames:
            told = self._finding_at("CD", frame.where, ("CD152", "CD154", "CD904", "CD210"))
            reason = (frame.eager_reason or "torch gave no reason").strip().splitlines()[0]
            code = "CD904" if told is None else told.rule
            lines += [
                f"{code} {self._name(frame.where)} ran eager: {self._text(reason)}",
                f"  {self.at(frame.where)}",
                *self._fix(told),
            ]
        return lines

    def frames(self, frames: Iterable[Frame]) -> list[str]:
        """Every frame with how often it was compiled."""
        return [
            f"{self._name(frame.where)}: compiled {_times(frame.compiles)} · {self.at(frame.where)}"
            for frame in frames
        ]

    def compiles(self, compiles: Iterable[Compile]) -> list[str]:
        """Every attempt to compile, backward ones included."""
        return [
            f"{clean(item.compile_id, limit=40)} {self._kind(item)} · {self.at(item.frame)} · "
            f"step {item.step} · {seconds(item.seconds)}"
            for item in compiles
        ]

    def at(self, where: Location) -> str:
        """`model.py:7 in forward`."""
        file = clean(self._places.short(where.file), limit=400) or "could not determine where"
        line = f":{where.line}" if where.line else ""
        function = f" in {clean(where.function, limit=80)}" if where.function else ""
        return f"{file}{line}{function}"

    # --- causes ---

    def _grouped(self, recompiles: Iterable[Recompile]) -> tuple[list[_Group], list[Recompile]]:
        groups: dict[tuple[str, ...], _Group] = {}
        unknown: list[Recompile] = []
        for item in recompiles:
            causes = self._causes.blamed(item)
            if not causes:
                unknown.append(item)
            for cause, place, _ in causes:
                key = (cause.rule, cause.variable, place.file, place.function, cause.kind or "")
                group = groups.setdefault(key, _Group(cause, place, [], {}, {}, {}))
                if item not in group.recompiles:
                    group.recompiles.append(item)
                group.changes[cause.expected, cause.actual] = None
                group.guards[cause.guard] = None
                group.writers.update(dict.fromkeys(cause.writers))
        return list(groups.values()), unknown

    def _cause(self, group: _Group) -> list[str]:
        cause = group.first
        found = self._finding(cause, group.place)
        title = found.title if found is not None else info(cause.rule).sentence
        told = [_change(pair) for pair in group.changes if None not in pair]
        more = f" (+{len(told) - _MOST_CHANGES} more)" if len(told) > _MOST_CHANGES else ""
        changed = ", ".join(told[:_MOST_CHANGES]) + more
        variable = clean(cause.variable, limit=_VALUE_CHARS) or "the variable is not known"
        ids = ", ".join(clean(item.compile_id, limit=40) for item in group.recompiles)
        word = "compile" if len(group.recompiles) == 1 else "compiles"
        lines = [
            f"{cause.rule} {self._text(title)}: {variable}  {changed}".rstrip(),
            f"  {self.at(group.place)} · {self._when(group.recompiles)} · {word} {ids}",
        ]
        lines += [f"  guard: {self._text(guard)}" for guard in list(group.guards)[:_MOST_CHANGES]]
        writers = [f"{clean(w.function, limit=80)}, {self.at(_bare(w))}" for w in group.writers]
        lines += [f"  written by {writer}" for writer in writers]
        return [*lines, *(self._fix(found) or [f"  fix: see compilediag explain {cause.rule}"])]

    def _when(self, recompiles: Sequence[Recompile]) -> str:
        cost = sum(item.seconds for item in recompiles)
        return f"{steps([item.step for item in recompiles])} · {seconds(cost)}"

    def _finding(self, cause: Cause, place: Location) -> Finding | None:
        for each in self._findings:
            same = each.rule == cause.rule and (each.variable or "") == cause.variable
            if same and each.location is not None and each.location.file == place.file:
                return each
        return None

    def _finding_at(self, family: str, where: Location, only: Sequence[str] = ()) -> Finding | None:
        for each in self._findings:
            if not each.rule.startswith(family) or (only and each.rule not in only):
                continue
            place = each.location
            if place is not None and (place.file, place.line) == (where.file, where.line):
                return each
        return None

    def _fix(self, finding: Finding | None) -> list[str]:
        if finding is None:
            return []
        lines = [f"  fix: {self._text(finding.fix.summary)}"]
        if finding.fix.caveat:
            lines.append(f"  note: {self._text(finding.fix.caveat)}")
        return lines

    def _name(self, where: Location) -> str:
        return clean(where.function, limit=80) or "a frame"

    def _kind(self, item: Compile) -> str:
        said = {
            "first": "compiled for the first time",
            "recompile": "compiled again",
            "limit": "the recompile limit was hit",
            "failed": "could not be compiled",
            "backward": "backward compiled",
        }
        return said.get(item.kind, item.kind)

    def _text(self, text: str) -> str:
        return clean(self._places.shorten(text), limit=_FOLDED_CHARS)


def _bare(where: Location) -> Location:
    return Location(where.file, where.line)


def _change(pair: tuple[str | None, str | None]) -> str:
    expected, actual = (clean(value, limit=_VALUE_CHARS) for value in pair)
    return f"{expected} → {actual}"


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")
