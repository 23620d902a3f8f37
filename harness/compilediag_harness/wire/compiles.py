"""Events of compiles: attempts, phases, graph breaks, skipped frames, warnings, CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from compilediag_harness.wire.event import AttemptEvent, Event, Location, StepEvent, UserCall, event

PhaseSeconds = tuple[tuple[str, float], ...]
"""Names as torch gives them, with seconds, the longest first."""


@dataclass(slots=True)
class _OpenPhase:
    """A phase in progress."""

    name: str
    begun_ns: int
    inner_ns: int = 0
    """Of what was in it: other phases, and our own analysis."""
    reported: bool = False
    """The row of its compile was written before it ended: what is left belongs to no compile."""


@dataclass
class PhaseStack:
    """The phases of what one thread compiles."""

    open: list[_OpenPhase] = field(default_factory=list[_OpenPhase])
    own_ns: dict[str, int] = field(default_factory=dict[str, int])

    def begin_phase(self, name: str, at_ns: int) -> None:
        """Begin a phase, within those that are open. With none open something new begins: what
        was timed before and has no row (an export, a kernel tuned at run time) is no part of it."""
        if not self.open:
            self.own_ns = {}
        self.open.append(_OpenPhase(name, at_ns))

    def end_phase(self, name: str, at_ns: int) -> None:
        """End the innermost phase of this name, and with it what began within it: torch's own
        logger does the same."""
        if name not in [phase.name for phase in self.open]:
            return
        phase = self.open.pop()
        while phase.name != name:
            phase = self.open.pop()
        took = max(0, at_ns - phase.begun_ns)
        if not phase.reported:
            own = max(0, took - phase.inner_ns)
            self.own_ns[name] = self.own_ns.get(name, 0) + own
        if self.open:
            self.open[-1].inner_ns += took

    def leave_out(self, seconds: float) -> None:
        """Leave out seconds of our own within the phases that are open: they are no phase's."""
        if self.open:
            self.open[-1].inner_ns += round(seconds * 1e9)

    def take(self) -> PhaseSeconds:
        """Take the phases of the compile whose row torch writes now."""
        # torch writes the row when all of a compile's phases have ended but those around it.
        own = sorted(self.own_ns.items(), key=lambda timed: -timed[1])
        self.own_ns = {}
        for phase in self.open:
            phase.reported = True
        return tuple((name, round(ns / 1e9, 6)) for name, ns in own)


@event
class GuardsEvaluated(AttemptEvent):
    """The guards of one compile, just built, with what evaluating them takes in a process that does
    nothing else in between. A compile may have several: each piece of its guards that torch builds.
    """

    eval_us: float | None
    """Median microseconds of a few evaluations after torch's own; None where they could not be
    evaluated. torch's figure in `Compiled` is of one evaluation, with empty caches of the processor
    but in 2.7."""
    kinds: tuple[str, ...]
    """What is evaluated, by torch's names, the most frequent first; parallel to `counts`."""
    counts: tuple[int, ...]
    lines: tuple[Location, ...]
    """The lines of the traced code that most guards are for; parallel to `line_counts`."""
    line_counts: tuple[int, ...]
    evaluated: int | None = None
    """How many are evaluated, which is less than torch counts; None where that could not be read.
    """
    in_python: int | None = None
    """Of them those that call a Python function each time."""
    python_texts: tuple[str, ...] = ()
    """The first of those."""


@event
class WarmCallsTimed(Event):
    """Some outermost calls of compiled callables in which nothing compiled: how often each frame's
    graph ran in them. The newest such record of a process holds those before it."""

    functions: tuple[Location, ...]
    calls: tuple[int, ...]
    """Calls looked at; parallel to `functions`."""
    callers: tuple[int, ...]
    """With `frames` and `runs`: in the calls of which of `functions` the graph of which frame ran,
    and how often in all of them."""
    frames: tuple[Location, ...]
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RepeatedBlocks:
    """Equal parts of a module: siblings of one class with the same parts and shapes."""

    where: str
    """What holds them: a local variable of the frame and a path, "self.layers"."""
    class_name: str
    count: int
    modules: int
    """In all of them."""


_CACHES = ("inductor_fx_local", "inductor_fx_remote", "aotautograd_local", "aotautograd_remote")


