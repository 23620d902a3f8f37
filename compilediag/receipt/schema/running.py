"""The course of a run: steps, time, memory, waiting for devices, CUDA graphs, our own cost."""

from compilediag.receipt.schema.record import EMPTY, Record


class SyncLineRecord(Record, frozen=True, kw_only=True):
    """Reads of one kind on one line."""

    file: str  #: File.
    line: int  #: Line.
    function: str  #: Function.
    kind: str  #: `item`, `tolist`, `bool`, `float`, `int`, `index`, `cpu`, `to_cpu`, `nonzero`.
    ownership: str  #: Whose code it is: `user`, `third_party` or `torch`.
    #: First line of the innermost loop around it in its function; null where none is known.
    loop_line: int | None = None
    count: int  #: Reads in all sampled steps.
    most_in_a_step: int  #: Reads in the step that held most.
    steps: int  #: Sampled steps that held any.
    #: Seconds inside these calls, in all sampled steps; on a device with what they waited for; null
    #: where they were not timed in one of them.
    seconds: float | None = None


class SyncsSection(Record, frozen=True, kw_only=True):
    """Counts and seconds of the sampled steps only."""

    #: Steps in which reads were counted and timed; none in which something compiled.
    sampled_steps: int
    #: Only tensors on a device were counted; false: the program uses none, and the reads counted
    #: are those that would wait if its tensors were on one.
    on_device: bool
    complete: bool  #: No sampled step held more than were counted.
    #: Reads of one kind on one line, the most frequent first, at most 256.
    lines: tuple[SyncLineRecord, ...] = ()
    #: Seconds inside all reads of the sampled steps; null where a step was not timed or not counted
    #: to its end.
    seconds: float | None = None


class SketchRecord(Record, frozen=True, kw_only=True):
    """Mergeable counts of step times; the width of a bucket bounds the relative error."""

    kind: str  #: log-linear: 256 equal buckets in each power of two, bucket 0 begins at 1 s.
    relative_error: float  #: Bound on the relative error of a bucket's middle.
    buckets: dict[str, int]  #: Bucket to count.


class ByPhase(Record, frozen=True, kw_only=True):
    """Seconds by phase of a step."""

    data_wait: float | None = None  #: Waiting for data.
    #: Forward: outermost calls of compiled callables, and spans of that name; null where it is not
    #: distinguished.
    forward: float | None = None
    #: Backward: runs of the autograd engine; null where it is not distinguished.
    backward: float | None = None
    optimizer: float | None = None  #: Optimizer.
    spans: float | None = None  #: Named spans.
    #: Everything else, forward and backward included where they are null.
    rest: float | None = None


class Phases(ByPhase, frozen=True, kw_only=True):
    """Summed over the steps; `compile_s` is the compiling in each of them."""

    #: Seconds of compiles inside a phase, by phase: a part of it.
    compile_s: dict[str, float] = EMPTY
    #: Steps that these seconds are of, where they are not of all: of most brief steps only the ends
    #: are noted.
    steps: int | None = None


class Spike(Record, frozen=True, kw_only=True):
    """A step that took much longer than its neighbours."""

    step: int  #: Number of the step.
    wall_s: float  #: How long it took.
    compile_s: float | None  #: Seconds of compiles in it.
    metric_s: float | None  #: Seconds of metrics spans in it.
    #: Seconds in it inside the reads of tensors that make the host wait; null where the step was
    #: not sampled, or not all of its reads were timed.
    sync_s: float | None
    #: Id of the finding that explains it; else what took most of the time it has too much: compile,
    #: metric, sync, data, measuring (our own work), checkpoint or another category of spans,
    #: unexplained.
    why: str | None


class StepsSection(Record, frozen=True, kw_only=True):
    """Step times, in seconds."""

    count: int  #: Steps that ended.
    #: Leading steps that belong to warm-up: as many as the user says, else those with a first
    #: compile, or of a trainer's output those before the first that are like the second half.
    warmup: int | None = None
    #: Clock of the times: monotonic; of a trainer's output trainer (printed by it), timestamps (of
    #: its lines) or bar (a progress bar).
    clock: str | None = None
    mean: float | None = None  #: Mean.
    median: float | None = None  #: Median.
    min: float | None = None  #: Shortest.
    max: float | None = None  #: Longest.
    p90: float | None = None  #: 90th percentile, by nearest rank.
    p99: float | None = None  #: 99th percentile, by nearest rank.
    #: Counts by duration; sketches of several ranks or runs add up.
    sketch: SketchRecord | None = None
    phases: Phases = Phases()  #: Seconds by phase, summed over the steps.
    #: Steps after warm-up that took more than twice the median; the longest 64.
    spikes: tuple[Spike, ...] = ()
    #: Steps that the times are of, where they are not of all: a trainer may print the time of one
    #: step in ten. Null where each has its own, or its part in a mean.
    timed: int | None = None


class Timing(Record, frozen=True, kw_only=True):
    """The time of one span, hook or function in one phase of the steps; no figures where it could
    not be timed, with the reason in `note`."""

    #: span, disabled_function, or the kind of hook: forward_hook, forward_pre_hook,
    #: backward_hook, backward_pre_hook, tensor_hook, accumulate_grad_hook.
    kind: str
    name: str  #: Name of the span or function.
    #: Phase of the step it began in, or: other thread; null where not known.
    phase: str | None = None
    count: int | None = None  #: How often; null where it could not be timed.
    total_s: float | None = None  #: Seconds, with what it called itself.
    mean_s: float | None = None  #: Mean.
    max_s: float | None = None  #: Longest.
    target: str | None = None  #: Of a hook: the module or parameter it is on.
    file: str | None = None  #: File of the function.
    line: int | None = None  #: Line of the function.
    note: str | None = None  #: Why there are no figures.


