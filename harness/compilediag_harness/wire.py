"""Every event as a frozen dataclass with its JSON line: the only contract between the halves.

An event says what happened in one process, in torch's own words. `t` is in seconds on the
monotonic clock, counted from the moment the process attached; `step` is the step in progress
(0 for the first). Text that comes from the target is stored as it is, bounded in length, and
redacted and escaped by the outside half, never here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import field
from typing import Any, cast

from compilediag_harness.lazy_dataclasses import dataclass

WIRE_VERSION = 1

TEXT_LIMIT = 16_384
"""Longest text of the target kept in one field, in characters."""


@dataclass(frozen=True, slots=True)
class Location:
    """A line of code. `function` is the code object's name, as torch prints it."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """What only the live process could know about a false guard; None where it could not tell."""

    root: str | None = None
    """Where the source starts: "argument", "global", "free_variable" (of the compiled function)."""
    instance_changed: bool | None = None
    """The guarded root object is another object than the one the cache entry was compiled with."""
    free_variable: str | None = None
    """Name of the closure cell's variable, when the source passes through a cell."""
    holder_kind: str | None = None
    """What the last hop is read from: "module", "optimizer", "namedtuple", "dict", "object"..."""
    holder_type: str | None = None
    """Class name of that holder, such as "PositionalEncoding"."""
    holder_path: str | None = None
    """The holder as the user would spell it below the compiled module, such as "pos"."""
    value_type: str | None = None
    """Type of the value now, such as "bool", "torch.Tensor", "NoneType"."""
    is_enum: bool | None = None
    member_type: str | None = None
    """For a check that an object has an attribute or a container a key: the type of that member
    now, when it is there."""


@dataclass(frozen=True, slots=True)
class FalseGuard:
    """One guard of a cache entry that was false, or about to be."""

    source: str
    """The guarded value as Python source in the scope {L, G}; "" when torch did not tell."""
    leaf: str
    """Class of the leaf guard ("TENSOR_MATCH"), "SHAPE" for a symbolic shape condition, or
    "PRINTED" for a failure that only torch's printed reason tells."""
    text: str
    """The guard as torch prints it, without the trailing comments."""
    expected: str | None = None
    actual: str | None = None
    user: Location | None = None
    """The user's line that made Dynamo install the guard."""
    hint: str | None = None
    facts: GuardFacts = field(default_factory=GuardFacts)
    writers: tuple[Location, ...] = ()
    """Functions of the running program that write the guarded variable."""


@dataclass(frozen=True, slots=True)
class EntryDiff:
    """All false guards of one cache entry, in guard order."""

    compile_id: str
    guards: tuple[FalseGuard, ...]
    checked: int = 0
    unevaluated: int = 0
    """Leaf guards that could not be evaluated from Python."""


# --- the process -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """The process attached; the first record of every journal."""

    t: float
    wire_version: int
    pid: int
    parent_pid: int
    rank: int | None
    world_size: int | None
    argv: tuple[str, ...]
    executable: str
    cwd: str
    started_utc: str
    """ISO 8601, from the wall clock: for display only."""
    python: str


@dataclass(frozen=True, slots=True)
class TorchSeen:
    """torch was imported and the collectors were installed."""

    t: float
    torch: str
    torch_git: str | None
    hooks: dict[str, bool]
    """Hook name to available, for every private name of `torch_names`."""
    lost: dict[str, str]
    """For each missing hook, what cannot be observed without it."""


@dataclass(frozen=True, slots=True)
class EnvironmentRead:
    """Machine, versions and the flags that change numbers or speed; see `environment.py`."""

    t: float
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process is about to end in an orderly way; absent after SIGKILL or `os._exit`."""

    t: float
    counters: dict[str, int]
    """torch's own totals, to reconcile with: metrics_rows, frames_total, frames_ok,
    unique_graphs, recompile_calls, break_records."""
    collector_s: float
    records_dropped: int
    host_peak_bytes: int | None
    failure: str | None = None
    """Text of the exception that ends the process, if one was seen."""


# --- compiles --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompileStarted:
    """Dynamo, a lazy backward or a CUDA-graph recording began to compile."""

    t: float
    step: int
    trigger: str
    compile_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compilation metrics row of torch: an attempt to compile one frame ended."""

    t: float
    step: int
    compile_id: str
    """As torch spells it: "0/1", "0/0_1" for a restart, "!1/1/0" under compiled autograd."""
    epoch: int
    """Advanced by `torch._dynamo.reset()`, after which ids start again at 0/0."""
    frame: Location
    forward: bool
    guarded: bool
    """The attempt ended with guarded code."""
    seconds: float
    """Wall seconds of the attempt, our own analysis inside it taken out."""
    backend_s: float | None
    graph_ops: int | None
    guards: int | None
    cache_size: int | None
    recompile_reason: str | None
    fail_type: str | None
    fail_reason: str | None
    restart_reasons: tuple[str, ...] = ()
    limit: int | None = None
    """`torch._dynamo.config.recompile_limit` in force."""
    guard_eval_us: float | None = None
    cache_hits: int | None = None
    """Answers of inductor's and AOTAutograd's caches, local and remote; None where torch did not
    count them."""
    cache_misses: int | None = None