def count_cache_outcomes(read_count: Callable[[str], int | None], outcome: str) -> int | None:
    """Count hits or misses (`outcome`: "hit", "miss") of all caches, of the counters of torch's row
    that `read_count` reads by name; None where this torch does not count them."""
    counts = (read_count(f"{cache}_cache_{outcome}_count") for cache in _CACHES)
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


@event
class CompileStarted(StepEvent):
    """Dynamo, a lazy backward or a CUDA-graph recording began to compile."""

    trigger: str
    compile_id: str
    epoch: int
    frame: Location | None = None
    """None where torch does not have it at that moment, as for a lazy backward."""
    entered_at: UserCall | None = None
    """The innermost call in a file of the program's own above what is compiled."""
    entered_from: str = ""
    """Where there is none: the thread, and the outermost call in it."""


@event
class Compiled(AttemptEvent):
    """One compilation metrics row of torch: an attempt to compile one frame ended."""

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
    """Hits of inductor's and AOTAutograd's caches, local and remote; None where not counted."""
    cache_misses: int | None = None
    exported: bool = False
    """Torch traced for `torch.export`: nothing runs that code in this process."""
    entered_at: UserCall | None = None
    entered_from: str = ""
    """Both as in `CompileStarted`, which torch does not announce at the limit, nor while another
    thread compiles."""
    phases: PhaseSeconds | None = None
    """Seconds of each phase without those within it; None where torch's timing was not seen.
    Together they are `seconds`, but for what torch does not time."""
    restarted_s: float | None = None
    """Of `seconds`: Dynamo's attempts that it began again. None where torch did not tell."""
    blocks: RepeatedBlocks | None = None
    """The largest group of equal blocks in a module that the frame has as a variable; None where
    there is none, or it was not looked for: in a short compile, and in a trace."""
    test: str = ""
    """The test that ran, as pytest names it; empty outside of tests."""
    interrupted: bool = False
    """It ended in what is no `Exception`, such as Ctrl-C, which torch names no reason for."""


@event
class EntryServed(AttemptEvent):
    """The graph of one cache entry ran, of a frame that was compiled more than once: an entry is
    told of once after each compile of its frame, its run that ends its own compile included."""

    again: bool
    """Its guards held; False: it had just been compiled."""


@event
class DynamoReset(StepEvent):
    """`torch._dynamo.reset()` was called: ids restart, the epoch advances to `epoch`."""

    epoch: int


@event
class GraphBroke(AttemptEvent):
    """torch reported a graph break; `text` is torch's whole report of it."""

    text: str
    repeated: bool = False
    """torch suppressed the stack because it had printed this break before."""
    branch: UserCall | None = None
    """The condition that a number decides which the line reads out of a tensor; `text` of it."""


@event
class CollectivesPlanned(AttemptEvent):
    """The collectives that inductor put into one compiled graph, in the order in which every rank
    must run them; only a trace has them."""

    operations: tuple[str, ...]


@event
class FrameSkipped(StepEvent):
    """Dynamo decided not to compile a frame it was offered, without a metrics row."""

    frame: Location
    reason: str
    entered_at: UserCall | None = None
    entered_from: str = ""


@event
class WarningSeen(StepEvent):
    """A warning of torch's compile loggers (recompile limit, suppressed errors, CUDA graphs...)."""

    compile_id: str
    logger: str
    text: str


@event
class CudagraphRecorded(StepEvent):
    """torch recorded a CUDA graph; after the first so many of a process they are only counted."""

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
    entered_at: UserCall | None = None
    entered_from: str = ""


@event
class CudagraphsRan(Event):
    """Use of CUDA graphs since the last such record; the first tuples are parallel."""

    compile_ids: tuple[str, ...]
    recordings: tuple[int, ...]
    replays: tuple[int, ...]
    warmups: tuple[int, ...]
    """Runs without a graph, before the recording."""
    skips: int | None = None
    """torch's own count of graphs it left out, since the process attached; recorded at the end,
    and not where the count was cleared meanwhile."""
    live_graphs: int | None = None
    pool_bytes: int | None = None
    lost: str | None = None
    """Why CUDA graphs could not be watched, if so."""
