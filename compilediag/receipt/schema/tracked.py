"""The program's own measurements: tracked runs, ablations, producer loops, profiles; run cost."""

from typing import Any

from compilediag.receipt.schema.record import EMPTY, Record


class MetricRecord(Record, frozen=True, kw_only=True):
    """One metric over the steps of a run."""

    name: str  #: Name.
    count: int  #: Finite numbers, of which the figures are.
    mean: float | None = None  #: Mean.
    median: float | None = None  #: Median; null in a run whose process was killed.
    min: float | None = None  #: Smallest.
    max: float | None = None  #: Largest.
    last: float | None = None  #: Newest finite number.
    #: Numbers of which the median is one: all, or a fair sample of 16,384.
    median_of: int | None = None
    not_finite: int = 0  #: NaN and infinities, left out of the figures.


class TrackedRecord(Record, frozen=True, kw_only=True):
    """One run of an evaluation: `name` and `config` are its configuration."""

    name: str  #: Name of the evaluation.
    config: dict[str, Any] = EMPTY  #: Its configuration, as the program gave it, redacted.
    state: str  #: finished, failed (an exception ended it), or running (the process ended first).
    steps: int  #: Steps that were recorded.
    first_step: int | None = None  #: Number of the first.
    last_step: int | None = None  #: Number of the last.
    wall_s: float | None = None  #: From start_run to finish_run.
    #: From start_run, or from the end of the warm-up, to the last recorded step.
    steps_s: float | None = None
    warmup: int = 0  #: Recorded steps at the start that are in no rate and no step time.
    peak_bytes: int | None = None  #: Most host memory of the process by the end of the run.
    #: The same at its start: where they are equal, the run did not raise it.
    peak_at_start_bytes: int | None = None
    peak_source: str | None = None  #: Where it is from: VmHWM (of /proc) or getrusage.
    totals: dict[str, float | None] = EMPTY  #: Sums of what the program counted, such as tokens.
    #: The same by second of `steps_s`, without those of the warm-up.
    per_s: dict[str, float | None] = EMPTY
    #: What the steps gave; `step_s` is the time from one recorded step to the next.
    metrics: tuple[MetricRecord, ...] = ()
    left_out: int = 0  #: Names of metrics and counts beyond the 256 that are stored.


class AblationRecord(Record, frozen=True, kw_only=True):
    """A report that was validated and written; the file is among the artifacts."""

    name: str  #: What was changed.
    architecture: str  #: The model under test.
    depth: int  #: Its layers.
    steps: int  #: Steps at which the curves have numbers.
    curves: int  #: Curves of the whole model.
    layers: int  #: Layer keys that have curves.
    baseline: str | None = None  #: Name of the report to compare with.
    uri: str  #: The file, as among the artifacts.


class PoolSizes(Record, frozen=True, kw_only=True):
    """Sizes of the pool of samples."""

    median: float | None = None  #: Median of the reported sizes.
    max: int | None = None  #: Largest size.
    last: int | None = None  #: Last size.
    early: float | None = None  #: Median of the first third of the sizes; null with too few.
    late: float | None = None  #: Median of the last third.


class PipelineRecord(Record, frozen=True, kw_only=True):
    """One loop; rates in samples a second."""

    name: str  #: The name the program gave it.
    trained: int  #: Samples trained.
    inferred: int  #: Samples that inference made.
    train_steps: int  #: Training steps.
    #: Samples trained, by the seconds from the first stretch to the end of the last training step.
    throughput: float | None = None
    #: Samples a second of training while it trains, steps with compiles left out.
    train_capacity: float | None = None
    #: Samples a second of one inference call, times the slots; calls with compiles left out.
    infer_capacity: float | None = None
    infer_call_s: float | None = None  #: Mean seconds of an inference call.
    #: Inference calls that can be in progress at a time: declared, else as seen.
    slots: int | None = None
    #: Seconds that training waited for samples; null when no wait was measured.
    dispatch_wait_s: float | None = None
    #: Waiting after the first training step, as a share of that waiting and training.
    wait_share: float | None = None
    pool: PoolSizes | None = None  #: Sizes of the pool of samples; null when none was reported.
    #: `inference`, `training`, `dispatch` (samples are late though inference is fast enough),
    #: `balanced`; null when it could not be determined.
    bottleneck: str | None = None


class PipelineSection(Record, frozen=True, kw_only=True):
    """The loops of the lead process."""

    #: The loops that the program measures with `pipeline()`, in the lead process.
    loops: tuple[PipelineRecord, ...] = ()


class CostSection(Record, frozen=True, kw_only=True):
    """The cost of the run, by the price table of the user."""

    #: Wall time by count by price; null where one of them is not known, see `note`.
    amount: float | None = None
    recompile_amount: float | None = None  #: The part of it that recompiles took.
    currency: str  #: As the table says.
    per_hour: float | None = None  #: Price of one device or machine for an hour.
    unit: str | None = None  #: device or machine.
    name: str | None = None  #: Of the device, or of the machine's CPU.
    #: Devices or machines: one device a rank; one rank has all that it sees.
    count: int | None = None
    table: str | None = None  #: File name of the table.
    table_as_of: str | None = None  #: Its date, as it says.
    table_source: str | None = None  #: Where its prices come from, as it says.
    table_sha256: str | None = None  #: Digest of the file.
    note: str | None = None  #: Why there is no amount.
