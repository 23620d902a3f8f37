"""Functions that ran code which another process compiled."""

from __future__ import annotations

from dataclasses import dataclass

from compilediag.timeline.process import ProcessEvents
from compilediag_harness.wire import Location, PrecompiledCalled, PrecompiledLoaded


@dataclass(frozen=True, slots=True)
class Precompiled:
    """One function of one process."""

    process: int
    function: Location
    entries: int
    """Compiled variants that were loaded."""
    called: bool
    """One of them ran."""


def precompiled_of(part: ProcessEvents) -> list[Precompiled]:
    """The functions of a process, in the order in which they were loaded."""
    called = {item.function for item in part.of(PrecompiledCalled)}
    entries: dict[Location, int] = {}
    for item in part.of(PrecompiledLoaded):
        entries[item.function] = entries.get(item.function, 0) + item.entries
    return [
        Precompiled(part.index, function, count, function in called)
        for function, count in entries.items()
    ]
