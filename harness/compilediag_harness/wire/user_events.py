"""Events that the program reports itself: periodic work, pipelines, tracked runs, fixed shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.wire.event import Event, Location, StepEvent, event


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
    """A group was checked for being due for the first time; one that never is can never fire."""

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


@event
class FixedShapeUsed(Event):
    """Calls that a `FixedShape` made since its last such record; one batch may be several calls."""

    number: int
    """The `FixedShape`, by a number that it has in all records of the process."""
    function: Location
    """What it wraps."""
    axes: tuple[str, ...]
    buckets: tuple[tuple[int, ...], ...]
    """The sizes of each axis."""
    sizes: tuple[tuple[int, ...], ...]
    """Real sizes of a call, one for each axis; this tuple and the next two are parallel."""
    run: tuple[tuple[int, ...], ...]
    """The sizes it ran at."""
    counts: tuple[int, ...]
    priced: bool = False
    """The program gave the cost of a call at a size, so padding is not what counts."""
    asked: tuple[tuple[int, ...], ...] = ()
    """Sizes of the batch, as it came, that a call is the first of: `sizes`, unless the batch was
    split. () for the later calls of a batch; parallel to `sizes`, as the next one."""
    in_graphs: tuple[int, ...] = ()
    """Calls among `counts` in which a CUDA graph was recorded or replayed."""
    dims: tuple[tuple[str, ...], ...] = ()
    """Dimensions of each axis by the arguments that have it: "obs:0"; parallel to `axes`."""


@dataclass(frozen=True, slots=True)
class FixedShapeEvent(StepEvent):
    """Something that a `FixedShape` did in a step."""

    number: int
    function: Location


@event
class FixedShapeWarmed(FixedShapeEvent):
    """A `FixedShape` called what it wraps at every size; from here on nothing should compile."""

    graphs: int
    """Combinations of sizes."""
    compiles: int
    """Compiles and recordings that began meanwhile."""
    backward: bool
    began: float
    """When the warm-up began, in seconds; `t` is its end."""


@event
class FixedShapeCompiled(FixedShapeEvent):
    """Something was compiled or recorded in a call of a `FixedShape` that had been warmed up."""

    size: tuple[int, ...]
    run: tuple[int, ...]
    begun: tuple[str, ...]
    """torch's trigger and compile id of each: "DYNAMO 0/1"."""


@event
class PaddingChecked(FixedShapeEvent):
    """Findings of `FixedShape.check`; tuples from `outputs` to `bitwise` are parallel."""

    size: tuple[int, ...]
    run: tuple[int, ...]
    probes: tuple[str, ...]
    """What the padding held in the runs that were compared: "padding in use", "zeros"..."""
    seeds: tuple[int, ...]
    rng_consumed: bool
    outputs: tuple[str, ...]
    """Paths; also of what else was found to depend on padding: "buffer x", "attribute y"..."""
    kinds: tuple[str, ...]
    """"safe", "contaminated", "state", "reduced", "parity", "nan_leak", "rng", "unknown"."""
    notes: tuple[str, ...]
    max_abs: tuple[float, ...]
    bitwise: tuple[bool, ...]
    unseen: tuple[str, ...] = ()
    """What the function can reach and the check could not look into, with its type."""


@event
class RowsRun(FixedShapeEvent):
    """A loop over rows that are done one after the other has ended."""

    steps: int
    rows: int
    row_steps: int
    """Rows that were computed, over all steps."""
    active_row_steps: int
    """Those of them that were not done."""
    compacted: int
    """How often the rows that were left moved to a smaller size."""
    compaction: bool
    """False: it was switched off, or what was called has no fixed sizes."""


@event
class KneeMeasured(FixedShapeEvent):
    """A `FixedShape` was measured at its sizes, for the knee of its throughput."""

    sizes: tuple[int, ...]
    """Ascending; the others are parallel to it."""
    call_s: tuple[float | None, ...]
    """Lower quartile of the seconds of a call; None where there was none."""
    slow_call_s: tuple[float | None, ...]
    """Upper quartile."""
    problems: tuple[str | None, ...]
    """Why sizes from here on were not considered."""
    knee: int | None
    reason: str | None
    """Why no knee was named."""
    backward: bool
    """Gradients were enabled."""


TRAIN, INFER, WAIT = "train", "infer", "wait"

Interval = tuple[float, float]
"""Begin and end, in seconds."""


def compute_rate(samples: int, seconds: float) -> float | None:
    """Compute samples a second; None when there were none, or no time was taken."""
    return samples / seconds if samples > 0 and seconds > 0.0 else None


def count_most_at_once(intervals: Iterable[Interval]) -> int:
    """Count the most intervals in progress at one moment."""
    # An end sorts before a begin of the same moment.
    changes = sorted(edge for began, ended in intervals for edge in ((began, 1), (ended, -1)))
    highest = now = 0
    for _, change in changes:
        now += change
        highest = max(highest, now)
    return highest


def resolve_slots(declared: int | None, named: int, intervals: Iterable[Interval]) -> int:
    """Resolve how many inference calls can be in progress at a time: as `declared`, else as many
    slots as were named or were in use at one moment."""
    return declared if declared is not None else max(named, count_most_at_once(intervals))


def compute_infer_capacity(samples: int, seconds: float, slots: int) -> float | None:
    """Compute one slot's rate times the slots, in samples a second; None as in `compute_rate`."""
    one = compute_rate(samples, seconds)
    return None if one is None else one * slots
