"""Events folded into frames, compiles, steps and spans.

Pure: no files, no clock, no torch. The same events give the same Timeline, whether they come
live from a journal, from `watch()` in a test, or from an old TORCH_TRACE file. A run of several
processes is one Timeline: `process` (an index, 0 for the first) keeps their frames apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from compilediag.cadence_groups import CadenceGroup
from compilediag.cudagraph_runs import CudagraphRun
from compilediag.device_memory import DeviceMemory
from compilediag.fixed_shapes import FixedShapeRun
from compilediag.invocation_calls import Invocations
from compilediag.pipeline_loops import PipelineLoop
from compilediag.tracked_runs import TrackedRun
from compilediag.train_log import TrainLog
from compilediag_harness.lazy_dataclasses import dataclass
from compilediag_harness.wire import (
    AblationWritten,
    EntryDiff,
    EvidenceLost,
    FalseGuard,
    FaultOccurred,
    Location,
    PackedBuffer,
    ProcessEnded,
    ProcessStarted,
    ProfileEnded,
    SpanEnded,
    TorchSeen,
    UnguardedChanged,
    WarningSeen,
)


@dataclass(frozen=True, slots=True)
class FrameKey:
    """One frame of one process: torch's frame id ("0" of "0/1") within an epoch."""

    process: int
    epoch: int
    frame_id: str


@dataclass(frozen=True, slots=True)
class Recompile:
    """torch asked why no cache entry of a frame fits, and compiled it again (or hit the limit)."""

    process: int
    compile_id: str
    epoch: int
    frame: Location
    step: int
    t: float
    reasons: tuple[str, ...]
    entries: tuple[EntryDiff, ...]
    seconds: float
    """Of the compile it caused, its lazily compiled backward included; 0 for the attempt that hits
    the limit."""
    produced: bool
    """It ended with guarded code: only then it counts as a recompile."""
    problem: str | None = None
    analysis_s: float = 0.0
    """Seconds of our own analysis just before `t`; not part of `seconds`."""


@dataclass(frozen=True, slots=True)
class Compile:
    """One attempt to compile one frame (a metrics row of torch; backward rows included)."""

    process: int
    compile_id: str
    epoch: int
    frame: Location
    step: int
    t: float
    """When it ended."""
    kind: str
    """"first", "recompile", "limit" (the attempt that hits the limit), "failed", "backward"."""
    forward: bool
    guarded: bool
    seconds: float
    backend_s: float | None
    graph_ops: int | None
    guards: int | None
    fail_type: str | None
    fail_reason: str | None
    restart_reasons: tuple[str, ...]
    recompile: Recompile | None = None
    cache_hits: int | None = None
    """Answers of torch's compile caches; None where torch did not count them."""
    cache_misses: int | None = None

    @property
    def key(self) -> FrameKey:
        return FrameKey(self.process, self.epoch, frame_id_of(self.compile_id))


@dataclass(frozen=True, slots=True)
class BreakSite:
    """A graph break by place: torch reports one site again at each recompile and restart."""

    file: str
    line: int
    function: str
    text: str
    """torch's whole report, of the first time it was seen."""
    count: int
    """Reports seen, repeats included."""
    compile_ids: tuple[str, ...]
    first_step: int
    processes: tuple[int, ...] = ()
    """Indexes of the processes that reported it, ascending."""


@dataclass(frozen=True, slots=True)
class CollectiveSchedule:
    """The collectives of one compiled graph, in order."""

    process: int
    compile_id: str
    epoch: int
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that Dynamo attempted, over all its compiles."""

    key: FrameKey
    where: Location
    compiles: int
    """Attempts that ended with guarded code."""
    graphs: int
    guards: int | None
    """Guards of the newest compile."""
    guard_eval_us: float | None
    limit: int | None
    """`recompile_limit` in force."""
    limit_hit_step: int | None
    ran_eager: bool
    """Skipped, or over the limit: some call of it ran without guarded code."""
    eager_reason: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step; seconds, None for a phase that was not measured."""

    process: int
    number: int
    end: float
    wall_s: float
    data_wait_s: float | None
    optimizer_s: float | None
    spans_s: float | None
    compile_s: float
    forward_s: float | None = None
    backward_s: float | None = None
    noted: bool = False
    """Only its end is known, and its waits for data and spans; nothing of its calls."""
    measuring_s: float = 0.0
    """Seconds of our own work in it, where that was much."""


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """Device seconds of one step, None for a phase it does not have."""

    process: int
    number: int
    step_s: float
    forward_s: float | None
    backward_s: float | None


@dataclass(frozen=True, slots=True)
class DisabledCalls:
    """The calls of one function behind `torch.compiler.disable` in one phase of the steps."""

    process: int
    function: Location
    phase: str
    count: int
    total_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class SyncSite:
    """Reads of one kind on one of the user's lines, in one sampled step."""

    place: Location
    kind: str
    """"item", "bool", "cpu"...; see `SyncsSampled`."""
    loop: int | None
    """First line of the innermost loop around it in its function, where one is known."""
    spans: tuple[str, ...]
    """Names of the spans that were open, outermost first."""
    count: int
    seconds: float | None = None
    """Inside the calls, waiting included; None: not timed."""


