"""Phases of the step in progress, flattened so that every second is counted once.

Where phases nest, the innermost has the time; a span, and the wait for a batch, have all of theirs,
whatever runs inside them. A span that holds the end of a step is no phase of one. Phases that have
ended are flattened when the step ends: spans may be added later than what ended after them.

Invariant: the phases of a step never add up to more than its wall time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compilediag_harness.user_api.spans import (
    BACKWARD,
    DATA_WAIT,
    FORWARD,
    HOLDS_PHASES,
    NAMES,
    REST,
    SPANS,
)

Seconds = tuple[float, float, float, float, float]
"""Seconds by phase, in the order of `NAMES`."""

NOTHING: Seconds = (0.0, 0.0, 0.0, 0.0, 0.0)

MAX_INTERVALS = 256
"""Most intervals of one step in memory; of more, the oldest are final. Bounds the memory of a
step with thousands of micro-batches."""

EndedPhase = tuple[int, float, float]
"""A phase that has ended: which, begin, end."""

_Interval = tuple[float, float, int, float]
"""Begin, end, phase, and the seconds that are this phase's own."""


class PhasesInProgress:
    """The phases of one thread's step in progress; times are `time.monotonic()` readings."""

    def __init__(self) -> None:
        self.seen = [False] * len(NAMES)
        """Which phases were ever measured."""
        self.before_flattening: Callable[[], None] = lambda: None
        """Called when so much has ended in a step that it will not wait for the end of the step:
        spans that have ended must be added now."""
        self._open: list[tuple[int, float]] = []
        self._ended: list[EndedPhase] = []
        """Phases that are not flattened yet, in order of their ends."""
        self._intervals: list[_Interval] = []
        """In order of their ends: what nests in an interval comes before it and begins after it."""
        self._settled = [0.0] * len(NAMES)
        self._floor = float("-inf")
        """Time before it is counted already, or belongs to no step."""
        self._cut_at = float("-inf")

    def restart(self, at: float) -> None:
        """Begin the first step at `at`: what was before is no step's."""
        self._floor = at
        self._ended.clear()
        self._intervals.clear()
        self._settled = [0.0] * len(NAMES)

    def forget_open(self) -> None:
        """Forget what is open: it belongs to another thread or process."""
        self._open.clear()

    def open(self, phase: int, at: float) -> None:
        """Begin a phase (an index of `NAMES`) inside of those that are open."""
        self._open.append((phase, at))

    @property
    def has_open(self) -> bool:
        """A phase is open."""
        return bool(self._open)

    def close(self, phase: int, at: float) -> None:
        """End the newest open phase of that kind; what was opened in it and never closed ended by
        an exception, which is not reported."""
        opened = self._open
        for index in range(len(opened) - 1, -1, -1):
            if opened[index][0] == phase:
                began = opened[index][1]
                del opened[index:]
                self.add(phase, began, at)
                return

    def get_name_at(self, began: float) -> str:
        """Get the name of the phase that something which began at `began` is in."""
        for phase, opened in reversed(self._open):
            if opened <= began:
                return NAMES[phase]
        return REST

    @property
    def has_ended(self) -> bool:
        """True if phases have ended that are not flattened yet."""
        return bool(self._ended)

    def find_holding(self, began: float, ended: float) -> str | None:
        """Find the innermost phase, spans apart, that ended and held this; its name, or None."""
        innermost, since = None, float("-inf")
        for phase, opened, closed in reversed(self._ended):
            if closed < ended:
                break
            if since <= opened <= began and phase != SPANS:
                innermost, since = NAMES[phase], opened
        return innermost

    def add(self, phase: int, began: float, ended: float) -> None:
        """Add a phase that has ended, now. It may nest in an open one, and others in it."""
        self.seen[phase] = True
        # Recomputed activations run the forward again: that is the backward's work.
        if phase == FORWARD and self._open and BACKWARD in (outer for outer, _ in self._open):
            return
        if len(self._ended) >= MAX_INTERVALS:
            self.before_flattening()
            self._flatten()
        self._ended.append((phase, began, ended))

    def add_spans(self, spans: Sequence[EndedPhase]) -> None:
        """Add spans that have ended, in the order of their ends; others may have ended since."""
        for phase in {span[0] for span in spans} - {HOLDS_PHASES, SPANS}:
            self.seen[phase] = True
        in_order = not self._ended
        self._ended.extend(spans)
        if not in_order:
            # Of what ends together, the later it began the further inside.
            self._ended.sort(key=lambda span: (span[2], -span[1]))
        if len(self._ended) >= MAX_INTERVALS:
            self._flatten()

    def _flatten(self) -> None:
        intervals = self._intervals
        last = intervals[-1][1] if intervals else self._floor
        for phase, began, ended in self._ended:
            if phase == HOLDS_PHASES or (phase == SPANS and began < self._cut_at):
                continue
            if phase == SPANS:
                self.seen[SPANS] = True
            if last <= began < ended:  # after all others: the usual case
                intervals.append((began, ended, phase, ended - began))
                last = ended
            else:
                self._nest(phase, began, ended)
                last = intervals[-1][1] if intervals else self._floor
        self._ended.clear()
        if len(intervals) > MAX_INTERVALS:
            final = intervals[: -(MAX_INTERVALS // 2)]
            for _, _, phase, seconds in final:
                self._settled[phase] += seconds
            self._floor = max(self._floor, final[-1][1])
            del intervals[: len(final)]

    def _nest(self, phase: int, began: float, ended: float) -> None:
        """Add a phase that others may lie in, or that began before its step."""
        intervals = self._intervals
        index = len(intervals)
        while index and intervals[index - 1][0] >= began:
            index -= 1
        if phase == SPANS:
            del intervals[index:]
        elif phase == DATA_WAIT:
            intervals[index:] = [interval for interval in intervals[index:] if interval[2] == SPANS]
        # Phases that overlap without nesting share nothing: the earlier keeps what it has.
        before = intervals[index - 1][1] if index else self._floor
        own = ended - max(began, before) - sum(interval[3] for interval in intervals[index:])
        if own > 0.0:
            intervals.append((began, ended, phase, own))

    def cut_step(self, at: float) -> Seconds:
        """End the step at `at`. Returns its seconds by phase, in the order of `NAMES`; open phases
        go on in the next step."""
        # Invariant: while one is added, `_open` holds those around it alone: `add` looks at them.
        opened = self._open
        for index in range(len(opened) - 1, -1, -1):  # counted up to `at`, innermost first
            self._open = opened[:index]
            self.add(*opened[index], at)
        self._open = opened
        self._flatten()
        settled, self._settled = self._settled, [0.0] * len(NAMES)
        for _, _, phase, seconds in self._intervals:
            settled[phase] += seconds
        self._intervals.clear()
        self._floor = self._cut_at = at
        data_wait, forward, backward, optimizer, spans = settled
        return data_wait, forward, backward, optimizer, spans

    def give_back(self, seconds: Seconds) -> None:
        """Give a step that was none back: its phases are a part of the step in progress."""
        for phase, taken in enumerate(seconds):
            self._settled[phase] += taken
