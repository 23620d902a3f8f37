"""Callables that run at fixed sizes: which, how often, how much padding, and whether it harms."""

from compilediag.receipt.schema.invocations import VaryingSizesRecord
from compilediag.receipt.schema.record import Record


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
