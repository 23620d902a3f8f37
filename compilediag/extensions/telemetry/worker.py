"""One sink in a thread of its own: it may be slow, refuse or hang without delaying anything else.

The newest snapshot waits. Pushes begin at least one period apart; when the run has ended there is
one last push, at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from compilediag.extensions.telemetry.metrics import MetricsSnapshot


class PushFailed(Exception):
    """A receiver did not accept a push; the text gives the reason."""


class Sink:
    """A destination of snapshots. `open`, `push` and `close` are called in one thread and may take
    long; what they raise costs the push, not the run."""

    name: str
    """A word: "otlp"."""
    where: str
    """For messages: "the OTLP collector at http://localhost:4318"; no credentials."""

    def open(self) -> None:
        """Prepare for pushes; called once, before the first."""

    def push(self, snapshot: MetricsSnapshot) -> None:
        """Send one snapshot."""
        raise NotImplementedError

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
        self._over = False
        self._done = threading.Event()
        self._stats = ExportStats()
        name = f"compilediag-{sink.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, snapshot: MetricsSnapshot) -> None:
        """Replace a snapshot that waits by a newer one."""
        with self._changed:
            self._snapshot = snapshot
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
        """Get the counts so far."""
        with self._changed:
            problem = self._stats.problem or self.sink.get_warning()
            problem = problem and " ".join(problem.split())[:300]
            return replace(self._stats, problem=problem)

    def _run(self) -> None:
        try:
            self.sink.open()
            next_at = self._clock()
            while (snapshot := self._wait_for_next(next_at)) is not None:
                next_at = self._clock() + self._every_s
                try:
                    self.sink.push(snapshot)
                except Exception as error:
                    self._record_failure(error)
                    continue
                with self._changed:
                    self._stats.pushes += 1
                    self._stats.last_taken = not snapshot.active
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

    def _record_failure(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, PushFailed) else f"{type(error).__name__}: {error}"
        with self._changed:
            self._stats.pushes_failed += 1
            self._stats.problem = reason
