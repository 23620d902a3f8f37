"""The register of metrics: name, unit, kind and meaning of each, and their values of a reading.

Names and units follow OpenTelemetry; the name in Prometheus is what its own rules make of them. A
metric never changes its meaning. Labels have few values: none is a step, an id or a shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from compilediag.runs.telemetry.snapshot import MetricsSnapshot

Kind = Literal["counter", "gauge"]


class Metric(NamedTuple):
    """One metric."""

    name: str
    unit: str
    """In UCUM, as OpenTelemetry has it: "s", "1"; what stands in braces is no unit."""
    kind: Kind
    says: str
    labels: tuple[str, ...] = ()

    @property
    def prometheus(self) -> str:
        """The name in Prometheus: its unit spelled out, and `_total` behind a counter."""
        parts = [self.name.replace(".", "_")]
        if self.unit == "s":
            parts.append("seconds")
        elif self.unit == "1":
            parts.append("ratio")
        if self.kind == "counter":
            parts.append("total")
        return "_".join(parts)


class Point(NamedTuple):
    """The value of one metric for one set of labels."""

    figure: Metric
    value: float
    labels: Mapping[str, str]


ACTIVE = Metric("compilediag.run.active", "{run}", "gauge", "1 while the target runs, then 0.")
RUN_TIME = Metric("compilediag.run.time", "s", "gauge", "Wall seconds since the target started.")
EXIT_CODE = Metric(
    "compilediag.run.exit_code", "{code}", "gauge", "Exit code of the target, once it has ended."
)
PROCESSES = Metric(
    "compilediag.processes", "{process}", "gauge", "Python processes that were observed so far."
)
STEPS = Metric("compilediag.steps", "{step}", "counter", "Training steps that have ended.")
STEP_TIME = Metric(
    "compilediag.step.time", "s", "gauge", "Mean of the steps that ended since the push before."
)
FRAMES = Metric("compilediag.frames", "{frame}", "gauge", "Frames that torch.compile attempted.")
COMPILES = Metric(
    "compilediag.compiles", "{compile}", "counter", "Compiles of frames that ended with code."
)
RECOMPILES = Metric(
    "compilediag.recompiles", "{compile}", "counter", "Compiles that a false guard caused."
)
GRAPH_BREAKS = Metric(
    "compilediag.graph_breaks", "{line}", "counter", "Lines at which a graph breaks."
)
COMPILE_TIME = Metric(
    "compilediag.compile.time",
    "s",
    "counter",
    "Seconds of compiling: kind is first, or recompile (a false guard caused it).",
    ("kind",),
)
GOODPUT_TIME = Metric(
    "compilediag.goodput.time", "s", "gauge", "Seconds spent in training steps, nothing else."
)
BADPUT_TIME = Metric(
    "compilediag.badput.time", "s", "gauge", "All other seconds, by category.", ("category",)
)
GOODPUT = Metric("compilediag.goodput", "1", "gauge", "Goodput as a share of the time observed.")
RECORDS_LOST = Metric(
    "compilediag.records.lost",
    "{record}",
    "gauge",
    "Records that the journals lost: above 0 counts are at least so many.",
)
TRACKED = Metric(
    "compilediag.tracked.value",
    "{value}",
    "gauge",
    "Last value of a metric that the program records with tracker(): loss, MFU...",
    ("run", "metric"),
)
TRACKED_RATE = Metric(
    "compilediag.tracked.rate",
    "{count}/s",
    "gauge",
    "What the program counts with tracker(), by second: tokens, samples...",
    ("run", "count"),
)
LOSSES = Metric(
    "compilediag.telemetry.losses",
    "{loss}",
    "counter",
    "Pushes and spans that a receiver did not take.",
    ("destination", "what"),
)

FIGURES = (
    *(ACTIVE, RUN_TIME, EXIT_CODE, PROCESSES, STEPS, STEP_TIME, FRAMES, COMPILES, RECOMPILES),
    *(GRAPH_BREAKS, COMPILE_TIME, GOODPUT_TIME, BADPUT_TIME, GOODPUT, RECORDS_LOST, TRACKED),
    *(TRACKED_RATE, LOSSES),
)


def points_of(reading: MetricsSnapshot) -> list[Point]:
    """Every value that is known; a figure that is not known has none, instead of a zero."""
    plain: tuple[tuple[Metric, float | None], ...] = (
        (ACTIVE, reading.active),
        (RUN_TIME, reading.wall_s),
        (EXIT_CODE, reading.exit_code),
        (PROCESSES, reading.processes),
        (STEPS, reading.steps),
        (STEP_TIME, reading.step_s),
        (FRAMES, reading.frames),
        (COMPILES, reading.compiles),
        (RECOMPILES, reading.recompiles),
        (GRAPH_BREAKS, reading.graph_breaks),
        (GOODPUT_TIME, reading.goodput_s),
        (GOODPUT, reading.goodput),
        (RECORDS_LOST, reading.records_lost),
    )
    known = [Point(figure, _number(value), {}) for figure, value in plain if value is not None]
    return [*known, *_labelled(reading)]


def _number(value: float) -> float:
    return int(value) if isinstance(value, bool) else value


def _labelled(reading: MetricsSnapshot) -> Iterator[Point]:
    yield Point(COMPILE_TIME, reading.compile_first_s, {"kind": "first"})
    yield Point(COMPILE_TIME, reading.compile_again_s, {"kind": "recompile"})
    for category, seconds in reading.badput_s.items():
        yield Point(BADPUT_TIME, seconds, {"category": category})
    for told, figure in ((reading.tracked, TRACKED), (reading.tracked_per_s, TRACKED_RATE)):
        for labels, value in told.items():
            yield Point(figure, value, dict(zip(figure.labels, labels, strict=True)))
    for (destination, what), count in reading.losses.items():
        yield Point(LOSSES, count, {"destination": destination, "what": what})


def flat(reading: MetricsSnapshot) -> dict[str, float]:
    """The values by one name each, as experiments want them: "compilediag/badput_time_s/eval"."""
    return {
        "/".join((_short(point.figure), *point.labels.values())): point.value
        for point in points_of(reading)
        if point.figure not in (EXIT_CODE, ACTIVE)
    }


def _short(figure: Metric) -> str:
    name = figure.name.replace("compilediag.", "compilediag/", 1).replace(".", "_")
    return f"{name}_s" if figure.unit == "s" else name
