"""Exports the metrics of a run from threads of the parent: the target takes no part.

One thread reads the journals once a period and takes a snapshot. Each sink has a thread of its own,
where it may be slow, refuse or hang. The newest snapshot waits, and pushes begin at least one
period apart. When the target has ended, what is left is pushed within `SHUTDOWN_TIMEOUT_S`; a sink
that takes longer is abandoned, and what it did not accept is counted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from compilediag.extensions.telemetry.live_run import LiveRun
from compilediag.extensions.telemetry.metrics import MetricsSnapshot
from compilediag.extensions.telemetry.settings import (
    FROM_ENVIRONMENT,
    TelemetrySettings,
    find_endpoint,
    strip_credentials,
)
from compilediag.extensions.telemetry.sinks import (
    OtlpSink,
    PushFailed,
    Sink,
    TextfileSink,
)
from compilediag.readers.journal import JournalTail
from compilediag.runs.supervised.child import ExitInfo, SupervisedRun, TelemetryReport

SHUTDOWN_TIMEOUT_S = 2.0
"""Longest time that the end of a run waits for all sinks together."""

MAX_FILES = 4096
"""Most processes that are followed."""

IDLE_FACTOR = 50
"""A snapshot that took t seconds of CPU is followed by at least this many t of waiting."""

READ_BYTES = 64 << 20
"""Most bytes of one journal that are read for one snapshot."""


def begin(run: SupervisedRun) -> Callable[[ExitInfo], TelemetryReport]:
    """Begin the export of a run in threads; the function that is returned ends it.

    The target runs by now: a fault of ours must not leave it alone, and is reported instead.
    """
    settings, name = run.options.telemetry, run.configuration_name
    assert isinstance(settings, TelemetrySettings)
    try:
        run_id = os.path.basename(run.run_dir)
        sinks = make_sinks(settings, run.variables, configuration=name, run_id=run_id)
        exporter = Exporter(
            run.run_dir,
            sinks,
            settings.every_s,
            started_unix=run.started_unix,
            secrets=run.secrets,
        )
        exporter.start()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        note = f"telemetry did not begin, by a fault of compilediag: {reason}"
        return lambda ended: TelemetryReport((note,), {})
    return exporter.stop


def make_sinks(
    settings: TelemetrySettings, variables: Mapping[str, str], *, configuration: str, run_id: str
) -> list[Sink]:
    """Make one sink for each destination.

    `configuration` is the label "lane" wherever the runs of a machine share a page; `run_id` is
    for OpenTelemetry alone: as a label it would start new series with each run.
    """
    sinks: list[Sink] = []
    if settings.otlp is not None:
        from_environment = settings.otlp == FROM_ENVIRONMENT
        where = find_endpoint(variables) if from_environment else strip_credentials(settings.otlp)
        resource = {
            "service.name": configuration,
            "service.instance.id": run_id,
            "host.name": socket.gethostname(),
            "compilediag.lane": configuration,
        }
        url = None if from_environment else settings.otlp
        sinks.append(OtlpSink(url, f"the OTLP collector at {where}", resource))
    if settings.prometheus_textfile is not None:
        sinks.append(TextfileSink(settings.prometheus_textfile, {"lane": configuration}))
    return sinks


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
        self._end: ExitInfo | None = None
        self._started = time.monotonic()
        self._fault: str | None = None
        self._thread = threading.Thread(target=self._run, name="compilediag-telemetry", daemon=True)

    def start(self) -> None:
        for worker in self._workers:
            worker.start()
        self._thread.start()

    def stop(self, end: ExitInfo) -> TelemetryReport:
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
