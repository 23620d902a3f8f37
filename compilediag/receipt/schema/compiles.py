"""Compiles, recompiles, graph breaks and findings of a receipt, with the changes that fix them."""

import re
from typing import Any, Literal, TypeAlias

import msgspec

from compilediag.receipt.schema.record import EMPTY, FrameName, Record


class FrameGuards(Record, frozen=True, kw_only=True):
    """The guards of one frame, by the compile of it whose guards take least."""

    frame: FrameName  #: The frame.
    #: Guards that torch evaluates before a call, fewer than those it counts; null where they could
    #: not be read.
    evaluated: int | None
    in_python: int | None  #: Of them those that call a Python function each time.
    #: Median microseconds of one evaluation that follows others, measured when the guards were
    #: built; null where it could not be.
    eval_us: float | None
    #: How often its graph runs in a step, by the warm calls that were looked at; null where none
    #: was.
    runs_per_step: float | None
    us_per_step: float | None  #: Both multiplied; null where one is.
    kinds: dict[str, int] = EMPTY  #: What is evaluated by torch's names of it, the most frequent.


class WarmRuns(Record, frozen=True, kw_only=True):
    """Calls of one callable in which nothing compiled."""

    callable: str  #: Its name and place.
    calls: int  #: Calls that were looked at.


class GuardsSection(Record, frozen=True, kw_only=True):
    """The guards of the lead process against its step."""

    step_s: float | None  #: Median seconds of its steps without a compile; null without one.
    #: Microseconds that its frames' guards take in a step at least; null where that is not known of
    #: any frame.
    us_per_step: float | None
    share: float | None  #: Their share of the step, from 0 to 1.
    #: The guards of each frame, of the compile of it whose guards take least; those that cost most
    #: first.
    frames: tuple[FrameGuards, ...] = ()
    #: Calls in which nothing compiled, by compiled callable: the first so many.
    calls: tuple[WarmRuns, ...] = ()


class VariantCounts(Record, frozen=True, kw_only=True):
    """Those that a variant of a cadence probe is compared by."""

    #: Distinct frames (process, epoch, frame id) that Dynamo attempted, skipped ones included;
    #: backward records are none.
    frames: int
    compiles: int  #: Forward compiles that ended with guarded code.
    #: Those of them that a failed guard caused. The attempt that hits the limit is none.
    recompiles: int
    #: Graphs captured: forward compiles that ended with guarded code and at least one operation.
    graphs: int
    #: Distinct file:line that torch names as a break, skips included; repeats and restarts are not
    #: counted again.
    graph_breaks: int
    eager_fallbacks: int  #: Frames that ran eager: skipped, or over the limit.


class Counts(VariantCounts, frozen=True, kw_only=True):
    """All counts of a run, or of some of its processes."""

    recompile_limit_hits: int  #: Frames that hit the recompile limit.


class Writer(Record, frozen=True, kw_only=True):
    """A function of the program that writes a guarded variable."""

    function: str  #: Name of the function.
    file: str  #: Its file.
    line: int  #: Its line.
    #: `witnessed` (it was seen to change the value) or `source` (its source says that it can); null
    #: in older receipts.
    evidence: str | None = None


class Place(Record, frozen=True, kw_only=True):
    """The line to change."""

    file: str  #: Its file.
    line: int  #: That line; of a function the first.
    function: str  #: The function it is in.


class ChangedAt(Record, frozen=True, kw_only=True):
    """A change of a guarded value as it was seen."""

    #: File of the line after which it differed; for a change inside a compiled call whose line is
    #: not known, of the call.
    file: str
    line: int  #: That line.
    function: str  #: Its function.
    old: str  #: The value before, in at most 120 characters.
    new: str  #: The value after.
    in_call: bool  #: It changed inside a compiled call, where no line is followed.
    step: int  #: The step in which it changed.
    #: The user's lines in progress: that line first, then its callers.
    stack: tuple[Place, ...] = ()