@dataclass(frozen=True, slots=True)
class SyncSample:
    """Where one whole step made the host wait for tensor data; empty where it did not."""

    process: int
    step: int
    on_device: bool
    """The tensors were on a device; False: the reads would wait if they were."""
    complete: bool
    """False when the step held more than were counted."""
    sites: tuple[SyncSite, ...]
    seconds: float | None = None
    """Inside all of the reads; None where not every one was timed."""
    noting_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """What noting them made the step longer by, by phase."""
    packed: tuple[PackedBuffer, ...] = ()
    """Buffers that the step filled and then wrote into."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook of the program's on a compiled module or its parameters, when the process ended."""

    process: int
    kind: str
    """"forward_hook", "backward_hook", "tensor_hook"...; see `HooksFound`."""
    target: str
    function: Location
    disabled: bool


@dataclass(frozen=True, slots=True)
class PartialPhase:
    """A phase of the steps that was measured in part."""

    process: int
    phase: str
    missing: str


@dataclass(frozen=True, slots=True)
class SkippedFrame:
    """A frame Dynamo refused without a metrics row."""

    process: int
    frame: Location
    reason: str
    step: int


@dataclass(frozen=True, slots=True)
class Hazards:
    """The last look at guards that are already false, per frame."""

    process: int
    frame: Location
    step: int
    guards: tuple[FalseGuard, ...]
    checked: int
    unevaluated: int
    skipped: str | None


@dataclass(frozen=True, slots=True)
class TextLog:
    """What the text log of the run (TORCH_LOGS) says, counted independently of the events."""

    recompiling_lines: int
    """"Recompiling function" messages: one more than the real recompiles per frame at the limit."""
    limit_warnings: int
    break_sites: frozenset[tuple[str, int]]
    profile_uses: tuple[str, ...] = ()
    """Messages that tell of a stored dynamic-shape profile in use."""
    log_lines: int = 0
    """Lines that carry the prefix of torch's log."""
    unknown_lines: int = 0
    """Lines about recompiles or breaks that the reader could not understand: never ignored."""
    torn: bool = False
    """The log ends in the middle of a line."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the run, as its journal tells it."""

    index: int
    started: ProcessStarted | None
    torch: TorchSeen | None
    facts: dict[str, object]
    ended: ProcessEnded | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run, folded. Sequences are in time order."""

    processes: tuple[Process, ...] = ()
    frames: tuple[Frame, ...] = ()
    compiles: tuple[Compile, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    """Every time torch asked why, the attempt at the limit included (`produced` is False)."""
    breaks: tuple[BreakSite, ...] = ()
    collectives: tuple[CollectiveSchedule, ...] = ()
    skipped: tuple[SkippedFrame, ...] = ()
    hazards: tuple[Hazards, ...] = ()
    unguarded: tuple[UnguardedChanged, ...] = ()
    warnings: tuple[WarningSeen, ...] = ()
    steps: tuple[Step, ...] = ()
    step_source: str | None = None
    spans: tuple[SpanEnded, ...] = ()
    span_processes: tuple[int, ...] = ()
    """Process index of each span, parallel to `spans`; may be empty when there is one process."""
    cadences: tuple[CadenceGroup, ...] = ()
    pipelines: tuple[PipelineLoop, ...] = ()
    tracked: tuple[TrackedRun, ...] = ()
    tracked_left_out: int = 0
    """Runs that were not told one by one."""
    ablations: tuple[AblationWritten, ...] = ()
    invocations: tuple[Invocations, ...] = ()
    device_memory: tuple[DeviceMemory, ...] = ()
    fixed_shapes: tuple[FixedShapeRun, ...] = ()
    cudagraphs: tuple[CudagraphRun, ...] = ()
    """Of the processes that told of CUDA graphs, also that there was none."""
    profiles: tuple[ProfileEnded, ...] = ()
    partial_phases: tuple[PartialPhase, ...] = ()
    device_steps: tuple[DeviceStep, ...] = ()
    """Fewer than `steps`: those whose events the device had passed."""
    disabled_calls: tuple[DisabledCalls, ...] = ()
    hooks: tuple[Hook, ...] = ()
    syncs: tuple[SyncSample, ...] = ()
    """Of the sampled steps only."""
    lost: tuple[EvidenceLost, ...] = ()
    faults: tuple[FaultOccurred, ...] = ()
    text_log: TextLog | None = None
    train_log: TrainLog | None = None
    """What a trainer printed of its own steps."""
    counted_ranks: tuple[int, ...] = ()
    """Ranks that are in no other field, ascending: there was no room for them."""
    user_roots: tuple[str, ...] = ()
    """Folders whose files are the user's own (the working directory, the script's folder)."""

    def tells(self, hook: str) -> bool:
        """Whether the record of some process can tell this; a live run can tell everything, a trace
        no steps, a text log no metrics."""
        heard = [item.torch.hooks.get(hook, True) for item in self.processes if item.torch]
        return any(heard) or not heard

    @property
    def counted_recompiles(self) -> tuple[Recompile, ...]:
        """The recompiles that count: a failed guard, and guarded code at the end."""
        return tuple(item for item in self.recompiles if item.produced)


def frame_id_of(compile_id: str) -> str:
    """The frame's part of a compile id: "0" of "0/1", "!1/1" of "!1/1/0", "0" of "0/0_1"."""
    head, _, _ = compile_id.rpartition("/")
    return head or compile_id
