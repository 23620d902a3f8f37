"""Spans for tracing, out of the events of a run: compiles, and what the program called a span.

Only what is coarse is told: no phase of a step, and nothing shorter than `SHORTEST_S`. Every span
stays in the journal, and its seconds in the goodput.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath
from typing import NamedTuple

from compilediag.diagnosis.figures.goodput import CATEGORY_OF, PRODUCTIVE
from compilediag.runs.telemetry.labels import Labels
from compilediag.runs.telemetry.snapshot import MetricsSnapshot
from compilediag.timeline.process import unbatch
from compilediag_harness.wire import Compiled, Event, ProcessStarted, SpanEnded

SHORTEST_S = 0.01
"""Shortest span of the program that is told, in seconds."""

RUN_SPAN = "compilediag.run"
"""The span of the whole run: all others are below it."""

EXIT_CODE = "process.exit.code"

Value = str | int | float | bool


class ExportedSpan(NamedTuple):
    """A stretch of the run, by the wall clock."""

    name: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, Value]


@dataclass(slots=True)
class SpanBuilder:
    """The spans of one process: its start tells when its times were."""

    labels: Labels
    _origin_ns: int | None = None
    _of_process: dict[str, Value] = field(default_factory=dict[str, Value])
    _again: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])

    def tell(self, events: Iterable[Event]) -> Iterator[ExportedSpan]:
        """The spans among new events; none before the process has said when it started."""
        for event in unbatch(events):
            if isinstance(event, ProcessStarted):
                self._begin(event)
            elif isinstance(event, Compiled):
                yield from self._compile(event)
            elif isinstance(event, SpanEnded) and _is_coarse(event):
                category = self.labels.of(CATEGORY_OF.get(event.name, event.name))
                told = {"compilediag.category": category}
                yield from self._span(self.labels.of(event.name), event.start, event.wall_s, told)

    def _begin(self, event: ProcessStarted) -> None:
        try:
            started = datetime.fromisoformat(event.started_utc.replace("Z", "+00:00"))
            self._origin_ns = round(started.timestamp() * 1e6) * 1000
        except (ValueError, OverflowError):
            return
        self._of_process = {"process.pid": event.pid}
        if event.rank is not None:
            self._of_process["compilediag.rank"] = event.rank

    def _compile(self, event: Compiled) -> Iterator[ExportedSpan]:
        """A backward has the compile id of its forward, and is compiled after it."""
        key = (event.epoch, event.compile_id)
        if event.recompile_reason is not None:
            self._again.add(key)
        told: dict[str, Value] = {
            "code.function.name": self.labels.text(event.frame.function, place=True),
            "code.file.path": self.labels.text(PurePath(event.frame.file).name, place=True),
            "code.line.number": event.frame.line,
            "compilediag.compile_id": self.labels.text(event.compile_id),
            "compilediag.backward": not event.forward,
            "compilediag.guarded": event.guarded,
        }
        if event.recompile_reason is not None:
            told["compilediag.reason"] = self.labels.text(event.recompile_reason)
        name = "recompile" if key in self._again else "compile"
        yield from self._span(name, event.t - event.seconds, event.seconds, told)

    def _span(
        self, name: str, start: float, wall_s: float, told: Mapping[str, Value]
    ) -> Iterator[ExportedSpan]:
        if self._origin_ns is None or not (0 <= wall_s < 1e9 and abs(start) < 1e9):
            return
        begin = self._origin_ns + round(start * 1e9)
        end = begin + round(wall_s * 1e9)
        yield ExportedSpan(name, begin, end, {**self._of_process, **told})


def run_span(reading: MetricsSnapshot) -> ExportedSpan:
    """The whole run, with its last figures."""
    told: dict[str, Value | None] = {
        EXIT_CODE: reading.exit_code,
        "compilediag.steps": reading.steps,
        "compilediag.recompiles": reading.recompiles,
        "compilediag.goodput": reading.goodput,
    }
    known = {key: value for key, value in told.items() if value is not None}
    start = round(reading.started_unix * 1e9)
    return ExportedSpan(RUN_SPAN, start, start + round(reading.wall_s * 1e9), known)


def _is_coarse(event: SpanEnded) -> bool:
    category = CATEGORY_OF.get(event.name, event.name)
    return event.wall_s >= SHORTEST_S and event.name not in PRODUCTIVE and category != "data_wait"