@dataclass(frozen=True, slots=True)
class Recompiled:
    """torch asked why no cache entry of a frame fits: the attempt to compile it again begins."""

    t: float
    step: int
    compile_id: str
    epoch: int
    frame: Location
    reasons: tuple[str, ...]
    """torch's printed reasons, one per cache entry, most recently used entry first."""
    entries: tuple[EntryDiff, ...]
    """All false guards of every live entry, in torch's order; empty when that was impossible."""
    analysis_s: float
    problem: str | None = None
    """Why the entries could not be analysed, if so."""


@dataclass(frozen=True, slots=True)
class DynamoReset:
    """`torch._dynamo.reset()` was called: ids restart, the epoch advances to `epoch`."""

    t: float
    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class GraphBroke:
    """torch reported a graph break; `text` is torch's whole report of it."""

    t: float
    step: int
    compile_id: str
    epoch: int
    text: str
    repeated: bool = False
    """torch suppressed the stack because it had printed this break before."""


@dataclass(frozen=True, slots=True)
class CollectivesPlanned:
    """The collectives that inductor put into one compiled graph, in the order in which every rank
    must run them; only a trace tells of them."""

    t: float
    step: int
    compile_id: str
    epoch: int
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FrameSkipped:
    """Dynamo decided not to compile a frame it was asked to, without a metrics row."""

    t: float
    step: int
    frame: Location
    reason: str


@dataclass(frozen=True, slots=True)
class WarningSeen:
    """A warning of torch's compile loggers (recompile limit, suppressed errors, CUDA graphs...)."""

    t: float
    step: int
    compile_id: str
    logger: str
    text: str


# --- hazards ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HazardsChecked:
    """After a step in which something compiled, guards already false were looked for."""

    t: float
    step: int
    frame: Location
    guards: tuple[FalseGuard, ...]
    """Guards of the most recently used entry that are false now: armed causes."""
    checked: int
    unevaluated: int
    seconds: float
    skipped: str | None = None
    """Why the check was not made or not finished ("over 50 ms"), if so."""


@dataclass(frozen=True, slots=True)
class UnguardedChanged:
    """Hooks or methods of a compiled module changed after its compile; no guard sees it."""

    t: float
    step: int
    frame: Location
    what: str
    """"forward_hook", "forward_pre_hook", "class_method", "instance_method"."""
    target: str
    """Module path and name, such as "encoder.layer0" or "Block.forward"."""
    where: Location | None


# --- steps and spans -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepsEnded:
    """A batch of finished steps, in order; tuples are parallel, in seconds."""

    t: float
    first: int
    source: str
    """What marked the steps: "step()", "optimizer", "call" (outermost compiled call)."""
    ends: tuple[float, ...]
    walls: tuple[float, ...]
    data_wait: tuple[float, ...] = ()
    optimizer: tuple[float, ...] = ()
    spans: tuple[float, ...] = ()
    forward: tuple[float, ...] = ()
    backward: tuple[float, ...] = ()
    """Phases exclude each other: the seconds of a step's phases never exceed its wall seconds. An
    empty tuple is a phase that was not measured, never one of zero seconds."""
    partial: dict[str, str] = field(default_factory=dict[str, str])
    """Phases that are measured in part, each with what is missing."""
    noted: bool = False
    """Only the ends of these steps were noted: no calls of compiled callables are told of them, and
    no phases but `data_wait` and `spans`. Then `walls` is empty, each step beginning with the end
    of the one before it, and the first at `began`."""
    began: float | None = None
    measuring_s: float = 0.0
    """Seconds that our own work took out of the first of these steps."""

    def every_wall(self) -> tuple[float, ...]:
        """Wall seconds of each step; of steps that were only noted, their ends tell them."""
        if self.walls or self.began is None:
            return self.walls
        begins = (self.began, *self.ends)
        return tuple(end - began for began, end in zip(begins, self.ends, strict=False))