class PassedArgument(Record, frozen=True, kw_only=True):
    """An expression that a call passes for a parameter of what was compiled."""

    parameter: str  #: The parameter as its guards name it.
    expression: str  #: The expression in its source text.


class UserCallRecord(Record, frozen=True, kw_only=True):
    """A call in a file of the program's own, below which torch compiled something."""

    file: str  #: Its file.
    line: int  #: Its line.
    function: str = ""  #: The function it is in.
    #: Its source text on one line; of the whole line where the call is not known; empty where there
    #: is no source.
    text: str = ""
    #: What it passes for parameters of what was compiled; only where that is certain, and no text
    #: for a parameter with a name like a secret's.
    arguments: tuple[PassedArgument, ...] = ()


class EventCause(Record, frozen=True, kw_only=True):
    """One guard that was false when torch compiled again."""

    family: str  #: Slug of the rule, with underscores.
    source: str  #: The guarded value as torch writes it.
    variable: str  #: The guarded value as the user would write it.
    guard: str  #: The guard as torch prints it.
    expected: str | None  #: What the guard wanted.
    actual: str | None  #: What it met.
    file: str | None  #: File of the user's line that made the guard.
    line: int | None  #: That line.
    function: str | None  #: The function it is in.
    primary: bool  #: The cause to look at first.
    writers: tuple[Writer, ...] = ()  #: Functions of the program that write the variable.
    rule: str | None = None  #: Code of the family, such as CD103.
    kind: str | None = None  #: Refinement within the family.
    #: exact (guards evaluated in the process) or text (from torch's printed reason).
    confidence: str | None = None
    #: Id of the finding that explains it, such as F1; null where none does.
    finding: str | None = None
    #: How the value was seen to change (`run --trace-writes`); null where that was not seen.
    changed_at: ChangedAt | None = None


class MissedGuard(Record, frozen=True, kw_only=True):
    """One guard of a cache entry that was false."""

    variable: str  #: The guarded value as the user would write it.
    rule: str  #: Code of the family, such as CD103.
    expected: str | None  #: What the guard wanted.
    actual: str | None  #: What it met.
    #: true: no cache entry of the frame accepts the value; false: one does, so that it was compiled
    #: for before; null where that is not known.
    novel: bool | None


class MissedEntry(Record, frozen=True, kw_only=True):
    """A cache entry that did not fit."""

    compile_id: str  #: torch's id of the compile that made the entry.
    guards: tuple[MissedGuard, ...]  #: Its false guards, without those that follow from others.
    #: False guards beyond those listed: consequences, and those above a bound; null where only a
    #: text names them, which has the first of each entry.
    left_out: int | None = 0


Need: TypeAlias = Literal["wanted", "avoidable", "undecided"]


class CompileEvent(Record, frozen=True, kw_only=True):
    """One compile that ended with guarded code."""

    compile_id: str  #: torch's id, such as 0/1.
    epoch: int  #: How often torch._dynamo.reset() had been called: ids begin again after it.
    frame: FrameName  #: The compiled frame.
    step: int | None  #: Step in progress; the first is 0.
    kind: Literal["first", "recompile"]  #: first or recompile.
    seconds: float | None  #: Wall seconds.
    graph_ops: int | None  #: Operations in the graph.
    guards: int | None  #: Guards of the cache entry.
    #: Every guard of the nearest cache entry that was false, the primary one first.
    causes: tuple[EventCause, ...] = ()
    process: int = 0  #: Index of the process; 0 for the first.
    #: The innermost call in a file of the program's own above it; null where the record does not
    #: have it, or where the thread has no such call.
    entered_at: UserCallRecord | None = None
    #: Where the thread has no such call: the thread, and the outermost call in it.
    entered_from: str | None = None
    #: The cache entries that did not fit, nearest first, as far as they were evaluated in the
    #: process.
    entries: tuple[MissedEntry, ...] = ()
    entries_left_out: int = 0  #: Cache entries that did not fit beyond those listed.
    #: torch's reasons for tracing the frame again from its first line; empty where it did not.
    restart_reasons: tuple[str, ...] = ()
    #: Part of `seconds`: the attempts before the last; null where torch did not tell.
    restarted_s: float | None = None
    #: Sources of what torch took for a symbolic float at first, where that is the reason: Python
    #: floats, and tensors without dimensions, of float64 on the host.
    restarted_for: tuple[str, ...] = ()
    #: Of a recompile: `wanted`, `avoidable` or `undecided`, as compile.wanted counts them; null in
    #: older receipts.
    need: Need | None = None
    test: str | None = None  #: The test that ran, as pytest names it; null outside of tests.


