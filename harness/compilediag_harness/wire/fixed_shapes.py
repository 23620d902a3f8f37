"""What a `FixedShape` did, and what it found out about its sizes."""

from __future__ import annotations

from dataclasses import dataclass

from compilediag_harness.wire.event import Event, Location, StepEvent, event


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
    """What a `FixedShape` did in a step."""

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
    """What `FixedShape.check` found out; tuples from `outputs` to `bitwise` are parallel."""

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