@dataclass(frozen=True, slots=True)
class SpanEnded:
    """A named stretch of the run ended. Nested spans carry their depth; inner time is not the
    outer's when goodput is added up. Old journals hold one record a span, new ones `SpansEnded`."""

    t: float
    step: int
    name: str
    start: float
    wall_s: float
    depth: int
    thread: int
    phase: str | None = None
    """The phase of the step it began in ("forward", "rest"...); None where not known."""


@dataclass(frozen=True, slots=True)
class SpansEnded:
    """A batch of finished spans, in the order they ended, in whole nanoseconds. What spans have in
    common is said once: `names`, `depths`, `threads` and `phases` are parallel, one place a kind of
    span; the tuples after them are parallel too, one place a span."""

    t: float
    names: tuple[str, ...]
    depths: tuple[int, ...]
    threads: tuple[int, ...]
    phases: tuple[str, ...]
    """The phase of the step a span began in ("forward", "rest"...); "" where not known."""
    kinds: tuple[int, ...]
    """Place in the tuples above of each span's kind."""
    steps: tuple[int, ...]
    starts_ns: tuple[int, ...]
    walls_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CadenceDeclared:
    """The program made a group of periodic work; a later one of the same name takes its place."""

    t: float
    step: int
    name: str
    every: int
    """The period in force, in steps; 0 when a probe has switched the group off."""
    offset: int
    own_every: int
    """The program's own period."""


@dataclass(frozen=True, slots=True)
class CadenceAsked:
    """A group was asked for the first time whether it is due; one that never is can never fire."""

    t: float
    step: int
    name: str
    number: int
    """The step as the program counts."""


@dataclass(frozen=True, slots=True)
class CadenceFired:
    """A batch of firings, in order; all tuples but `names` are parallel."""

    t: float
    names: tuple[str, ...]
    """The groups that occur, each once."""
    name: tuple[int, ...]
    """Position in `names` of the group that fired."""
    at: tuple[float, ...]
    """When, in seconds."""
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DisabledCallsEnded:
    """Calls of the program's functions behind `torch.compiler.disable`, added up since the last
    such record; tuples are parallel, in seconds. Where one calls another, both have its time."""

    t: float
    functions: tuple[Location, ...]
    phases: tuple[str, ...]
    """The phase of the step that the calls were in; one function may stand here once a phase."""
    counts: tuple[int, ...]
    total_s: tuple[float, ...]
    longest_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DeviceStepsTimed:
    """Device time of steps, known some time after they ended; tuples are parallel, in seconds."""

    t: float
    steps: tuple[int, ...]
    step_s: tuple[float, ...]
    forward_s: tuple[float | None, ...]
    backward_s: tuple[float | None, ...]
    """None where a step has no such phase."""
    dropped: int = 0
    """Steps since the last record whose events were never waited for."""


@dataclass(frozen=True, slots=True)
class PackedBuffer:
    """A buffer that one step filled with one value, and then wrote into."""

    place: Location
    """The first line that writes into it."""
    name: str
    """Its name there, such as "batch"."""
    fill: str
    """What filled it: "zeros", "new_full", "zero_"."""
    fill_line: int
    buffers: int
    """How often it was filled."""
    stores: int
    buffer_bytes: int
    """Filled, each time added up."""
    written_bytes: int | None
    """Written afterwards, at least; None where it is not known of every store."""
    seconds: float | None
    """Inside of the stores; None where not all were timed."""


@dataclass(frozen=True, slots=True)
class SyncsSampled:
    """Where the program made the host wait for tensor data, in one whole step; sampled, and only in
    steps in which nothing compiled. Inside of compiled callables only the program's functions
    behind `torch.compiler.disable` are seen."""

    t: float
    step: int
    on_device: bool
    """Only tensors on a device were counted. False: the program uses none, and what is counted are
    the reads that would wait for a device if the tensors were there."""
    complete: bool
    """False when the step held more than were counted."""
    places: tuple[Location, ...]
    """The user's line; this tuple and those up to `seconds` are parallel, one place a kind and
    line."""
    kinds: tuple[str, ...]
    """"item", "tolist", "bool", "float", "int", "index", "cpu", "to_cpu", "numpy", "nonzero"."""
    loops: tuple[int, ...]
    """First line of the innermost loop around the line in its function; 0 where none is known."""
    spans: tuple[tuple[str, ...], ...]
    """Names of the spans that were open, outermost first."""
    counts: tuple[int, ...]
    seconds: tuple[float, ...] = ()
    """Inside the calls themselves, what one waited for included; empty where not all were timed."""
    noting_s: dict[str, float] = field(default_factory=dict[str, float])
    """What noting the reads made the step longer by, by phase."""
    packed: tuple[PackedBuffer, ...] = ()