class ValueInGraph(Record, frozen=True, kw_only=True):
    """A guarded value at the time when a graph was compiled."""

    compile_id: str  #: torch's id of the compile, or of the attempt at the limit.
    value: str  #: The value as the guards show it.


_INDEX = re.compile(r"\[(?:key )?\d+\]|\.\d+(?=\.|$)")


def mask_indices(variable: str) -> str:
    """Make equal what differs by indices alone: `layers[*].scale` of the scale of each layer."""
    return _INDEX.sub("[*]", variable)


class VariedValue(Record, frozen=True, kw_only=True):
    """A guarded value of a frame that was false at some compile."""

    frame: FrameName  #: The frame.
    process: int  #: Index of the process.
    epoch: int  #: How often torch._dynamo.reset() had been called.
    #: The value under its own name; `[*]` stands for each index of those that varied alike.
    variable: str
    alike: int = 1  #: How many values that name stands for.
    rule: str  #: Code of the family, such as CD103.
    kind: str | None = None  #: Refinement within the family.
    count: int  #: Compiles, and attempts at the limit, at which it was false.
    values: tuple[ValueInGraph, ...]  #: By graph, as far as it is known of each; the first 64.
    #: Ids of the compiles that made the cache entries that it kept from serving; the first 64.
    entries: tuple[str, ...]
    #: How it was seen to change first (`run --trace-writes`); null where that was not seen.
    changed_at: ChangedAt | None = None
    writers: tuple[Writer, ...] = ()  #: Functions of the program that write it.


class CompileTime(Record, frozen=True, kw_only=True):
    """Seconds spent compiling: `total` is `first_compile` + `recompile`."""

    total: float | None = None  #: first_compile + recompile.
    first_compile: float | None = None  #: Compiles that no failed guard caused.
    #: Compiles that a failed guard caused, the attempt at the limit and their backward included.
    recompile: float | None = None
    #: Part of the total that was spent in the backend; null when torch did not tell.
    backend: float | None = None


class FrameSeconds(Record, frozen=True, kw_only=True):
    """Compile seconds of one frame, over all its attempts."""

    frame: FrameName  #: The frame.
    attempts: int  #: Attempts to compile it, backward compiles among them.
    total: float  #: Their seconds.
    by_phase: dict[str, float] = EMPTY  #: Their seconds by phase.


class CompileSeconds(Record, frozen=True, kw_only=True):
    """Seconds of compiling by phase, without the phases within each: they add up to the total."""

    attempts: int  #: Attempts to compile, failed ones and backward compiles too.
    total: float  #: Seconds of all attempts, failed ones and backward compiles too.
    restarted: float  #: Part of the total: attempts that Dynamo began again.
    #: Seconds by phase, without the phases within it, so that they add up to the total: dynamo,
    #: guards, backend, aot_autograd, graph_passes, lowering, code_generation, kernel_builds,
    #: autotuning, caches, garbage_collection; other is what torch does not time or has no known
    #: name.
    by_phase: dict[str, float] = EMPTY
    frames: tuple[FrameSeconds, ...] = ()  #: The same by frame, the most expensive 200.


