"""One sink in a thread of its own: it may be slow, refuse or hang without delaying anything else.

The newest snapshot waits, and a bounded number of spans; what does not fit is counted. Pushes begin
at least one period apart; when the run has ended there is one last push, at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from compilediag.extensions.telemetry.metrics import MetricsSnapshot
from compilediag.extensions.telemetry.spans import ExportedSpan

QUEUE_SPANS = 2048
"""Most spans that wait."""

BATCH_SPANS = 512
"""Most spans in one push."""


class PushFailed(Exception):
    """A receiver did not accept a push; the text gives the reason."""


class Sink:
    """A destination of snapshots and spans. `open`, `push`, `push_spans` and `close` are called in
    one thread and may take long; what they raise costs the push, not the run."""

    name: str
    """A word: "otlp"."""
    where: str
    """For messages: "the OTLP collector at http://localhost:4318"; no credentials."""
    takes_spans = False

    def open(self) -> None:
        """Prepare for pushes; called once, before the first."""

    def push(self, snapshot: MetricsSnapshot) -> None:
        """Send one snapshot."""
        raise NotImplementedError

    def push_spans(self, spans: Sequence[ExportedSpan]) -> None:
        """Send a batch of spans; called only where `takes_spans`."""

    def get_warning(self) -> str | None:
        """Get what was logged about a push still in progress; called from another thread."""
        return None

    def close(self) -> None:
        """Release what `open` acquired; nothing waits for it."""


@dataclass(slots=True)
class ExportStats:
    """Counts of the data given to one sink. Part of the receipt: the names stay."""

    pushes: int = 0
    """Snapshots that were accepted."""
    pushes_failed: int = 0
    spans: int = 0
    spans_lost: int = 0
    """The queue was full, the push failed, or they still waited when time was up."""
    last_taken: bool = False
    """The snapshot of the run's end was accepted."""
    problem: str | None = None
    """Why the last failed push failed."""


class ExportWorker:
    """The thread that feeds one sink. `_changed` guards all that other threads read."""

    def __init__(
        self, sink: Sink, every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.sink = sink
        self._every_s = every_s
        self._clock = clock
        self._changed = threading.Condition()
        self._snapshot: MetricsSnapshot | None = None
        self._queue: deque[ExportedSpan] = deque()
        self._offered = 0
        self._in_flight = 0
        self._over = False
        self._done = threading.Event()
        self._stats = ExportStats()
        name = f"compilediag-{sink.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, snapshot: MetricsSnapshot, spans: Iterable[ExportedSpan] = ()) -> None:
        """Replace a snapshot that waits by a newer one, and add spans."""
        with self._changed:
            self._snapshot = snapshot
            for span in spans if self.sink.takes_spans else ():
                self._offered += 1
                if len(self._queue) < QUEUE_SPANS:
                    self._queue.append(span)
            self._changed.notify()

    def finish(self) -> None:
        """End with the run: what waits is pushed at once, then the thread ends."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the last push; a sink that hangs is abandoned."""
        self._done.wait(max(0.0, timeout_s))

    def get_stats(self) -> ExportStats:
        """Get the counts so far; what waits is not lost yet unless the run has ended."""
        with self._changed:
            waiting = 0 if self._over else len(self._queue) + self._in_flight
            lost = self._offered - self._stats.spans - waiting
            problem = self._stats.problem or self.sink.get_warning()
            problem = problem and " ".join(problem.split())[:300]
            return replace(self._stats, spans_lost=lost, problem=problem)

    def _run(self) -> None:
        try:
            self.sink.open()
            next_at = self._clock()
            while (snapshot := self._wait_for_next(next_at)) is not None:
                next_at = self._clock() + self._every_s
                self._push(snapshot)
                self._push_queue()
        except Exception as error:
            self._record_failure(error)
        self._done.set()
        with contextlib.suppress(Exception):
            self.sink.close()

    def _wait_for_next(self, next_at: float) -> MetricsSnapshot | None:
        """Wait for the snapshot to push, until it is due; None when there is nothing more to do."""
        with self._changed:
            while not self._over:
                wait_s = next_at - self._clock()
                if self._snapshot is not None and wait_s <= 0:
                    break
                self._changed.wait(wait_s if self._snapshot is not None else None)
            snapshot, self._snapshot = self._snapshot, None
            return snapshot

    def _push(self, snapshot: MetricsSnapshot) -> None:
        try:
            self.sink.push(snapshot)
        except Exception as error:
            self._record_failure(error)
            return
        with self._changed:
            self._stats.pushes += 1
            self._stats.last_taken = not snapshot.active

    def _push_queue(self) -> None:
        """Push the spans that wait, until a push fails."""
        while True:
            with self._changed:
                self._in_flight = min(BATCH_SPANS, len(self._queue))
                batch = [self._queue.popleft() for _ in range(self._in_flight)]
            if not batch:
                return
            try:
                self.sink.push_spans(batch)
            except Exception as error:
                self._record_failure(error, of_snapshot=False)
                return
            with self._changed:
                self._stats.spans += len(batch)
                self._in_flight = 0

    def _record_failure(self, error: Exception, *, of_snapshot: bool = True) -> None:
        reason = str(error) if isinstance(error, PushFailed) else f"{type(error).__name__}: {error}"
        with self._changed:
            self._stats.pushes_failed += of_snapshot
            self._stats.problem = reason
            self._in_flight = 0
