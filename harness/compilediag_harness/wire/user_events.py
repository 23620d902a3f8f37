"""What the program reports of itself: periodic work, pipelines, tracked runs, ablations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.wire.event import Event, StepEvent, event


@event
class CadenceDeclared(StepEvent):
    """The program made a group of periodic work; a later one of the same name replaces it."""

    name: str
    every: int
    """The period in force, in steps; 0 when a probe has switched the group off."""
    offset: int
    own_every: int
    """The program's own period."""


@event
class CadenceAsked(StepEvent):
    """A group was asked for the first time whether it is due; one that never is can never fire."""

    name: str
    number: int
    """The step as the program counts."""


@event
class CadenceFired(Event):
    """A batch of firings, in order; all tuples but `names` are parallel."""

    names: tuple[str, ...]
    """The groups that occur, each once."""
    name: tuple[int, ...]
    """Position in `names` of the group that fired."""
    at: tuple[float, ...]
    """When, in seconds."""
    steps: tuple[int, ...]
    numbers: tuple[int, ...] = ()
    """The program's own numbers of the steps, as `due` was given them."""


@event
class PipelineWorked(Event):
    """A batch of finished blocks of one producer-consumer loop, in the order they ended, and of
    sizes of its pool. The tuples from `stages` to `infer_slots` are parallel, and so are the two
    of the pool."""

    name: str
    slots: int | None
    """Inference calls that can be in progress at a time, as the program declared."""
    stages: tuple[str, ...] = ()
    """"train", "infer", "wait"."""
    starts: tuple[float, ...] = ()
    walls: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    infer_slots: tuple[int, ...] = ()
    """The slot an "infer" was in, numbered from 0; -1 where the program named none."""
    pool_at: tuple[float, ...] = ()
    pool_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TrackedMetric:
    """One metric of a tracked run, summed up; see `running_stats.Series`."""

    name: str
    count: int
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    last: float | None = None
    median_of: int = 0
    not_finite: int = 0


@event
class RunTracked(Event):
    """A run of a `tracker()`, as it is now: recorded when it ends, and now and then before, for
    programs that are killed. The last record of a `number` counts."""

    number: int
    """The run, by a number that it has in all records of the process."""
    name: str
    config: dict[str, Any]
    state: str
    """"running", "finished", "failed" (an exception left the block)."""
    steps: int
    """Calls of `record_step`."""
    first_step: int | None
    last_step: int | None
    wall_s: float
    """From `start_run` to `finish_run`, or to this record."""
    steps_s: float
    """From `start_run`, or the end of the warm-up, to the last recorded step."""
    warmup: int = 0
    """Recorded steps at the start that are in no rate and no step time."""
    peak_bytes: int | None = None
    """Most host memory of the process until now."""
    peak_at_start_bytes: int | None = None
    peak_source: str | None = None
    """"VmHWM" or "getrusage"."""
    totals: dict[str, float] = field(default_factory=dict[str, float])
    """Sums of what was counted: tokens, samples..."""
    per_s: dict[str, float] = field(default_factory=dict[str, float])
    """The same by second of `steps_s`, without the warm-up's."""
    metrics: tuple[TrackedMetric, ...] = ()
    left_out: int = 0
    """Names of metrics and counts beyond the limit."""


@event
class TrackedRunsLeftOut(Event):
    """More runs were tracked than are recorded one by one; recorded at the end of the process."""

    count: int


@event
class AblationWritten(Event):
    """A validated report of an ablation was written to a file."""

    name: str
    architecture: str
    depth: int
    steps: int
    curves: int
    layers: int
    """Layer keys."""
    baseline: str | None
    uri: str
    """file:// and the absolute path."""
    bytes: int
    sha256: str