class GraphBreak(Record, frozen=True, kw_only=True):
    """A graph break by place."""

    file: str  #: File of the line torch names.
    line: int  #: That line.
    function: str  #: The function it is in.
    gb_id: str | None  #: torch's id of the kind of break; null in reports of torch 2.7.
    category: str | None  #: Category of the break.
    reason: str  #: torch's reason.
    count: int  #: Reports of it, repeats at recompiles and restarts included.
    ownership: str | None  #: Whose code the line is: user, third_party or torch.
    #: Id of the finding that explains it, such as F1; null where none does.
    finding: str | None = None
    #: The innermost call in a file of the program's own above it; null where the record does not
    #: have it, or where the thread has no such call.
    entered_at: UserCallRecord | None = None
    #: Where the thread has no such call: the thread, and the outermost call in it.
    entered_from: str | None = None


class Headroom(Record, frozen=True, kw_only=True):
    """Cache entries of a frame against the limit above which torch runs it eagerly."""

    variants: int  #: Cache entries made.
    limit: int | None  #: recompile_limit in force.


class RefusedSize(Record, frozen=True, kw_only=True):
    """A condition that refuses a size just outside of those that are accepted."""

    condition: str  #: The condition, which is false of it.
    place: Place | None  #: The line whose tracing needed it; null where torch needed it later.
    #: The operation of torch that needed it, such as conv; null where the line itself did.
    needed_by: str | None


class AcceptedSizes(Record, frozen=True, kw_only=True):
    """Sizes of dimensions, varied together, that the cache entries of a frame accept by their
    guards, in a call that is otherwise like the one it was compiled for last. Others make torch
    compile again, or run eager over the limit."""

    frame: FrameName  #: The frame.
    compile_id: str  #: torch's id of its last compile.
    dimensions: tuple[str, ...]  #: Those that varied, or whose size is not fixed: x.shape[0].
    size: int  #: Theirs in that call.
    spans: tuple[tuple[int, int], ...]  #: First and last size that is accepted: [2, 15].
    largest: int  #: Of larger sizes nothing is known; a span that ends here may go on.
    #: Why the span in which `size` is ends above, or where it goes on there, below.
    refused: RefusedSize | None = None
    #: Sizes inside of that span from which it takes another entry, and why the one before ends.
    splits: tuple[tuple[int, RefusedSize | None], ...] = ()


class FrameDetail(Record, frozen=True, kw_only=True):
    """One frame over all its compiles."""

    frame: FrameName  #: The frame.
    compiles: int  #: Attempts that ended with guarded code.
    guards: int | None  #: Guards of the newest cache entry.
    guard_eval_us: float | None  #: Microseconds to evaluate its guards once.
    headroom: Headroom  #: Cache entries against the limit.
    ran_eager: bool  #: Some call of it ran without guarded code.
    eager_reason: str | None = None  #: Why, in torch's words.
    epoch: int = 0  #: How often torch._dynamo.reset() had been called.
    process: int = 0  #: Index of the process.
    #: The innermost call in a file of the program's own above it; null where the record does not
    #: have it, or where the thread has no such call.
    entered_at: UserCallRecord | None = None
    #: Where the thread has no such call: the thread, and the outermost call in it.
    entered_from: str | None = None


