"""Nested timings of one compile, each without those within it.

torch times the parts of a compile nested in each other. What each took itself adds up to the
whole, so nothing is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Phases = tuple[tuple[str, float], ...]
"""Names as torch gives them, with seconds, the longest first."""

PhaseSpans = tuple[tuple[str, float, float], ...]
"""Names as torch gives them, with seconds from the start of the compile to the start of the phase,
and its seconds, those of the phases within it included; in order of their starts."""

SPANS_KEPT = 100
"""Most spans of one compile, the longest; and none below a thousandth of it: a picture of a run
draws them."""


class TimedPhases(NamedTuple):
    """The phases of one compile."""

    own: Phases
    spans: PhaseSpans


@dataclass(slots=True)
class _Open:
    """A phase in progress."""

    name: str
    begun_ns: int
    inner_ns: int = 0
    """Of what was in it: other phases, and our own analysis."""
    left_out_ns: int = 0
    """Time of our own before it began."""
    reported: bool = False
    """The row of its compile was written before it ended: what is left belongs to no compile."""


@dataclass(slots=True)
class PhaseStack:
    """The phases of what one thread compiles."""

    open: list[_Open] = field(default_factory=list[_Open])
    own_ns: dict[str, int] = field(default_factory=dict[str, int])
    _ended: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    """Name, start and end of the phases in `own_ns`."""
    _left_out_ns: int = 0
    """Time of our own since nothing was open: spans are drawn as if it had not passed."""

    def began(self, name: str, at_ns: int) -> None:
        """A phase begins, within those that are open. With none open something new begins: what
        was timed before and has no row (an export, a kernel tuned at run time) is no part of it."""
        if not self.open:
            self.own_ns, self._ended, self._left_out_ns = {}, [], 0
        self.open.append(_Open(name, at_ns, left_out_ns=self._left_out_ns))

    def ended(self, name: str, at_ns: int) -> None:
        """The innermost phase of this name ends, and with it what began within it: torch's own
        logger does the same."""
        if name not in [phase.name for phase in self.open]:
            return
        phase = self.open.pop()
        while phase.name != name:
            phase = self.open.pop()
        took = max(0, at_ns - phase.begun_ns)
        if not phase.reported:
            own = max(0, took - phase.inner_ns)
            self.own_ns[name] = self.own_ns.get(name, 0) + own
            start = phase.begun_ns - phase.left_out_ns
            self._ended.append((name, start, max(start, at_ns - self._left_out_ns)))
        if self.open:
            self.open[-1].inner_ns += took

    def leave_out(self, seconds: float) -> None:
        """Time of our own, within the phases that are open: it is no phase's."""
        if self.open:
            self.open[-1].inner_ns += round(seconds * 1e9)
            self._left_out_ns += round(seconds * 1e9)

    def take(self) -> TimedPhases:
        """The phases of the compile whose row torch writes now."""
        # torch writes the row when all of a compile's phases have ended but those around it.
        own = sorted(self.own_ns.items(), key=lambda item: -item[1])
        spans = _spans(self._ended)
        self.own_ns, self._ended = {}, []
        for phase in self.open:
            phase.reported = True
        return TimedPhases(tuple((name, round(ns / 1e9, 6)) for name, ns in own), spans)


def _spans(ended: list[tuple[str, int, int]]) -> PhaseSpans:
    if not ended:
        return ()
    first, last = min(start for _, start, _ in ended), max(end for _, _, end in ended)
    shortest = (last - first) / 1000
    drawn = [item for item in ended if item[2] - item[1] > shortest]
    kept = sorted(drawn, key=lambda item: item[1] - item[2])[:SPANS_KEPT]
    return tuple(
        (name, (start - first) / 1e9, (end - start) / 1e9)
        for name, start, end in sorted(kept, key=lambda item: (item[1], -item[2]))
    )
