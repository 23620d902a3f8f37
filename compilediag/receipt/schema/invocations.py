"""How often compiled callables were called, with which shapes, and how much work that was; which
run at fixed sizes, how much padding that is, and whether it harms."""

from compilediag.receipt.schema.record import Record


class PerStep(Record, frozen=True, kw_only=True):
    """Calls in a step."""

    steps: int
    min: int
    median: float
    max: int


class ShapesRecord(Record, frozen=True, kw_only=True):
    """How often one combination of shapes was there."""

    shapes: str
    count: int


class VaryingSizesRecord(Record, frozen=True, kw_only=True):
    """Sizes of the tensors that change from call to call, with how often which came together."""

    dims: tuple[tuple[str, ...], ...]
    """Each size that changes, by the places that have it: "obs:0" is dim 0 of argument `obs`."""
    sizes: tuple[tuple[int, ...], ...]
    """Distinct combinations, ascending; each is parallel to `dims`."""
    counts: tuple[int, ...]
    """Calls of each, parallel to `sizes`."""
    other_calls: int = 0
    """Calls whose sizes are not known, or whose tensors are others in number or rank."""


class Invocation(Record, frozen=True, kw_only=True):
    """One compiled callable, called from eager code."""

    name: str
    file: str | None = None
    line: int | None = None
    calls: int
    complete: bool = True
    per_step: PerStep | None = None
    shapes: tuple[ShapesRecord, ...] = ()
    other_shapes: int = 0
    samples: int | None = None
    elements: int | None = None
    varying: VaryingSizesRecord | None = None
    padded_calls: int = 0


class Throughput(Record, frozen=True, kw_only=True):
    """How much work was done, to compare only runs of the same work, and how fast."""

    steps_per_s: float | None = None
    samples_per_s: float | None = None
    callable: str | None = None
    samples: int | None = None
    elements: int | None = None
    from_steps: int | None = None
    reported_by: str | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_device: float | None = None
    tflops_per_s_per_device: float | None = None
    mfu: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    train_s: float | None = None


class SizeRecord(Record, frozen=True, kw_only=True):
    """One of the sizes."""

    run: tuple[int, ...]
    calls: int
    elements: int


class PaddingOutput(Record, frozen=True, kw_only=True):
    """What the check found out about one result."""

    path: str
    kind: str
    note: str
    max_abs: float | None = None
    bitwise: bool


class PaddingRecord(Record, frozen=True, kw_only=True):
    """The last check of padding."""

    safe: bool
    verdict: str | None = None
    outputs: tuple[PaddingOutput, ...] = ()
    unseen: tuple[str, ...] = ()
    size: tuple[int, ...]
    run: tuple[int, ...]
    probes: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    rng_consumed: bool


class RowLoops(Record, frozen=True, kw_only=True):
    """Loops over rows that were done one after the other."""

    loops: int
    steps: int
    computed_rows: int
    active_rows: int
    compacted: int


class KneeSize(Record, frozen=True, kw_only=True):
    """One size that was measured for the knee."""

    size: int
    call_s: float | None = None
    slow_call_s: float | None = None
    rows_per_s: float | None = None
    problem: str | None = None


class KneeRecord(Record, frozen=True, kw_only=True):
    """The knee of throughput, as the program had it measured last."""

    size: int | None = None
    reason: str | None = None
    backward: bool
    measured: tuple[KneeSize, ...] = ()


class FixedShapeRecord(Record, frozen=True, kw_only=True):
    """One callable."""

    name: str
    file: str | None = None
    line: int | None = None
    axes: tuple[str, ...] = ()
    buckets: tuple[tuple[int, ...], ...] = ()
    sizes: tuple[SizeRecord, ...] = ()
    padding_waste_fraction: float | None = None
    warmed: bool
    warmup_compiles: int | None = None
    late_compiles: int | None = None
    padding: PaddingRecord | None = None
    rows: RowLoops | None = None
    planned_buckets: tuple[tuple[int, ...], ...] = ()
    planned_waste_fraction: float | None = None
    asked: VaryingSizesRecord | None = None
    cudagraph_calls: int | None = None
    cudagraph_padding_fraction: float | None = None
    knee: KneeRecord | None = None


class ShapesSection(Record, frozen=True, kw_only=True):
    """The callables of the lead process."""

    fixed: tuple[FixedShapeRecord, ...] = ()