class GoodputSection(Record, frozen=True, kw_only=True):
    """Wall time, taken apart: goodput plus all badput is the wall time."""

    wall_s: float | None  #: Wall time of the run.
    goodput_s: float | None  #: Inside steps, minus all badput; null when no step was seen.
    #: Seconds by category: every second counts once, nested spans in the innermost; unknown span
    #: names keep their name, and `measuring` is our own analysis of recompiles; null when not
    #: observable.
    badput_s: dict[str, float | None]
    fraction: float | None  #: goodput_s / wall_s.


class CudagraphSection(Record, frozen=True, kw_only=True):
    """CUDA graphs; not `applicable` without a CUDA device."""

    applicable: bool | None = None  #: There is a CUDA device; null when not known.
    recordings: int | None = None  #: Graphs recorded; null when they could not be watched.
    replays: int | None = None  #: Replays.
    #: Recordings by reason: `first`, `size`, `static_address`, `graph_output_address`,
    #: `outputs_alive`, `order`, `thread`, `unknown`.
    recordings_by_reason: dict[str, int] = EMPTY
    #: Warnings of torch that a graph was left out, by reason; it warns of most once, of some never.
    skips_by_reason: dict[str, int] = EMPTY
    #: Distinct sizes of the inputs that were recorded, of those that each replay copies: not of
    #: parameters, nor of tensors marked static, as those of a `FixedShape` are.
    distinct_shapes: int | None = None
    pool_bytes: int | None = None  #: Bytes of the graphs' memory pools.
    #: Share of the work that padding made: of the elements that ran in CUDA graphs in calls of a
    #: `FixedShape`, those that were padding (0.33 is three rows run for two). Null where no such
    #: call ran in one; where two or more callables did, whose elements cost different work (each
    #: has `shapes.fixed[].cudagraph_padding_fraction`); and for tensors that the program pads
    #: itself, of which nobody knows which rows are real.
    padding_waste_fraction: float | None = None
    warmups: int | None = None  #: Runs without a graph, before its recording.
    #: torch's own count of graphs left out; null on a CPU, where it counts every graph, and after
    #: `torch._dynamo.reset()`, which clears it.
    skips: int | None = None
    live_graphs: int | None = None  #: Graphs at the end.
    threads: int | None = None  #: Threads that recorded.


class Overhead(Record, frozen=True, kw_only=True):
    """The cost of measuring."""

    #: Seconds in our own code, as far as measured, in the lead process.
    collector_s: float | None = None
    bytes_written: int | None = None  #: Bytes of journals and logs that measuring wrote.
    records_dropped: int | None = None  #: Records that could not be written, in all processes.


class GrowingBucket(Record, frozen=True, kw_only=True):
    """The counter and pool that grew most in steady state."""

    bucket: str  #: As in `allocated_bytes.large_pool`.
    grown_bytes: int  #: By how much.
    first_step: int | None = None  #: Step of the first reading in steady state.
    last_step: int | None = None  #: Step of the last reading.


class Allocator(Record, frozen=True, kw_only=True):
    """The counters of the fullest device's allocator."""

    allocated_peak_bytes: int | None = None  #: Peak of allocated bytes.
    reserved_peak_bytes: int | None = None  #: Peak of reserved bytes.
    inactive_split_bytes: int | None = None  #: Bytes in inactive split blocks.
    num_alloc_retries: int | None = None  #: Allocations that had to be tried again.
    num_ooms: int | None = None  #: Out-of-memory errors.
    #: The counter and pool that grew most in steady state.
    largest_growing_bucket: GrowingBucket | None = None


class DeviceRecord(Record, frozen=True, kw_only=True):
    """One CUDA device, at the last reading."""

    device: int  #: Index of the device.
    allocated_bytes: int | None = None  #: Bytes in tensors, at the last reading.
    allocated_peak_bytes: int | None = None  #: Highest allocated bytes.
    reserved_bytes: int | None = None  #: Bytes the caching allocator holds, at the last reading.
    reserved_peak_bytes: int | None = None  #: Highest reserved bytes.
    active_bytes: int | None = None  #: Bytes in blocks in use or not yet free on their streams.
    inactive_split_bytes: int | None = None  #: Bytes in split blocks that nobody uses.
    num_alloc_retries: int | None = None  #: Allocations that emptied the cache and tried again.
    num_ooms: int | None = None  #: Out-of-memory errors.
    num_device_alloc: int | None = None  #: Calls of cudaMalloc.
    num_device_free: int | None = None  #: Calls of cudaFree.
    num_sync_all_streams: int | None = None  #: Times the allocator waited for all streams.
    #: The counter and pool that grew most from the first reading in steady state to the last; null
    #: when none grew.
    largest_growing_bucket: GrowingBucket | None = None
    hint: str | None = None  #: What to look at on this device.


class MemorySection(Record, frozen=True, kw_only=True):
    """Peaks of memory."""

    host_peak_bytes: int | None = None  #: Largest resident size of any process.
    #: Per CUDA device that the lead process used; empty without one, null when not read.
    devices: tuple[DeviceRecord, ...] | None = None
    allocator: Allocator = Allocator()  #: The counters of the device that was fullest.
    hint: str | None = None  #: What to look at.
