"""Makes trace spans of the events of a run: compiles, and the program's own coarse spans.

No phase of a step is exported, and nothing shorter than `MIN_SPAN_S`: the journal has every span,
and goodput its seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from compilediag.diagnosis.figures.goodput import CATEGORY_OF, PRODUCTIVE
from compilediag.extensions.telemetry.metrics import Labels, MetricsSnapshot
from compilediag.readers.lines import parse_unix_s
from compilediag.timeline.process import unpack_batches
from compilediag_harness.wire import Compiled, Event, ProcessStarted, SpanEnded

MIN_SPAN_S = 0.01
"""Shortest span of the program that is exported, in seconds."""

RUN_SPAN = "compilediag.run"
"""The span of the whole run: the parent of all others."""

EXIT_CODE = "process.exit.code"

Value = str | int | float | bool


class ExportedSpan(NamedTuple):
    """A span on the wall clock."""

    name: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, Value]


@dataclass(slots=True)
class SpanBuilder:
    """Builds the spans of one process; its start event gives the origin of its times."""

    labels: Labels
    _origin_ns: int | None = None
    _process: dict[str, Value] = field(default_factory=dict[str, Value])
    _recompiled: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])

    def build_spans(self, events: Iterable[Event]) -> Iterator[ExportedSpan]:
        """Build the spans of new events; none before the start event of the process."""
        for event in unpack_batches(events):
            if isinstance(event, ProcessStarted):
                if (started_s := parse_unix_s(event.started_utc)) is not None:
                    self._origin_ns = round(started_s * 1e6) * 1000
                    rank = {} if event.rank is None else {"compilediag.rank": event.rank}
                    self._process = {"process.pid": event.pid, **rank}
            elif isinstance(event, Compiled):
                # A backward has the compile id of its forward, and is compiled after it.
                key = (event.epoch, event.compile_id)
                about: dict[str, Value] = {
                    "code.function.name": self.labels.clean_text(event.frame.function),
                    "code.file.path": self.labels.clean_text(PurePath(event.frame.file).name),
                    "code.line.number": event.frame.line,
                    "compilediag.compile_id": self.labels.clean_text(event.compile_id),
                    "compilediag.backward": not event.forward,
                    "compilediag.guarded": event.guarded,
                }
                if event.recompile_reason is not None:
                    self._recompiled.add(key)
                    about["compilediag.reason"] = self.labels.clean_text(event.recompile_reason)
                name = "recompile" if key in self._recompiled else "compile"
                yield from self._build_span(name, event.t - event.seconds, event.seconds, about)
            elif isinstance(event, SpanEnded):
                category = CATEGORY_OF.get(event.name, event.name)
                exported = event.name not in PRODUCTIVE and category != "data_wait"
                if exported and event.wall_s >= MIN_SPAN_S:
                    attributes = {"compilediag.category": self.labels.make_label(category)}
                    name = self.labels.make_label(event.name)
                    yield from self._build_span(name, event.start, event.wall_s, attributes)

    def _build_span(
        self, name: str, start: float, wall_s: float, attributes: Mapping[str, Value]
    ) -> Iterator[ExportedSpan]:
        if self._origin_ns is None or not (0 <= wall_s < 1e9 and abs(start) < 1e9):
            return
        begin = self._origin_ns + round(start * 1e9)
        end = begin + round(wall_s * 1e9)
        yield ExportedSpan(name, begin, end, {**self._process, **attributes})


def build_run_span(snapshot: MetricsSnapshot) -> ExportedSpan:
    """Build the span of the whole run, with its last metrics."""
    attributes: dict[str, Value | None] = {
        EXIT_CODE: snapshot.exit_code,
        "compilediag.steps": snapshot.steps,
        "compilediag.recompiles": snapshot.recompiles,
        "compilediag.goodput": snapshot.goodput,
    }
    known = {key: value for key, value in attributes.items() if value is not None}
    start = round(snapshot.started_unix * 1e9)
    return ExportedSpan(RUN_SPAN, start, start + round(snapshot.wall_s * 1e9), known)
