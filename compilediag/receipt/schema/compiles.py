"""What was compiled, why again, and what is to be done about it."""

from typing import Any, Literal

from msgspec import field

from compilediag.receipt.schema.record import FrameName, Record


class FrameGuards(Record, frozen=True, kw_only=True):
    """The guards of one frame, by the compile of it whose guards take least."""

    frame: FrameName
    evaluated: int | None
    in_python: int | None
    eval_us: float | None
    runs_per_step: float | None
    us_per_step: float | None
    kinds: dict[str, int] = field(default_factory=dict[str, int])


class WarmRuns(Record, frozen=True, kw_only=True):
    """Calls of one callable in which nothing compiled."""

    callable: str
    calls: int
    before_graph_us: float | None


class GuardsSection(Record, frozen=True, kw_only=True):
    """The guards of the lead process against its step."""

    step_s: float | None
    us_per_step: float | None
    share: float | None
    frames: tuple[FrameGuards, ...] = ()
    calls: tuple[WarmRuns, ...] = ()


class CompileGrowth(Record, frozen=True, kw_only=True):
    """Host memory around one compile."""

    compile_id: str
    epoch: int
    process: int
    forward: bool
    grown_bytes: int
    """Resident after it beyond what was before; negative where it shrank."""
    peak_bytes: int | None
    """The most that was resident during it; None where the process had held more before."""


class CompileMemorySection(Record, frozen=True, kw_only=True):
    """Host memory around the compiles of the lead process."""

    compiles: int
    grown_bytes: int
    peak_bytes: int | None
    events: tuple[CompileGrowth, ...] = ()


class VariantCounts(Record, frozen=True, kw_only=True):
    """Those that a variant of a cadence probe is compared by."""

    frames: int
    """Frames that Dynamo attempted."""
    compiles: int
    """Forward compiles that ended with guarded code."""
    recompiles: int
    """Those of them that a failed guard caused."""
    graphs: int
    """Those of `compiles` that hold a graph with operations."""
    graph_breaks: int
    """Lines at which a graph breaks."""
    eager_fallbacks: int
    """Frames of which some call ran without guarded code."""


class Counts(VariantCounts, frozen=True, kw_only=True):
    """All counts of a run, or of some of its processes."""

    recompile_limit_hits: int
    """Frames that ran into the recompile limit."""


class Writer(Record, frozen=True, kw_only=True):
    """A function of the program that writes a guarded variable."""

    function: str
    file: str
    line: int
    evidence: str | None = None


class Place(Record, frozen=True, kw_only=True):
    """The line to change."""

    file: str
    line: int
    function: str


class ChangedAt(Record, frozen=True, kw_only=True):
    """How a guarded value was seen to change."""

    file: str
    line: int
    function: str
    old: str
    new: str
    in_call: bool
    step: int
    stack: tuple[Place, ...] = ()


class PassedArgument(Record, frozen=True, kw_only=True):
    """An expression that a call passes for a parameter of what was compiled."""

    parameter: str
    expression: str


class EnteredAt(Record, frozen=True, kw_only=True):
    """A call in a file of the program's own, below which torch compiled something."""

    file: str
    line: int
    function: str = ""
    text: str = ""
    arguments: tuple[PassedArgument, ...] = ()


class EventCause(Record, frozen=True, kw_only=True):
    """One guard that was false when torch compiled again."""

    family: str
    source: str
    variable: str
    guard: str
    expected: str | None
    actual: str | None
    file: str | None
    line: int | None
    function: str | None
    primary: bool
    writers: tuple[Writer, ...] = ()
    rule: str | None = None
    kind: str | None = None
    confidence: str | None = None
    finding: str | None = None
    """Id of the finding that explains it, "F1"."""
    changed_at: ChangedAt | None = None


class MissedGuard(Record, frozen=True, kw_only=True):
    """One guard of a cache entry that was false."""

    variable: str
    rule: str
    expected: str | None
    actual: str | None
    novel: bool | None


class MissedEntry(Record, frozen=True, kw_only=True):
    """A cache entry that did not fit."""

    compile_id: str
    guards: tuple[MissedGuard, ...]
    left_out: int | None = 0


class CompileEvent(Record, frozen=True, kw_only=True):
    """One compile that ended with guarded code."""

    compile_id: str
    epoch: int
    frame: FrameName
    step: int | None
    kind: Literal["first", "recompile"]
    seconds: float | None
    graph_ops: int | None
    guards: int | None
    causes: tuple[EventCause, ...] = ()
    process: int = 0
    entered_at: EnteredAt | None = None
    entered_from: str | None = None
    entries: tuple[MissedEntry, ...] = ()
    entries_left_out: int = 0


class CompileTime(Record, frozen=True, kw_only=True):
    """Seconds spent compiling: `total` is `first_compile` + `recompile`."""

    total: float | None = None
    first_compile: float | None = None
    recompile: float | None = None
    backend: float | None = None


