"""What the program measured itself, or had measured: tracked runs, reports of ablations,
producer-consumer loops, windows of torch.profiler; and what the run cost."""

from typing import Any

from msgspec import field

from compilediag.receipt.schema.record import Record


class MetricRecord(Record, frozen=True, kw_only=True):
    """One metric over the steps of a run."""

    name: str
    count: int
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    last: float | None = None
    median_of: int | None = None
    not_finite: int = 0


class TrackedRecord(Record, frozen=True, kw_only=True):
    """One run of an evaluation lane: `name` and `config` are the lane."""

    name: str
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    state: str
    steps: int
    first_step: int | None = None
    last_step: int | None = None
    wall_s: float | None = None
    steps_s: float | None = None
    warmup: int = 0
    peak_bytes: int | None = None
    peak_at_start_bytes: int | None = None
    peak_source: str | None = None
    totals: dict[str, float | None] = field(default_factory=dict[str, float | None])
    per_s: dict[str, float | None] = field(default_factory=dict[str, float | None])
    metrics: tuple[MetricRecord, ...] = ()
    left_out: int = 0


class AblationRecord(Record, frozen=True, kw_only=True):
    """A report that was validated and written; the file is among the artifacts."""

    name: str
    architecture: str
    depth: int
    steps: int
    curves: int
    layers: int
    baseline: str | None = None
    uri: str


class PoolSizes(Record, frozen=True, kw_only=True):
    """Sizes of the pool of samples."""

    median: float | None = None
    max: int | None = None
    last: int | None = None
    early: float | None = None
    late: float | None = None


class PipelineRecord(Record, frozen=True, kw_only=True):
    """One loop; rates in samples a second."""

    name: str
    trained: int
    inferred: int
    train_steps: int
    throughput: float | None = None
    train_capacity: float | None = None
    infer_capacity: float | None = None
    infer_call_s: float | None = None
    slots: int | None = None
    dispatch_wait_s: float | None = None
    wait_share: float | None = None
    pool: PoolSizes | None = None
    bottleneck: str | None = None


class PipelineSection(Record, frozen=True, kw_only=True):
    """The loops of the lead process."""

    loops: tuple[PipelineRecord, ...] = ()


class Profile(Record, frozen=True, kw_only=True):
    """One window; its trace is linked, never inlined."""

    first_step: int
    last_step: int
    uri: str | None = None
    problem: str | None = None


class CostSection(Record, frozen=True, kw_only=True):
    """What the run cost, by the price table of the user."""

    amount: float | None = None
    recompile_amount: float | None = None
    currency: str
    per_hour: float | None = None
    unit: str | None = None
    name: str | None = None
    count: int | None = None
    table: str | None = None
    table_as_of: str | None = None
    table_source: str | None = None
    table_sha256: str | None = None
    note: str | None = None
