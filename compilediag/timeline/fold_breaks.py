"""Folds the reports of graph breaks into sites: one file and line is one break."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from compilediag.timeline.compiles import BreakSite
from compilediag.timeline.process import ProcessEvents
from compilediag_harness.wire import GraphBroke, Location

_BREAK_AT = re.compile(r"user code at (?P<file>[^\n]+):(?P<line>\d+)\s*(?:\n|$)")
_STACK_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)')


def break_sites(parts: Iterable[ProcessEvents]) -> tuple[BreakSite, ...]:
    """Breaks by file and line: repeats at a recompile or a restart are one site."""
    sites: dict[tuple[str, int], _BreakReports] = {}
    for part in parts:
        for event in part.of(GraphBroke):
            place = break_place(event.text)
            if place is not None:
                found = sites.setdefault((place.file, place.line), _BreakReports([], {}, {}))
                found.events.append(event)
                found.functions[place.function] = None
                found.processes[part.index] = None
    return tuple(_break_site(*place, found) for place, found in sites.items())


class _BreakReports(NamedTuple):
    """What was told of one line; mappings are ordered sets."""

    events: list[GraphBroke]
    functions: dict[str, None]
    processes: dict[int, None]


def _break_site(file: str, line: int, found: _BreakReports) -> BreakSite:
    first = found.events[0]
    return BreakSite(
        file,
        line,
        next((name for name in found.functions if name), ""),
        first.text,
        len(found.events),
        tuple(dict.fromkeys(event.compile_id for event in found.events)),
        first.step,
        tuple(found.processes),
    )


@lru_cache(maxsize=1024)
def break_place(text: str) -> Location | None:
    """Where torch says a graph break is: its headline, else the innermost line of its stack.

    Remembered: torch repeats a report at each recompile, and ranks break at the same places.
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
