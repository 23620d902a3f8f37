"""What the two sides of a producer-consumer loop could do, and which is the bottleneck."""

from compilediag.receipt.schema.record import Record


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