@dataclass(frozen=True, slots=True)
class HooksFound:
    """The program's hooks on its compiled modules and their parameters, when the process ends;
    tuples are parallel."""

    t: float
    kinds: tuple[str, ...]
    """"forward_hook", "forward_pre_hook", "backward_hook", "backward_pre_hook", "tensor_hook",
    "accumulate_grad_hook"."""
    targets: tuple[str, ...]
    """Path of the module or parameter below the compiled module."""
    functions: tuple[Location, ...]
    disabled: tuple[bool, ...]
    """The hook is behind `torch.compiler.disable`: its calls are in `DisabledCallsEnded`."""


@dataclass(frozen=True, slots=True)
class ProfileEnded:
    """A window of torch.profiler that a signal asked for has ended, or did not begin."""

    t: float
    first_step: int
    last_step: int
    file: str | None
    """Name of the trace in the folder for artifacts; None where there is none."""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceMemoryRead:
    """What the allocator of one CUDA device held at a moment."""

    t: float
    step: int
    device: int
    current: dict[str, int]
    """torch's counters "allocated_bytes", "reserved_bytes", "active_bytes" and
    "inactive_split_bytes", and of each pool as in "allocated_bytes.large_pool"."""
    peak: dict[str, int]
    """Highest values since the program last reset them; without the pools."""
    counts: dict[str, int]
    """"num_alloc_retries", "num_ooms", "num_device_alloc"..."""


@dataclass(frozen=True, slots=True)
class CompiledCallsMade:
    """Calls of compiled callables from eager code since the last such record."""

    t: float
    numbers: tuple[int, ...]
    """The callables that occur, by a number that one has in all records of the process."""
    functions: tuple[Location, ...]
    """What they are; parallel to `numbers`. Two modules of one class are two callables."""
    shapes: tuple[str | None, ...]
    """Shapes of a call's tensors, each once: "[8, 16], mask=[8]"; None where they were too many."""
    samples: tuple[int | None, ...]
    """Leading size of the first tensor, parallel to `shapes`."""
    elements: tuple[int | None, ...]
    """Elements of that tensor."""
    callables: tuple[int, ...]
    """With `shape_places` (positions in `shapes`) and `counts`: how often which callable was
    called with which shapes. -1: a callable that has no number, because there are too many."""
    shape_places: tuple[int, ...]
    counts: tuple[int, ...]
    order: tuple[int, ...] = ()
    """Each call, as a position in `callables`; only the first so many of a process."""
    at: tuple[float, ...] = ()
    """When those began."""
    tensors: tuple[tuple[str, ...], ...] = ()
    """Parallel to `functions`: the tensors of its first call by parameter and key ("batch.ids"), in
    the order of `shapes`; empty where the parameters are not known."""
    padded: tuple[int, ...] = ()
    """Parallel to `functions`: calls that a `FixedShape` made, at its own sizes."""


@dataclass(frozen=True, slots=True)
class CudagraphRecorded:
    """torch recorded a CUDA graph; after the first so many of a process they are only counted."""

    t: float
    step: int
    epoch: int
    compile_id: str
    mode: str
    """"forward", "backward", "inference"."""
    reason: str
    """"first"; "size" (the same code at another dynamic size); "static_address",
    "graph_output_address", "outputs_alive" (torch's three checks of a recorded graph); "order"
    (after another graph than before); "thread" (recorded already in another thread); "unknown"."""
    tree: int
    """One a device and thread, numbered as they were first used."""
    function: int
    """Number of the compiled function in its tree."""
    thread: int
    sizes: tuple[str, ...]
    """Of the inputs that each replay copies: "[8, 16]"."""
    moved: tuple[str, ...]
    """Inputs that have another address than in the graph before, as in the compiled graph."""
    moved_at: tuple[Location | None, ...]
    """The user's lines that use them."""
    seconds: float


