"""How long each phase of a compile took, without the phases within it.

torch times the parts of a compile nested in each other. What each took itself adds up to the
whole, so nothing is counted twice.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

Phases = tuple[tuple[str, float], ...]
"""Names as torch gives them, with seconds, the longest first."""


@dataclass(slots=True)
class _Open:
    """A phase in progress."""

    name: str
    begun_ns: int
    inner_ns: int = 0
    """Of what was in it: other phases, and our own analysis."""
    reported: bool = False
    """The row of its compile was written before it ended: what is left belongs to no compile."""


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.own_ns: dict[str, int] = {}


class PhaseTimes:
    """The phases of the compiles in progress, one in each thread."""

    def __init__(self) -> None:
        self.seen = False
        """Whether torch's timing reaches `began` and `ended`."""
        self._thread = _OfThread()

    def began(self, name: str, at_ns: int) -> None:
        """A phase begins, within those that are open in this thread. With none open something new
        begins: what was timed before and has no row (an export, a kernel tuned at run time) is no
        part of it."""
        if not self._thread.open:
            self._thread.own_ns = {}
        self._thread.open.append(_Open(name, at_ns))

    def ended(self, name: str, at_ns: int) -> None:
        """The innermost phase of this name ends, and with it what began within it: torch's own
        logger does the same."""
        thread = self._thread
        if not any(phase.name == name for phase in thread.open):
            return
        phase = thread.open.pop()
        while phase.name != name:
            phase = thread.open.pop()
        took = max(0, at_ns - phase.begun_ns)
        if not phase.reported:
            own = max(0, took - phase.inner_ns)
            thread.own_ns[name] = thread.own_ns.get(name, 0) + own
        if thread.open:
            thread.open[-1].inner_ns += took

    def leave_out(self, seconds: float) -> None:
        """Time of our own, within the phases that are open: it is no phase's."""
        if self._thread.open:
            self._thread.open[-1].inner_ns += round(seconds * 1e9)

    def take(self) -> Phases | None:
        """The phases of the compile whose row torch writes now in this thread; None where they are
        not seen."""
        if not self.seen:
            return None
        # torch writes the row when all of a compile's phases have ended but those around it.
        thread = self._thread
        taken = sorted(thread.own_ns.items(), key=lambda item: -item[1])
        thread.own_ns = {}
        for phase in thread.open:
            phase.reported = True
        return tuple((name, round(ns / 1e9, 6)) for name, ns in taken)
