"""Nested timings of one compile, each without those within it.

torch times the parts of a compile nested in each other. What each took itself adds up to the
whole, so nothing is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(slots=True)
class PhaseStack:
    """The phases of what one thread compiles."""

    open: list[_Open] = field(default_factory=list[_Open])
    own_ns: dict[str, int] = field(default_factory=dict[str, int])

    def began(self, name: str, at_ns: int) -> None:
        """A phase begins, within those that are open. With none open something new begins: what
        was timed before and has no row (an export, a kernel tuned at run time) is no part of it."""
        if not self.open:
            self.own_ns = {}
        self.open.append(_Open(name, at_ns))

    def ended(self, name: str, at_ns: int) -> None:
        """The innermost phase of this name ends, and with it what began within it: torch's own
        logger does the same."""
        if not any(phase.name == name for phase in self.open):
            return
        phase = self.open.pop()
        while phase.name != name:
            phase = self.open.pop()
        took = max(0, at_ns - phase.begun_ns)
        if not phase.reported:
            own = max(0, took - phase.inner_ns)
            self.own_ns[name] = self.own_ns.get(name, 0) + own
        if self.open:
            self.open[-1].inner_ns += took

    def leave_out(self, seconds: float) -> None:
        """Time of our own, within the phases that are open: it is no phase's."""
        if self.open:
            self.open[-1].inner_ns += round(seconds * 1e9)

    def take(self) -> Phases:
        """The phases of the compile whose row torch writes now."""
        # torch writes the row when all of a compile's phases have ended but those around it.
        taken = sorted(self.own_ns.items(), key=lambda item: -item[1])
        self.own_ns = {}
        for phase in self.open:
            phase.reported = True
        return tuple((name, round(ns / 1e9, 6)) for name, ns in taken)
