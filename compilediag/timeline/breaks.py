"""Graph breaks: torch's reports folded into sites, one for each file and line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from compilediag.timeline.compiles import Compile, CompileId
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.process import ProcessEvents
from compilediag_harness.wire import GraphBroke, Location, UserCall

_BREAK_AT = re.compile(r"user code at (?P<file>[^\n]+):(?P<line>\d+)\s*(?:\n|$)")
_ATTEMPT = re.compile(r"_\d+$")
_STACK_CODE = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)\n {3,8}(?! *File ")([^\n]*)')
_STACK_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)')


class BreakLine(NamedTuple):
    """A graph break is one line of the program, however often torch reports it."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class BreakSite:
    """A graph break by place: torch reports one site again at each recompile and restart."""

    file: str
    line: int
    function: str
    text: str
    """torch's whole report, the first one."""
    count: int
    """Reports, repeats included."""
    compile_ids: tuple[str, ...]
    first_step: int
    processes: tuple[int, ...] = ()
    """Indexes of the processes that reported it, ascending."""
    entered_at: UserCall | None = None
    entered_from: str = ""
    """Of the compile that reported it first, as in `Compile`; of a break in a library the program's
    own line that was compiled with it, where there is one."""

    @property
    def at(self) -> BreakLine:
        return BreakLine(self.file, self.line)


def break_sites(
    parts: Iterable[ProcessEvents],
    compiles: Iterable[Compile] = (),
    user_roots: Sequence[str] = (),
) -> tuple[BreakSite, ...]:
    """Breaks by file and line: repeats at a recompile or a restart are one site. `compiles`: of all
    these processes; `user_roots`: folders of the user's own files."""
    entered = {item.id: item for item in compiles if item.forward}
    sites: dict[BreakLine, list[tuple[int, str, GraphBroke]]] = {}
    for part in parts:
        for event in part.of(GraphBroke):
            place = break_place(event.text)
            if place is not None:
                reports = sites.setdefault(BreakLine(place.file, place.line), [])
                reports.append((part.index, place.function, event))
    found: list[BreakSite] = []
    for at, reports in sites.items():
        first = reports[0][2]
        ids = [
            CompileId(process, event.epoch, _ATTEMPT.sub("", event.compile_id))
            for process, _, event in reports
        ]
        compiled = next((entered[each] for each in ids if each in entered), None)
        call, thread = (compiled.entered_at, compiled.entered_from) if compiled else (None, "")
        inside = _inside(at, first.text, user_roots)
        if inside is not None and (
            call is None or (inside.file, inside.line) != (call.file, call.line)
        ):
            call, thread = inside, ""
        found.append(
            BreakSite(
                file=at.file,
                line=at.line,
                function=next((function for _, function, _ in reports if function), ""),
                text=first.text,
                count=len(reports),
                compile_ids=tuple(dict.fromkeys(event.compile_id for _, _, event in reports)),
                first_step=first.step,
                processes=tuple(dict.fromkeys(process for process, _, _ in reports)),
                entered_at=call,
                entered_from=thread,
            )
        )
    return tuple(found)


def _inside(at: BreakLine, text: str, user_roots: Sequence[str]) -> UserCall | None:
    """The innermost line of the program's own in the report of a break in a library."""
    if ownership_of(at.file, user_roots) == "user":
        return None
    above = text.split("\nTraceback (most recent call last)", maxsplit=1)[0]
    for file, line, name, source in reversed(_STACK_CODE.findall(above)):
        if ownership_of(file, user_roots) == "user":
            return UserCall(file, int(line), name.strip(), source.strip())
    return None


@lru_cache(maxsize=1024)
def break_place(text: str) -> Location | None:
    """Where torch says a graph break is: its headline, else the innermost line of its stack.

    Cached: torch repeats a report at each recompile, and ranks break at the same places.
    """
    above = text.split("\nTraceback (most recent call last)", maxsplit=1)[0]
    stack = [
        Location(found["file"], int(found["line"]), found["function"].strip())
        for found in _STACK_LINE.finditer(above)
    ]
    headline = _BREAK_AT.search(text.split("\n", 1)[0] + "\n")
    if headline is None:
        return stack[-1] if stack else None
    file, line = headline["file"], int(headline["line"])
    same = [place for place in stack if place.file == file and place.line == line]
    return Location(file, line, same[-1].function if same else "")