@dataclass(frozen=True, slots=True)
class CudagraphsRan:
    """What CUDA graphs did since the last such record; the first tuples are parallel."""

    t: float
    compile_ids: tuple[str, ...]
    recordings: tuple[int, ...]
    replays: tuple[int, ...]
    warmups: tuple[int, ...]
    """Runs without a graph, before the recording."""
    skips: int | None = None
    """torch's own count of graphs it left out, since the process attached; told at the end, and not
    where the count was cleared meanwhile."""
    live_graphs: int | None = None
    pool_bytes: int | None = None
    lost: str | None = None
    """Why CUDA graphs could not be watched, if so."""


@dataclass(frozen=True, slots=True)
class PipelineWorked:
    """A batch of finished stretches of one producer-consumer loop, in the order they ended, and of
    sizes of its pool. The tuples from `stages` to `infer_slots` are parallel, and so are the two
    of the pool."""

    t: float
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


# --- fixed shapes ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FixedShapeUsed:
    """Calls that a `FixedShape` made since its last such record; one batch may be several calls."""

    t: float
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
    """The program said what a call at a size costs, so padding is not what counts."""
    asked: tuple[tuple[int, ...], ...] = ()
    """Sizes of the batch, as it came, that a call is the first of: `sizes`, unless the batch was
    split. () for the later calls of a batch; parallel to `sizes`, as the next one."""
    in_graphs: tuple[int, ...] = ()
    """Calls among `counts` in which a CUDA graph was recorded or replayed."""
    dims: tuple[tuple[str, ...], ...] = ()
    """Dimensions of each axis by the arguments that have it: "obs:0"; parallel to `axes`."""


@dataclass(frozen=True, slots=True)
class FixedShapeWarmed:
    """A `FixedShape` called what it wraps at every size; from here on nothing should compile."""

    t: float
    step: int
    number: int
    function: Location
    graphs: int
    """Combinations of sizes."""
    compiles: int
    """Compiles and recordings that began meanwhile."""
    backward: bool
    began: float
    """When the warm-up began, in seconds; `t` is its end."""


@dataclass(frozen=True, slots=True)
class FixedShapeCompiled:
    """Something was compiled or recorded in a call of a `FixedShape` that had been warmed up."""

    t: float
    step: int
    number: int
    function: Location
    size: tuple[int, ...]
    run: tuple[int, ...]
    begun: tuple[str, ...]
    """torch's trigger and compile id of each: "DYNAMO 0/1"."""


@dataclass(frozen=True, slots=True)
class PaddingChecked:
    """What `FixedShape.check` found out; tuples from `outputs` to `bitwise` are parallel."""

    t: float
    step: int
    number: int
    function: Location
    size: tuple[int, ...]
    run: tuple[int, ...]
    probes: tuple[str, ...]
    """What the padding held in the runs that were compared: "zeros", "real rows", "large"..."""
    seeds: tuple[int, ...]
    rng_consumed: bool
    outputs: tuple[str, ...]
    """Paths; also of arguments, buffers and gradients that were found to change."""
    kinds: tuple[str, ...]
    """"safe", "contaminated", "state", "reduced", "parity", "nan_leak", "rng"."""
    notes: tuple[str, ...]
    max_abs: tuple[float, ...]
    bitwise: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class RowsRun:
    """A loop over rows that are done one after the other has ended."""

    t: float
    step: int
    number: int
    function: Location
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


@dataclass(frozen=True, slots=True)
class KneeMeasured:
    """A `FixedShape` was measured at its sizes, for the knee of its throughput."""

    t: float
    step: int
    number: int
    function: Location
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


# --- what the program itself measured ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrackedMetric:
    """One metric of a tracked run, summed up; see `number_series.SeriesSummary`."""

    name: str
    count: int
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    last: float | None = None
    median_of: int = 0
    not_finite: int = 0


@dataclass(frozen=True, slots=True)
class RunTracked:
    """A run of a `tracker()`, as it is now: told when it ends, and now and then before, for
    programs that are killed. The last record of a `number` counts."""

    t: float
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
    """Names of metrics and counts beyond the most that are kept."""


@dataclass(frozen=True, slots=True)
class TrackedRunsLeftOut:
    """More runs were tracked than are told one by one; told at the end of the process."""

    t: float
    count: int


@dataclass(frozen=True, slots=True)
class AblationWritten:
    """A validated report of an ablation was written to a file."""

    t: float
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


