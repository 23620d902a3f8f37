"""Follows a run and tells receivers of it, in threads of the parent: the target has no part in it.

One thread reads the journals once a period and makes a reading; every receiver has a thread of its
own (`pump`). When the target has ended, what is left is told within `PATIENCE_S`; a receiver that
takes longer is left behind, and what it did not take is counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from compilediag.diagnosis.figures.goodput import CATEGORIES
from compilediag.readers.tail import JournalTail
from compilediag.runs.telemetry.labels import Labels
from compilediag.runs.telemetry.live_run import End, LiveRun
from compilediag.runs.telemetry.metrics import flat
from compilediag.runs.telemetry.snapshot import MetricsSnapshot
from compilediag.runs.telemetry.spans import ExportedSpan, SpanBuilder, run_span
from compilediag.runs.telemetry.worker import ExportWorker, Sink, Tally

PATIENCE_S = 2.0
"""Longest time that the end of a run waits for receivers, all together."""

FILE_LIMIT = 4096
"""Most processes that are followed."""

SHARE = 50
"""The work of a reading takes at most this part of one core: after a long one the next is later."""

READ_BYTES = 64 << 20
"""Most bytes of one journal that are read for one reading."""

FIGURES_FILE = "telemetry.json"
"""In the run directory, for the experiments that the target has open."""


@dataclass(frozen=True, slots=True)
class Run:
    """What is told of, as it is known when the target starts."""

    run_dir: str
    started_unix: float
    secrets: tuple[str, ...] = ()
    """Values that no receiver may see."""


class Told(NamedTuple):
    """What there is to say when all is told: to the user, and in the receipt."""

    notes: tuple[str, ...]
    extension: Mapping[str, object]


class Exporter:
    """Tells of one run; `stop` gives how it went."""

    def __init__(
        self, run: Run, receivers: Sequence[Sink], every_s: float, *, figures_file: bool = False
    ) -> None:
        """`figures_file`: keep the newest figures in the run directory too."""
        self._run = run
        self._every_s = every_s
        self._figures_file = figures_file
        self._pumps = [ExportWorker(receiver, every_s) for receiver in receivers]
        self._journals = JournalTail(run.run_dir, FILE_LIMIT)
        self._growing = LiveRun(run.started_unix, run.secrets)
        self._labels = Labels((*CATEGORIES, "compile", "recompile"), run.secrets)
        self._tellers: dict[str, SpanBuilder] = {}
        self._over = threading.Event()
        self._done = threading.Event()
        self._end: End | None = None
        self._started = time.monotonic()
        self._fault: str | None = None
        self._thread = threading.Thread(
            target=self._follow, name="compilediag-telling", daemon=True
        )

    def start(self) -> None:
        """Begins to follow."""
        for pump in self._pumps:
            pump.start()
        self._thread.start()

    def stop(self, end: End) -> Told:
        """Tells the last figures; waits at most `PATIENCE_S`, whatever the receivers do."""
        until = time.monotonic() + PATIENCE_S
        self._end = end
        self._over.set()
        self._done.wait(PATIENCE_S)
        for pump in self._pumps:
            pump.finish()
        for pump in self._pumps:
            pump.join(until - time.monotonic())
        return self._told()

    def _follow(self) -> None:
        # What goes wrong here costs the telemetry, nothing else.
        try:
            wait_s = self._every_s
            while not self._over.wait(wait_s):
                began = time.thread_time()
                self.look()
                wait_s = max(self._every_s, SHARE * (time.thread_time() - began))
            self.look()
        except Exception as error:
            self._fault = f"{type(error).__name__}: {error}"[:300]
        self._done.set()

    def look(self) -> MetricsSnapshot:
        """Reads on, and offers what is known to every receiver."""
        new = self._journals.poll(READ_BYTES)
        self._growing.take(new)
        spans: list[ExportedSpan] = []
        for name, events in new.items():
            teller = self._tellers.setdefault(name, SpanBuilder(self._labels))
            spans.extend(teller.tell(events))
        end = self._end
        reading = self._growing.reading(
            time.time(),
            time.monotonic() - self._started,
            records_lost=self._journals.records_lost + self._journals.files_left_out,
            losses=self._losses(),
            end=end,
        )
        if end is not None:
            spans.append(run_span(reading))
        if self._figures_file:
            self._write_figures(reading)
        for pump in self._pumps:
            pump.offer(reading, spans)
        return reading

    def _losses(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for pump in self._pumps:
            tally, name = pump.tally(), pump.receiver.name
            found[name, "pushes"] = tally.pushes_failed
            if pump.receiver.takes_spans:
                found[name, "spans"] = tally.spans_lost
        return found

    def _write_figures(self, reading: MetricsSnapshot) -> None:
        told = {"at_unix": reading.at_unix, "step": reading.steps, "figures": flat(reading)}
        path = os.path.join(self._run.run_dir, FIGURES_FILE)
        with contextlib.suppress(OSError):  # a full disk costs the experiments a telling
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump(told, file)
            os.replace(f"{path}.new", path)

    def _told(self) -> Told:
        tallies = [(pump.receiver, pump.tally()) for pump in self._pumps]
        notes = [note for item in tallies if (note := _note(*item)) is not None]
        if self._fault is not None:
            notes = [f"telemetry ended early, by a fault of compilediag: {self._fault}"]
        elif not self._done.is_set():
            notes = [f"telemetry: the last figures were not ready within {PATIENCE_S:g} s"]
        return Told(tuple(notes), {item.name: asdict(tally) for item, tally in tallies})


def _note(receiver: Sink, tally: Tally) -> str | None:
    """One sentence where something was lost; silence where all was taken."""
    if tally.last_taken and not tally.pushes_failed and not tally.spans_lost:
        return None
    lost: list[str] = []
    every = tally.pushes + tally.pushes_failed
    if tally.pushes_failed:
        lost.append(f"{tally.pushes_failed} of {every} pushes failed")
    if not tally.last_taken:
        lost.append("the last figures of the run were not taken")
    if tally.spans_lost:
        lost.append(f"{tally.spans_lost} of {tally.spans + tally.spans_lost} spans were lost")
    why = tally.problem or f"it did not answer within {PATIENCE_S:g} s of the run's end"
    return f"telemetry to {receiver.where}: {', '.join(lost)} ({why}); the run is not affected"