class FrameSeconds(Record, frozen=True, kw_only=True):
    """Compile seconds of one frame, over all its attempts."""

    frame: FrameName
    attempts: int
    total: float
    by_phase: dict[str, float] = field(default_factory=dict[str, float])


class CompileSeconds(Record, frozen=True, kw_only=True):
    """Where compile seconds went: phases without those within them, which add up to the total."""

    attempts: int
    total: float
    restarted: float
    """Of the total: attempts of Dynamo that were begun again."""
    by_phase: dict[str, float] = field(default_factory=dict[str, float])
    frames: tuple[FrameSeconds, ...] = ()


class GraphBreak(Record, frozen=True, kw_only=True):
    """A graph break by place."""

    file: str
    line: int
    function: str
    gb_id: str | None
    category: str | None
    reason: str
    count: int
    ownership: str | None
    finding: str | None = None
    """Id of the finding that explains it, "F1"."""
    entered_at: EnteredAt | None = None
    entered_from: str | None = None


class Headroom(Record, frozen=True, kw_only=True):
    """Cache entries of a frame against the limit above which torch runs it eagerly."""

    variants: int
    limit: int | None


class FrameDetail(Record, frozen=True, kw_only=True):
    """One frame over all its compiles."""

    frame: FrameName
    compiles: int
    guards: int | None
    guard_eval_us: float | None
    headroom: Headroom
    ran_eager: bool
    eager_reason: str | None = None
    epoch: int = 0
    process: int = 0
    entered_at: EnteredAt | None = None
    entered_from: str | None = None


class CompileSection(Counts, frozen=True, kw_only=True):
    """The counts, and what they count."""

    time_s: CompileTime = CompileTime()
    seconds: CompileSeconds | None = None
    guards: GuardsSection | None = None
    memory: CompileMemorySection | None = None
    recompiles_by_family: dict[str, int] = field(default_factory=dict[str, int])
    events: tuple[CompileEvent, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    frames_detail: tuple[FrameDetail, ...] = ()


class CandidateRecord(Record, frozen=True):
    """A setting that needs no edit."""

    kind: str
    setting: str
    value: str
    risk: str


class ProofFigure(Record, frozen=True):
    """A number without and with a change; of several runs with it the worst."""

    name: str
    before: float | None = None
    after: float | None = None
    unit: str = ""
    """"" for counts, "s", "µs", "bytes" or "%"."""


class ProofPoint(Record, frozen=True):
    """One point of a certificate."""

    name: str
    """"applied", "finding", "others", "compiled", "padding" (of changes that pad), "answers",
    "time", "cost"."""
    passed: bool | None
    """None: stated, not judged."""
    sentence: str
    figures: tuple[ProofFigure, ...] = ()


class ProofRecord(Record, frozen=True, kw_only=True):
    """The change that was proved, and its certificate."""

    kind: str
    change: str
    risk: str
    runs: int
    points: tuple[ProofPoint, ...] = ()
    torch: str | None = None
    sources: str | None = None


class RefusedChange(Record, frozen=True, kw_only=True):
    """A change that was tried and is not proved."""

    change: str
    reason: str


class FixRecord(Record, frozen=True, kw_only=True):
    """What to change, what that costs, and whether a rerun has proved it."""

    summary: str
    how: str
    caveat: str | None = None
    verified: bool = False
    proof: ProofRecord | None = None
    refused: tuple[RefusedChange, ...] = ()
    candidates: tuple[CandidateRecord, ...] = ()


class PartRecord(Record, frozen=True, kw_only=True):
    """Another cause that the act of a finding made."""

    rule: str
    kind: str | None
    variable: str
    expected: str | None
    actual: str | None
    location: Place
    recompiles: int


class ActRecord(Record, frozen=True, kw_only=True):
    """The line of the program that changed all values of a finding."""

    evidence: str
    file: str
    line: int
    function: str
    text: str


class FindingRecord(Record, frozen=True, kw_only=True):
    """One thing to know."""

    id: str
    rule: str
    slug: str
    severity: str
    confidence: str
    family: str
    variable: str | None
    location: Place | None
    ownership: str | None
    count: int
    steps: tuple[int, ...]
    cost_s: float | None
    evidence: dict[str, Any]
    fix: FixRecord
    title: str | None = None
    also: tuple[str, ...] = ()
    parts: tuple[PartRecord, ...] = ()
    act: ActRecord | None = None
    entered_at: EnteredAt | None = None
    entered_from: str | None = None
    changed_at: ChangedAt | None = None
    next: str | None = None


class WitnessSection(Record, frozen=True, kw_only=True):
    """How lines were followed to see who changes what is guarded, and what that cost."""

    line_events: int
    seconds: float
    values: int
    values_left_out: int = 0
    stopped: str | None = None
    stopped_step: int | None = None