class CompileSection(Counts, frozen=True, kw_only=True):
    """The counts, and what they count."""

    #: Wall seconds inside compiles, backward and failed attempts included.
    time_s: CompileTime = CompileTime()
    #: Where compile seconds went, by torch's own timing of the parts of each compile; null where it
    #: was not seen of all of them.
    seconds: CompileSeconds | None = None
    #: What guards cost in the process whose steps are shown; null where none were looked at.
    guards: GuardsSection | None = None
    #: Recompiles by the family of their primary cause.
    recompiles_by_family: dict[str, int] = EMPTY
    #: Recompiles that make a variant of a few: compiled once, seen to serve a later call, and
    #: nothing of its cause compiled in the second half of the run, by calls or steps. What an
    #: object, a closure or a module holds must come back, too; a mode, a bool argument and one that
    #: may be None has no third value, and need not. A size of 0 or 1, or one that a condition sets
    #: apart, may come late if its graph serves a later call. With `avoidable` and `undecided` they
    #: add up to `recompiles`; null in older receipts.
    wanted: int | None = None
    #: Recompiles for what came once, was compiled before a reset, was filled or grew by itself, or
    #: went on in both halves of the run.
    avoidable: int | None = None
    #: The other recompiles: too late in the run, it was not seen what served the calls, or wanted
    #: but for a graph break that made their frame, or a limit that it met for more than sizes.
    undecided: int | None = None
    #: Every guarded value that was false at a compile, beside the causes too: those that were false
    #: most often first.
    varied: tuple[VariedValue, ...] = ()
    varied_left_out: int = 0  #: Such values beyond the 200 that are listed.
    #: Every compile that ended with guarded code, in time order.
    events: tuple[CompileEvent, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()  #: Graph breaks by place.
    frames_detail: tuple[FrameDetail, ...] = ()  #: Every frame that was attempted.
    #: Sizes that the cache entries of a frame accept, of 40 frames.
    accepted_sizes: tuple[AcceptedSizes, ...] = ()


SETTING = "dynamic_source"
"""The recipe that is the first of the settings that need no edit."""


class CandidateRecord(Record, frozen=True):
    """A setting that needs no edit."""

    kind: str  #: How it is applied: "environment", a variable of the program's environment.
    setting: str  #: Name of the variable.
    value: str  #: Its value; where the variable is set already, the two are joined by a comma.
    risk: str  #: What else it changes.


class ProofFigure(Record, frozen=True):
    """A number without and with a change; of several runs with it the worst."""

    name: str  #: What is counted or measured.
    before: float | None = None  #: Without the change.
    after: float | None = None  #: With it; of several runs the worst.
    unit: str = ""  #: s, µs, bytes or %; empty for counts.


class ProofPoint(Record, frozen=True):
    """One point of a certificate."""

    #: applied, finding, others, compiled, padding (of changes that pad), answers, time or cost.
    name: str
    passed: bool | None  #: Whether it holds; null where it is reported and not judged.
    sentence: str  #: What was seen.
    figures: tuple[ProofFigure, ...] = ()  #: The numbers behind it.


class ProofRecord(Record, frozen=True, kw_only=True):
    """The change that was proved, and its certificate."""

    #: How the change is applied: "environment", "configuration", "call" or "source"; "certified"
    #: where `compilediag certify` proved one that somebody made.
    kind: str
    change: str  #: The line to type or to write.
    risk: str  #: What else it changes.
    runs: int  #: Runs with the change.
    points: tuple[ProofPoint, ...] = ()  #: The points of the certificate, in their order.
    #: The torch that the runs of the proof had; null where it is not known.
    torch: str | None = None
    #: Digest of the digests in `provenance.source_sha256`, as the runs of the proof found these
    #: files; null where it is not known.
    sources: str | None = None


class RefusedChange(Record, frozen=True, kw_only=True):
    """A change that was tried and is not proved."""

    change: str  #: The line that was tried.
    reason: str  #: Which point of the certificate failed, and what was seen.


class FixRecord(Record, frozen=True, kw_only=True):
    """The change to make, its price, and whether a rerun has proved it."""

    #: One line: a recipe in the imperative, or what torch guards on and which choices there are.
    summary: str
    #: The recipe that it is, where its conditions were established from what the run and the source
    #: say: followed literally it removes the cause. Null for choices in general words. Since 1.2.
    recipe: str | None = None
    how: str  #: Page that explains it.
    caveat: str | None = None  #: What the fix costs.
    #: `compilediag fix` has proved a change for it; false where none was tried.
    verified: bool = False
    #: The change that `compilediag fix` proved, and its certificate; null where none is proved.
    proof: ProofRecord | None = None
    #: Changes that `compilediag fix` tried for it and did not prove, at most twenty.
    refused: tuple[RefusedChange, ...] = ()
    #: Settings of torch that need no edit of the program and were seen to work for such a cause in
    #: this version, the best first.
    candidates: tuple[CandidateRecord, ...] = ()

    @property
    def label(self) -> str:
        """The word before the sentence: only a recipe is a fix."""
        return "fix" if self.recipe is not None else "advice"


class PartRecord(Record, frozen=True, kw_only=True):
    """Another cause that the common cause of a finding set off."""

    rule: str  #: Code of the rule.
    kind: str | None  #: Refinement within the family.
    variable: str  #: The variable.
    expected: str | None  #: What its guard expected first.
    actual: str | None  #: What it found.
    location: Place  #: The line of the guard.
    recompiles: int  #: In how many recompiles it had a part.


class QuotedLine(Place, frozen=True, kw_only=True):
    """A line with its source."""

    text: str  #: Its source text, of the call where that is known; empty where it is not.


class CommonCauseRecord(QuotedLine, frozen=True):
    """The line of the program that changed all values of a finding."""

    #: witnessed: it was seen; probable: it calls, by name, the functions that write the values.
    evidence: str


class ExcerptRecord(Place, frozen=True, kw_only=True):
    """A line of the program with those around it, as they were when it ran."""

    first: int  #: The line that `lines` begins with.
    lines: tuple[str, ...]  #: Their text, redacted.


class FindingRecord(Record, frozen=True, kw_only=True):
    """One thing to know."""

    id: str  #: F1, F2, ...: the N of `compilediag explain N`.
    #: Its name over runs, such as CD103-rotary: rule and last name of the variable, with four more
    #: digits where two share them. Null in receipts that were made without.
    key: str | None = None
    rule: str  #: Code of the rule.
    slug: str  #: Its name.
    severity: str  #: error, warning or info.
    confidence: str  #: exact, text or static.
    family: str  #: Slug with underscores.
    variable: str | None  #: The variable to look at.
    location: Place | None  #: The line to change.
    ownership: str | None  #: Whose code that is: user, third_party or torch.
    count: int  #: How often it happened.
    steps: tuple[int, ...]  #: In which steps.
    cost_s: float | None  #: Seconds it cost; null when not measured.
    evidence: dict[str, Any]  #: What it was concluded from.
    fix: FixRecord  #: What to change.
    title: str | None = None  #: What happened, in one short line.
    #: Codes of symptoms of the same thing, which have no findings of their own.
    also: tuple[str, ...] = ()
    #: What else the common cause changed; the recompiles of all parts are counted once.
    parts: tuple[PartRecord, ...] = ()
    #: The line of the program that changed several values; null where there is one value, or the
    #: line is not known.
    common_cause: CommonCauseRecord | None = msgspec.field(default=None, name="act")
    #: The innermost call in a file of the program's own above it; null where the record does not
    #: have it, or where the thread has no such call.
    entered_at: UserCallRecord | None = None
    #: Where the thread has no such call: the thread, and the outermost call in it.
    entered_from: str | None = None
    #: How the value was seen to change (`run --trace-writes`); null where that was not seen.
    changed_at: ChangedAt | None = None
    #: Source lines: around the line to look at, then around the one that changes its value, if
    #: another. Empty where the source was gone, or had changed since the program started.
    excerpts: tuple[ExcerptRecord, ...] = ()
    #: Id of the finding of a graph break without which this one would not be: it is about what
    #: frames are called with that exist only because of the break. Null where that is not known.
    follows: str | None = None
    #: The command that leads on from here: `compilediag fix N` tries changes for it, `compilediag
    #: explain N` tells all of it, where no program is known that could be run again.
    next: str | None = None


class WriteTracingSection(Record, frozen=True, kw_only=True):
    """The following of lines to see who changes what is guarded, and its cost."""

    line_events: int  #: Lines that were followed, of all processes.
    #: Seconds spent in looking at values, of all processes; what the interpreter spends in between
    #: is not in it.
    seconds: float
    values: int  #: Values that were watched.
    values_left_out: int = 0  #: Values beyond the limit, which were not.
    #: Why lines were not followed to the end, or not at all; null where they were.
    stopped: str | None = None
    stopped_step: int | None = None  #: The step in which that was.
