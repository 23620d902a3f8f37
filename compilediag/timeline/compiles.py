"""What torch compiled, as types: attempts with why it asked again, frames, breaks, hazards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from compilediag_harness.wire import EntryDiff, FalseGuard, Location


class FrameKey(NamedTuple):
    """One frame of one process: torch's frame id ("0" of "0/1") within an epoch."""

    process: int
    epoch: int
    frame_id: str


class CompileId(NamedTuple):
    """One compile of one process: torch's ids start again at 0/0 after a reset."""

    process: int
    epoch: int
    compile_id: str


class BreakLine(NamedTuple):
    """A graph break is one line of the program, however often torch reports it."""

    file: str
    line: int


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

    @property
    def id(self) -> CompileId:
        return CompileId(self.process, self.epoch, self.compile_id)


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
    def id(self) -> CompileId:
        return CompileId(self.process, self.epoch, self.compile_id)

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

    @property
    def at(self) -> BreakLine:
        return BreakLine(self.file, self.line)


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


def frame_id_of(compile_id: str) -> str:
    """The frame's part of a compile id: "0" of "0/1", "!1/1" of "!1/1/0", "0" of "0/0_1"."""
    head, _, _ = compile_id.rpartition("/")
    return head or compile_id
