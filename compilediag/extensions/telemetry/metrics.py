"""The register of metrics, and the snapshot of a run that their values are taken from.

Names and units follow OpenTelemetry; the name in Prometheus is derived by its own conventions. A
metric never changes its meaning. Labels have few values: none is a step, an id or a shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from compilediag_harness.redaction.redactor import Redactor


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """One moment of a run. None: not known, so not exported. Counts are of all processes, seconds
    of the process whose steps the receipt reports (`Timeline.lead`)."""

    at_unix: float
    started_unix: float
    wall_s: float = 0.0
    """Since the start, on a monotonic clock."""
    active: bool = True
    exit_code: int | None = None
    """The target's, once it has ended."""
    processes: int = 0
    frames: int = 0
    compiles: int = 0
    recompiles: int = 0
    graph_breaks: int = 0
    compile_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds of compiling by kind: first, recompile."""
    compile_phase_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds of compiling by phase, without phases in it; empty where torch does not time them."""
    steps: int | None = None
    step_s: float | None = None
    """Mean of the steps that ended since the previous snapshot."""
    goodput_s: float | None = None
    goodput: float | None = None
    """Share of the observed time; of the whole wall time once the run has ended."""
    badput_s: Mapping[str, float] = field(default_factory=dict[str, float])
    records_lost: int = 0
    """Of the journals. Above zero the counts are "at least", and steps and goodput are unknown."""
    tracked: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """What the program records itself (`tracker()`): (run, metric) to its last value."""
    tracked_per_s: Mapping[tuple[str, str], float] = field(
        default_factory=dict[tuple[str, str], float]
    )
    """(run, count) to the count per second."""
    losses: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """What telemetry itself lost so far: (destination, "pushes") to the count."""


Kind = Literal["counter", "gauge"]


class Metric(NamedTuple):
    """One metric, and the attribute of `MetricsSnapshot` that holds its value, or, where it has
    labels, a mapping of label values to values."""

    name: str
    unit: str
    """In UCUM, as OpenTelemetry uses it: "s", "1"; text in braces is an annotation, no unit."""
    kind: Kind
    source: str
    labels: tuple[str, ...]
    description: str

    @property
    def prometheus(self) -> str:
        """The name in Prometheus: with the unit, and `_total` at the end of a counter."""
        unit = {"s": "_seconds", "1": "_ratio"}.get(self.unit, "")
        return self.name.replace(".", "_") + unit + ("_total" if self.kind == "counter" else "")


_ROWS: tuple[tuple[str, str, Kind, str, tuple[str, ...], str], ...] = (
    ("run.active", "{run}", "gauge", "active", (), "1 while the target runs, then 0."),
    ("run.time", "s", "gauge", "wall_s", (), "Wall seconds since the target started."),
    ("run.exit_code", "{code}", "gauge", "exit_code", (),
     "Exit code of the target, once it has ended."),
    ("processes", "{process}", "gauge", "processes", (),
     "Python processes that were observed so far."),
    ("steps", "{step}", "counter", "steps", (), "Training steps that have ended."),
    ("step.time", "s", "gauge", "step_s", (),
     "Mean of the steps that ended since the push before."),
    ("frames", "{frame}", "gauge", "frames", (), "Frames that torch.compile attempted."),
    ("compiles", "{compile}", "counter", "compiles", (),
     "Compiles of frames that ended with code."),
    ("recompiles", "{compile}", "counter", "recompiles", (), "Compiles that a false guard caused."),
    ("graph_breaks", "{line}", "counter", "graph_breaks", (), "Lines at which a graph breaks."),
    ("compile.time", "s", "counter", "compile_s", ("kind",),
     "Seconds of compiling: kind is first, or recompile (a false guard caused it)."),
    ("compile.phase.time", "s", "gauge", "compile_phase_s", ("phase",),
     "Seconds of compiling by phase (dynamo, lowering, kernel_builds...): together all of it."),
    ("goodput.time", "s", "gauge", "goodput_s", (),
     "Seconds spent in training steps, nothing else."),
    ("badput.time", "s", "gauge", "badput_s", ("category",), "All other seconds, by category."),
    ("goodput", "1", "gauge", "goodput", (), "Goodput as a share of the time observed."),
    ("records.lost", "{record}", "gauge", "records_lost", (),
     "Records that the journals lost: above 0 counts are at least so many."),
    ("tracked.value", "{value}", "gauge", "tracked", ("run", "metric"),
     "Last value of a metric that the program records with tracker(): loss, MFU..."),
    ("tracked.rate", "{count}/s", "gauge", "tracked_per_s", ("run", "count"),
     "What the program counts with tracker(), by second: tokens, samples..."),
    ("telemetry.losses", "{loss}", "counter", "losses", ("destination", "what"),
     "Pushes that a receiver did not take."),
)  # fmt: skip
METRICS = tuple(Metric(f"compilediag.{row[0]}", *row[1:]) for row in _ROWS)


class Point(NamedTuple):
    """The value of one metric for one set of labels."""

    metric: Metric
    value: float
    labels: Mapping[str, str]


def iterate_points(snapshot: MetricsSnapshot) -> Iterator[Point]:
    """Iterate every known value; a metric that is not known has none, rather than a zero."""
    for metric in METRICS:
        value: Any = getattr(snapshot, metric.source)
        if not metric.labels:
            if value is not None:
                yield Point(metric, int(value) if isinstance(value, bool) else value, {})
            continue
        for key, number in cast("Mapping[Any, float]", value).items():
            names = (key,) if isinstance(key, str) else key
            yield Point(metric, number, dict(zip(metric.labels, names, strict=True)))


# --- labels: text of the target ------------------------------------------------------------------

LABEL_LIMIT = 64
"""Longest label of a metric, in characters."""

MAX_OWN_NAMES = 16
"""Names made up by the program that become labels; further ones are summed as `OTHER`."""

OTHER = "other"

_UNUSUAL = re.compile(r"[^A-Za-z0-9_.:-]+")


class Labels:
    """Makes labels; remembers which of the program's names became labels."""

    def __init__(self, known: Sequence[str], secrets: Sequence[str] = ()) -> None:
        """`known`: labels that are ours; `secrets`: values to redact."""
        self._known = frozenset(known)
        self._own: set[str] = set()
        self._redactor = Redactor(secrets)

    def make_label(self, name: str) -> str:
        """Make a label of a metric from a name: redacted, shortened; `OTHER` beyond the limit."""
        if name in self._known:
            return name
        label = _UNUSUAL.sub("_", self._redactor.redact_text(name))[:LABEL_LIMIT] or "_"
        if label in self._known or label in self._own:
            return label
        if len(self._own) >= MAX_OWN_NAMES:
            return OTHER
        self._own.add(label)
        return label

    def sum_by_label(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sum values by label: those of names that share a label are added."""
        sums: dict[str, float] = {}
        for name, value in values.items():
            label = self.make_label(name)
            sums[label] = sums.get(label, 0.0) + value
        return sums