# --- faults ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvidenceLost:
    """A source of evidence stopped telling: a silenced logger, a removed handler, a lost hook."""

    t: float
    step: int
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class FaultOccurred:
    """A fault of ours, caught before it could reach the user."""

    t: float
    where: str
    error: str


Event = (
    ProcessStarted
    | TorchSeen
    | EnvironmentRead
    | ProcessEnded
    | CompileStarted
    | Compiled
    | Recompiled
    | DynamoReset
    | GraphBroke
    | CollectivesPlanned
    | FrameSkipped
    | WarningSeen
    | HazardsChecked
    | UnguardedChanged
    | StepsEnded
    | SpanEnded
    | SpansEnded
    | DisabledCallsEnded
    | DeviceStepsTimed
    | SyncsSampled
    | HooksFound
    | CadenceDeclared
    | CadenceAsked
    | CadenceFired
    | ProfileEnded
    | DeviceMemoryRead
    | CompiledCallsMade
    | CudagraphRecorded
    | CudagraphsRan
    | PipelineWorked
    | FixedShapeUsed
    | FixedShapeWarmed
    | KneeMeasured
    | FixedShapeCompiled
    | PaddingChecked
    | RowsRun
    | RunTracked
    | TrackedRunsLeftOut
    | AblationWritten
    | EvidenceLost
    | FaultOccurred
)

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        ProcessStarted,
        TorchSeen,
        EnvironmentRead,
        ProcessEnded,
        CompileStarted,
        Compiled,
        Recompiled,
        DynamoReset,
        GraphBroke,
        CollectivesPlanned,
        FrameSkipped,
        WarningSeen,
        HazardsChecked,
        UnguardedChanged,
        StepsEnded,
        SpanEnded,
        SpansEnded,
        DisabledCallsEnded,
        DeviceStepsTimed,
        SyncsSampled,
        HooksFound,
        CadenceDeclared,
        CadenceAsked,
        CadenceFired,
        ProfileEnded,
        DeviceMemoryRead,
        CompiledCallsMade,
        CudagraphRecorded,
        CudagraphsRan,
        PipelineWorked,
        FixedShapeUsed,
        FixedShapeWarmed,
        KneeMeasured,
        FixedShapeCompiled,
        PaddingChecked,
        RowsRun,
        RunTracked,
        TrackedRunsLeftOut,
        AblationWritten,
        EvidenceLost,
        FaultOccurred,
    )
}


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text`, cut to `limit` characters with the number of lost ones said."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [{len(text) - limit} more characters]"


def plain(value: Any) -> Any:
    """A dataclass, recursively, as what `json` understands; faster than `dataclasses.asdict`."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return str(value)


_FIELD_NAMES: dict[type[Any], tuple[str, ...]] = {}
"""Field names per class: `dataclasses.fields` for each record would be half its cost."""


def _shallow(value: Any) -> Any:
    """A dataclass as a dict of its fields, which the JSON encoder walks on itself."""
    kind = cast("type[Any]", type(value))
    names = _FIELD_NAMES.get(kind)
    if names is None:
        if not dataclasses.is_dataclass(value):
            return str(value)
        names = _FIELD_NAMES[kind] = tuple(f.name for f in dataclasses.fields(value))
    return {name: getattr(value, name) for name in names}


def _make_encoder() -> Callable[[Any], str]:
    """`JSONEncoder.encode`, made once instead of once per record where the C encoder is as known.

    Non-finite floats have no JSON spelling; `allow_nan=False` would lose the record, so they are
    written as Python spells them and the reader turns them into null.
    """
    usual = json.JSONEncoder(separators=(",", ":"), default=_shallow).encode
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    quoted: Any = json.encoder.encode_basestring_ascii
    try:
        chunks = make(None, _shallow, quoted, None, ":", ",", False, False, True)
        sample = {"k": [1.5, None, "\u2028"]}
        if "".join(chunks(sample, 0)) == usual(sample):
            return lambda value: "".join(chunks(value, 0))
    except (TypeError, ValueError):
        pass
    return usual


_encode_json = _make_encoder()


def encode(event: Event) -> bytes:
    """One JSON object without a newline: `k` is the kind, the rest the event's fields."""
    try:
        text = _encode_json({"k": type(event).__name__, **_shallow(event)})
    except (TypeError, ValueError):  # a key that JSON does not know
        text = _encode_json({"k": type(event).__name__, **plain(event)})
    return text.encode("utf-8", "backslashreplace")
