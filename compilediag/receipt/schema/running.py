"""The course of a run: steps, time, memory, waiting for devices, CUDA graphs, our own cost."""

from typing import Any

from msgspec import field

from compilediag.receipt.schema.record import Record


class SyncLineRecord(Record, frozen=True, kw_only=True):
    """Reads of one kind on one line."""

    file: str
    line: int
    function: str
    kind: str
    ownership: str
    loop_line: int | None = None
    count: int
    most_in_a_step: int
    steps: int
    seconds: float | None = None


class SyncsSection(Record, frozen=True, kw_only=True):
    """Counts and seconds of the sampled steps only."""

    sampled_steps: int
    on_device: bool
    complete: bool
    lines: tuple[SyncLineRecord, ...] = ()
    seconds: float | None = None


class SketchRecord(Record, frozen=True, kw_only=True):
    """Mergeable counts of step times; the width of a bucket bounds the relative error."""

    kind: str
    relative_error: float
    buckets: dict[str, int]


class ByPhase(Record, frozen=True, kw_only=True):
    """Seconds by phase of a step."""

    data_wait: float | None = None
    forward: float | None = None
    backward: float | None = None
    optimizer: float | None = None
    spans: float | None = None
    rest: float | None = None


class Phases(ByPhase, frozen=True, kw_only=True):
    """Summed over the steps; `compile_s` is the compiling in each of them."""

    compile_s: dict[str, float] = field(default_factory=dict[str, float])
    steps: int | None = None
    partial: dict[str, str] = field(default_factory=dict[str, str])


class DeviceTiming(Record, frozen=True, kw_only=True):
    """How device time was read; `extra_syncs` is always 0 by default."""

    method: str | None = None
    extra_syncs: int = 0
    steps: int | None = None
    step_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None


class Spike(Record, frozen=True, kw_only=True):
    """A step that took much longer than its neighbours."""

    step: int
    wall_s: float
    compile_s: float | None
    metric_s: float | None
    sync_s: float | None
    why: str | None


class StepsSection(Record, frozen=True, kw_only=True):
    """Step times, in seconds."""

    count: int
    warmup: int | None = None
    clock: str | None = None
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    p90: float | None = None
    p99: float | None = None
    sketch: SketchRecord | None = None
    phases: Phases = Phases()
    device_timing: DeviceTiming = DeviceTiming()
    spikes: tuple[Spike, ...] = ()
    timed: int | None = None


class Timing(Record, frozen=True, kw_only=True):
    """What one span, hook or function took in one phase of the steps; no figures where it could
    not be timed, with the reason in `note`."""

    kind: str
    name: str
    phase: str | None = None
    count: int | None = None
    total_s: float | None = None
    mean_s: float | None = None
    max_s: float | None = None
    target: str | None = None
    file: str | None = None
    line: int | None = None
    note: str | None = None


class GoodputSection(Record, frozen=True, kw_only=True):
    """Wall time, taken apart: goodput plus all badput is the wall time."""

    wall_s: float | None
    goodput_s: float | None
    badput_s: dict[str, float | None]
    fraction: float | None


class CudagraphSection(Record, frozen=True, kw_only=True):
    """CUDA graphs; not `applicable` without a CUDA device."""

    applicable: bool | None = None
    recordings: int | None = None
    replays: int | None = None
    recordings_by_reason: dict[str, int] = field(default_factory=dict[str, int])
    skips_by_reason: dict[str, int] = field(default_factory=dict[str, int])
    distinct_shapes: int | None = None
    pool_bytes: int | None = None
    padding_waste_fraction: float | None = None
    warmups: int | None = None
    skips: int | None = None
    live_graphs: int | None = None
    threads: int | None = None


class Overhead(Record, frozen=True, kw_only=True):
    """What measuring cost."""

    collector_s: float | None = None
    bytes_written: int | None = None
    records_dropped: int | None = None
    step_time_ratio: float | None = None
    ci95: Any = None


class GrowingBucket(Record, frozen=True, kw_only=True):
    """The counter and pool that grew most in steady state."""

    bucket: str
    grown_bytes: int
    first_step: int | None = None
    last_step: int | None = None


class Allocator(Record, frozen=True, kw_only=True):
    """The counters of the fullest device's allocator."""

    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    inactive_split_bytes: int | None = None
    num_alloc_retries: int | None = None
    num_ooms: int | None = None
    largest_growing_bucket: GrowingBucket | None = None


class DeviceRecord(Record, frozen=True, kw_only=True):
    """One CUDA device, at the last reading."""

    device: int
    allocated_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    active_bytes: int | None = None
    inactive_split_bytes: int | None = None
    num_alloc_retries: int | None = None
    num_ooms: int | None = None
    num_device_alloc: int | None = None
    num_device_free: int | None = None
    num_sync_all_streams: int | None = None
    largest_growing_bucket: GrowingBucket | None = None
    hint: str | None = None


class MemorySection(Record, frozen=True, kw_only=True):
    """Peaks of memory."""

    host_peak_bytes: int | None = None
    devices: tuple[DeviceRecord, ...] | None = None
    allocator: Allocator = Allocator()
    hint: str | None = None
