"""Exports the metrics of a run from threads of the parent: the target takes no part.

One thread reads the journals once a period and takes a snapshot; every sink has a thread of its own
(`worker`). When the target has ended, what is left is pushed within `SHUTDOWN_TIMEOUT_S`; a sink
that takes longer is abandoned, and what it did not accept is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict

from compilediag.extensions.telemetry.live_run import LiveRun, RunEnd
from compilediag.extensions.telemetry.worker import ExportWorker, Sink
from compilediag.readers.journal import JournalTail
from compilediag.runs.supervised.child import TelemetryReport

SHUTDOWN_TIMEOUT_S = 2.0
"""Longest time that the end of a run waits for all sinks together."""

MAX_FILES = 4096
"""Most processes that are followed."""

IDLE_FACTOR = 50
"""A snapshot that took t seconds of CPU is followed by at least this many t of waiting."""

READ_BYTES = 64 << 20
"""Most bytes of one journal that are read for one snapshot."""


class Exporter:
    """The export of one run; `stop` returns how it went."""

    def __init__(
        self,
        run_dir: str,
        sinks: Sequence[Sink],
        every_s: float,
        *,
        started_unix: float,
        secrets: tuple[str, ...] = (),
    ) -> None:
        """`secrets`: values to redact."""
        self._every_s = every_s
        self._workers = [ExportWorker(sink, every_s) for sink in sinks]
        self._journals = JournalTail(run_dir, MAX_FILES)
        self._live_run = LiveRun(started_unix, secrets)
        self._over = threading.Event()
        self._done = threading.Event()
        self._end: RunEnd | None = None
        self._started = time.monotonic()
        self._fault: str | None = None
        self._thread = threading.Thread(target=self._run, name="compilediag-telemetry", daemon=True)

    def start(self) -> None:
        for worker in self._workers:
            worker.start()
        self._thread.start()

    def stop(self, end: RunEnd) -> TelemetryReport:
        """Export the last metrics; returns within `SHUTDOWN_TIMEOUT_S` whatever the sinks do."""
        until = time.monotonic() + SHUTDOWN_TIMEOUT_S
        self._end = end
        self._over.set()
        self._done.wait(SHUTDOWN_TIMEOUT_S)
        for worker in self._workers:
            worker.finish()
        for worker in self._workers:
            worker.join(until - time.monotonic())
        stats = {worker.sink: worker.get_stats() for worker in self._workers}
        notes: list[str] = []
        for sink, stat in stats.items():
            lost: list[str] = []
            if stat.pushes_failed:
                total = stat.pushes + stat.pushes_failed
                lost.append(f"{stat.pushes_failed} of {total} pushes failed")
            if not stat.last_taken:
                lost.append("the last figures of the run were not taken")
            if lost:
                late = f"it did not answer within {SHUTDOWN_TIMEOUT_S:g} s of the run's end"
                why = f"{', '.join(lost)} ({stat.problem or late})"
                notes.append(f"telemetry to {sink.where}: {why}; the run is not affected")
        if self._fault is not None:
            notes = [f"telemetry ended early, by a fault of compilediag: {self._fault}"]
        elif not self._done.is_set():
            notes = [f"telemetry: the last figures were not ready within {SHUTDOWN_TIMEOUT_S:g} s"]
        counts = {sink.name: asdict(stat) for sink, stat in stats.items()}
        return TelemetryReport(tuple(notes), counts)

    def _run(self) -> None:
        # A fault of ours costs the telemetry, nothing else.
        try:
            wait_s = self._every_s
            while not self._over.wait(wait_s):
                began = time.thread_time()
                self._export()
                wait_s = max(self._every_s, IDLE_FACTOR * (time.thread_time() - began))
            self._export()
        except Exception as error:
            self._fault = f"{type(error).__name__}: {error}"[:300]
        self._done.set()

    def _export(self) -> None:
        """Read what the journals have added, and offer a snapshot to every sink."""
        self._live_run.add(self._journals.poll(READ_BYTES))
        snapshot = self._live_run.take_snapshot(
            time.time(),
            time.monotonic() - self._started,
            records_lost=self._journals.records_lost + self._journals.files_left_out,
            losses={
                (worker.sink.name, "pushes"): worker.get_stats().pushes_failed
                for worker in self._workers
            },
            end=self._end,
        )
        for worker in self._workers:
            worker.offer(snapshot)
