"""One receiver in a thread of its own: it may be slow, refuse or hang, and costs nobody but itself.

The newest reading waits, and a bounded number of spans; what finds no place is counted. Pushes
begin at least the period apart; when the run has ended there is one last push, at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from compilediag.runs.telemetry.snapshot import MetricsSnapshot
from compilediag.runs.telemetry.spans import ExportedSpan

QUEUE_SPANS = 2048
"""Most spans that wait."""

BATCH_SPANS = 512
"""Most spans in one push."""


class NotTaken(Exception):
    """A receiver did not take a push; the text says why."""


class Sink(Protocol):
    """Where readings and spans go. Methods are called in one thread, and may take long.

    Whatever they raise costs the push, not the run.
    """

    name: str
    """A word: "otlp"."""
    where: str
    """For sentences to the user: "the OTLP collector at http://localhost:4318"; no credentials."""
    takes_spans: bool

    def open(self) -> None:
        """Prepares for pushes; called once, before the first."""
        ...

    def push(self, reading: MetricsSnapshot) -> None:
        """Hands over one reading."""
        ...

    def push_spans(self, spans: Sequence[ExportedSpan]) -> None:
        """Hands over a batch of spans."""
        ...

    def trouble(self) -> str | None:
        """What it says of a push that is still under way; asked from another thread."""
        ...

    def close(self) -> None:
        """Gives back what `open` took; nobody waits for it."""
        ...


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of what a receiver was given."""

    pushes: int = 0
    """Readings that were taken."""
    pushes_failed: int = 0
    spans: int = 0
    spans_lost: int = 0
    """No place in the queue, not taken, or still waiting when time was up."""
    last_taken: bool = False
    """The reading of the run's end was taken."""
    problem: str | None = None
    """Why the last failed push was not taken."""


class ExportWorker:
    """Feeds one receiver."""

    def __init__(
        self, receiver: Sink, every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.receiver = receiver
        self._every_s = every_s
        self._clock = clock
        self._changed = threading.Condition()
        self._reading: MetricsSnapshot | None = None
        self._queue: deque[ExportedSpan] = deque()
        self._offered = 0
        self._in_flight = 0
        self._over = False
        self._done = threading.Event()
        self._tally = Tally()
        self._thread = threading.Thread(
            target=self._run, name=f"compilediag-{receiver.name}", daemon=True
        )

    def start(self) -> None:
        """Begins to feed."""
        self._thread.start()

    def offer(self, reading: MetricsSnapshot, spans: Iterable[ExportedSpan] = ()) -> None:
        """Gives a newer reading, which takes the place of one that waits, and more spans."""
        with self._changed:
            self._reading = reading
            for span in spans if self.receiver.takes_spans else ():
                self._offered += 1
                if len(self._queue) < QUEUE_SPANS:
                    self._queue.append(span)
            self._changed.notify()

    def finish(self) -> None:
        """The run has ended: what waits is pushed at once, then the thread ends."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def join(self, patience_s: float) -> None:
        """Waits for the last push, at most so long; a receiver that hangs is left behind."""
        self._done.wait(max(0.0, patience_s))

    def tally(self) -> Tally:
        """So far; what waits is not lost yet unless the run has ended."""
        with self._changed:
            waiting = 0 if self._over else len(self._queue) + self._in_flight
            lost = self._offered - self._tally.spans - waiting
            problem = self._tally.problem or self.receiver.trouble()
            return replace(self._tally, spans_lost=lost, problem=problem and _one_line(problem))

    def _run(self) -> None:
        try:
            self.receiver.open()
            self._feed()
        except Exception as error:
            self._failed(error)
        self._done.set()
        with contextlib.suppress(Exception):
            self.receiver.close()

    def _feed(self) -> None:
        next_at = self._clock()
        while (reading := self._next(next_at)) is not None:
            next_at = self._clock() + self._every_s
            self._push(reading)
            while batch := self._batch():
                if not self._push_spans(batch):
                    break

    def _next(self, next_at: float) -> MetricsSnapshot | None:
        """The reading to push, when it is time; None when there is no more to do."""
        with self._changed:
            while not self._over:
                wait_s = next_at - self._clock()
                if self._reading is not None and wait_s <= 0:
                    break
                self._changed.wait(wait_s if self._reading is not None else None)
            reading, self._reading = self._reading, None
            return reading

    def _batch(self) -> list[ExportedSpan]:
        with self._changed:
            self._in_flight = min(BATCH_SPANS, len(self._queue))
            return [self._queue.popleft() for _ in range(self._in_flight)]

    def _push(self, reading: MetricsSnapshot) -> None:
        try:
            self.receiver.push(reading)
        except Exception as error:
            self._failed(error)
            return
        with self._changed:
            pushes = self._tally.pushes + 1
            self._tally = replace(self._tally, pushes=pushes, last_taken=not reading.active)

    def _push_spans(self, batch: Sequence[ExportedSpan]) -> bool:
        try:
            self.receiver.push_spans(batch)
        except Exception as error:
            self._failed(error, reading=False)
            return False
        with self._changed:
            self._tally = replace(self._tally, spans=self._tally.spans + len(batch))
            self._in_flight = 0
        return True

    def _failed(self, error: Exception, *, reading: bool = True) -> None:
        told = str(error) if isinstance(error, NotTaken) else f"{type(error).__name__}: {error}"
        with self._changed:
            failed = self._tally.pushes_failed + reading
            self._tally = replace(self._tally, pushes_failed=failed, problem=told)
            self._in_flight = 0


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
