"""Measures steps and writes them in batches: where a step ends is decided by `step_source.py`.

A step runs from the end of the one before it, so steps and the time between them leave no gap; the
first begins at the first sign of work (a batch, a compiled call, an optimizer). A boundary may be
tentative: it cuts the times, but the step's number does not advance until it is committed.

Invariant: session.step == first + len(records) - tentative.
"""

from __future__ import annotations

from compilediag_harness.session import Session
from compilediag_harness.wire import StepsEnded

BATCH_S = 0.25
"""A batch is written when the last one is older than this, in seconds."""

BATCH_STEPS = 512
"""... or when it holds so many steps."""

Record = tuple[float, float, float, float, float]
"""End (`time.monotonic()`), then wall, data wait, optimizer and spans in seconds."""


class StepClock:
    """The times of one session's steps; every method takes `time.monotonic()` readings."""

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.records: list[Record] = []
        """Ended steps that are not written yet, then the tentative ones."""
        self.tentative = 0
        self.began: float | None = None
        """When the step in progress began; None until the first one does."""
        self.data_wait_s = 0.0
        self.optimizer_s = 0.0
        self.spans_s = 0.0
        self.loader_seen = False
        self.optimizer_seen = False
        self.spans_seen = False
        self._attached = now
        self._written = now
        self._first = session.step
        self._compiled = False

    def begin(self, at: float) -> None:
        """Work was seen at `at`: the first step begins, unless it has."""
        if self.began is None:
            self.began = at

    def waited(self, began: float, ended: float) -> None:
        """The step waited for a batch."""
        self.loader_seen = True
        self.begin(began)
        self.data_wait_s += ended - began

    def optimized(self, began: float, ended: float) -> None:
        """An optimizer stepped."""
        self.optimizer_seen = True
        self.begin(began)
        self.optimizer_s += ended - began

    def spanned(self, began: float, ended: float) -> None:
        """An outermost span ended; what of it lies before this step is left out."""
        self.spans_seen = True
        self.spans_s += ended - (began if self.began is None else max(began, self.began))

    def cut(self, at: float) -> None:
        """Puts a tentative boundary at `at`."""
        began = self._attached if self.began is None else self.began
        self.records.append((at, at - began, self.data_wait_s, self.optimizer_s, self.spans_s))
        self.tentative += 1
        self.began = at
        self.data_wait_s = self.optimizer_s = self.spans_s = 0.0

    def commit(self) -> None:
        """Every tentative boundary was the end of a step."""
        session = self.session
        while self.tentative:
            self.tentative -= 1
            self._compiled = self._compiled or session.compiled_in_step
            session.end_step()

    def forget(self) -> None:
        """No tentative boundary was one: their times go back to the step in progress."""
        self._unwind(self.tentative)
        self.tentative = 0

    def retract(self) -> None:
        """The steps that are not written yet were none: numbers go back to the last written."""
        self._unwind(len(self.records))
        self.tentative = 0
        self.session.step = self._first

    def discard(self) -> None:
        """Drops what is not written."""
        self.records.clear()
        self.tentative = 0
        self._first = self.session.step

    def join(self) -> None:
        """The tentative stretch belongs to the step before it, or, when that is written already,
        to the step in progress."""
        if len(self.records) <= self.tentative:
            self.forget()
            return
        while self.tentative:
            self.tentative -= 1
            later, earlier = self.records.pop(), self.records.pop()
            _, wall, data_wait, optimizer, spans = earlier
            end, wall_after, data_wait_after, optimizer_after, spans_after = later
            self.records.append(
                (
                    end,
                    wall + wall_after,
                    data_wait + data_wait_after,
                    optimizer + optimizer_after,
                    spans + spans_after,
                )
            )

    def _unwind(self, count: int) -> None:
        for _ in range(count):
            end, wall, data_wait, optimizer, spans = self.records.pop()
            self.began = end - wall
            self.data_wait_s += data_wait
            self.optimizer_s += optimizer
            self.spans_s += spans

    def due(self, at: float) -> bool:
        """Whether a batch should be written: enough time or steps, or something compiled."""
        return (
            self._compiled
            or at - self._written >= BATCH_S
            or len(self.records) - self.tentative >= BATCH_STEPS
        )

    def write(self, at: float, source: str, hold: int = 0) -> None:
        """Writes the ended steps but the last `hold`, which may still change."""
        count = len(self.records) - self.tentative - hold
        if count <= 0:
            return
        ends, walls, data_wait, optimizer, spans = zip(*self.records[:count], strict=True)
        session = self.session
        session.emit(
            StepsEnded(
                t=session.at(at),
                first=self._first,
                source=source,
                ends=tuple(session.at(end) for end in ends),
                walls=walls,
                data_wait=data_wait if self.loader_seen else (),
                optimizer=optimizer if self.optimizer_seen else (),
                spans=spans if self.spans_seen else (),
            )
        )
        del self.records[:count]
        self._first += count
        self._written = at
        self._compiled = False
