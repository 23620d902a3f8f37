"""A program compared with itself: with its eager run, with its second start, and its ranks."""

from typing import Literal

import msgspec

from compilediag.receipt.schema.compiles import Place
from compilediag.receipt.schema.record import EMPTY, Record


class NumberDifference(Record, frozen=True, kw_only=True):
    """The first call of a compiled callable that gives other numbers than eager on the same
    input."""

    function: Place  #: What is compiled.
    call: int  #: Which call of it, 0 for the first.
    step: int  #: The step in progress.
    dtype: str  #: Its types, as eager has them.
    text: str  #: The difference: eager → compiled, or the size of it.
    #: Greatest difference between two numbers that were looked at; null where they are not numbers.
    largest: float | None = None
    calls: int = 0  #: Compared calls of it that differ.


class NumbersSection(Record, frozen=True, kw_only=True):
    """The result of the comparison."""

    #: False: some differ by more than eager's own rounding explains; null where that is not known.
    same: bool | None
    problem: str | None = None  #: Why it is not known; null otherwise.
    calls: int = 0  #: Compiled calls that were made again, eager and compiled.
    #: Values of them that were compared: what they return, tensors that they write to, buffers of
    #: their module.
    values: int = 0
    unstable: int = 0  #: Values that differ between two eager calls on the same input: left out.
    #: Differences of which rounding may be the reason, or that cannot be judged: left out.
    undetermined: int = 0
    #: The first call of each callable that differs, in the order in which they came; at most 20.
    differences: tuple[NumberDifference, ...] = ()
    notes: tuple[str, ...] = ()  #: What limits the comparison.


AgainstEagerVerdict = Literal[
    "pays", "does_not_pay", "same", "not_resolved", "outputs_differ", "not_concluded"
]
"""`same`: within the tolerance. `not_concluded`: nothing to compare."""


class EagerRatio(Record, frozen=True, kw_only=True):
    """Eager time over compiled time, with its interval: 2.0 is twice as fast compiled."""

    middle: float  #: Median over stretches of steps of all pairs.
    #: Lower bound of the 98 % interval: of the median of all stretches, or of the pairs, whichever
    #: is lower.
    low: float
    high: float  #: Upper bound of the same.


class BreakEvenSteps(Record, frozen=True, kw_only=True):
    """Steps that earn the compile seconds back, with their interval; no high end: perhaps never."""

    step: int  #: Compile seconds over seconds gained a step.
    low: int  #: The same for the most that may be gained a step.
    high: int | None  #: The same for the least; null where that is nothing.


class CallableAgainstEager(Record, frozen=True, kw_only=True):
    """One compiled callable in both arms: seconds of a call that begins in eager code, without its
    backward, usual in steady steps."""

    function: Place  #: What is compiled.
    calls: float  #: Calls from eager code in a steady step that has any, on average.
    compiled_s: float  #: Seconds of a usual call, compiled, without its backward.
    eager_s: float  #: The same, eager.
    ratio: EagerRatio  #: Eager seconds over compiled ones.


class ArmRecord(Record, frozen=True, kw_only=True):
    """One run of an arm."""

    arm: Literal["compiled", "eager"]  #: compiled or eager.
    pair: int  #: Which pair it belongs to, from 0.
    wall_s: float | None  #: Seconds it took; null where it left no receipt.
    steps: int  #: Steps that ended in it.
    problem: str | None = None  #: Why it did not end well; null where it did.


class AgainstEagerSection(Record, frozen=True, kw_only=True):
    """The result of the pairs of runs."""

    #: pays, does_not_pay (eager is faster in steady state), same (within 1 %), not_resolved (the
    #: interval is wider than the effect), outputs_differ, not_concluded.
    verdict: AgainstEagerVerdict
    problem: str | None = None  #: Why nothing is concluded; null otherwise.
    #: Seconds of a steady step eager over those compiled: 2.0 is twice as fast compiled; null where
    #: nothing was compared.
    ratio: EagerRatio | None = None
    compiled_step_s: float | None = None  #: Seconds of a usual steady step, compiled.
    eager_step_s: float | None = None  #: Seconds of a usual steady step, eager.
    #: Compile seconds of a usual compiled run; null where they were not measured.
    compile_s: float | None = None
    #: Steps after which the compile seconds are earned back; null where it does not pay, or that is
    #: not known.
    break_even: BreakEvenSteps | None = None
    pairs: int = 0  #: Pairs of runs that were compared.
    steps: int = 0  #: Steady steps that were compared, of all pairs.
    finished: int = 0  #: Steps of one compiled run.
    #: fresh: each run had empty compile caches; kept: those of the environment.
    caches: Literal["fresh", "kept"] = "fresh"
    #: Compiled callables that were timed in both arms, those with the most time first; at most 20.
    #: Empty where a CUDA device was in use.
    callables: tuple[CallableAgainstEager, ...] = ()
    runs: tuple[ArmRecord, ...] = ()  #: The runs, in the order in which they were made.
    notes: tuple[str, ...] = ()  #: What limits the comparison.
    #: Whether compiled calls give the numbers of eager on the same input; null where that was not
    #: looked at.
    numbers: NumbersSection | None = None


WhyCompiledAgain = Literal[
    "bypass", "disabled", "failed", "key_changed", "entry_gone", "guard_miss", "not_compiled_before"
]


class CompiledAgainRecord(Record, frozen=True, kw_only=True):
    """A compile of the second start that was not taken from a cache."""

    compile_id: str  #: As torch prints it.
    #: The compiled function and its first line, "f at train.py:3"; empty where it is not known.
    place: str
    #: bypass (torch does not cache it), disabled, failed (the cache), key_changed, entry_gone (the
    #: same key), guard_miss (an entry for other sizes), not_compiled_before.
    why: WhyCompiledAgain
    reason: str  #: The same in one sentence, with torch's own words.
    seconds: float | None  #: What the compile took; null where that was not measured.
    #: Components of the key that differ, each with its value in both starts, in short; empty where
    #: the key is the same, or torch does not record of what it is made.
    changes: dict[str, tuple[str | None, str | None]] = EMPTY


class ColdAndWarmSection(Record, frozen=True, kw_only=True):
    """Two starts of a program with the same caches."""

    #: from_caches: every graph came from a cache; compiles_again: at least one did not;
    #: not_concluded.
    verdict: Literal["from_caches", "compiles_again", "not_concluded"]
    problem: str | None = None  #: Why nothing is concluded; null otherwise.
    #: Compile seconds of the first start; null where its phases were not seen.
    cold_s: float | None = None
    #: Compile seconds of the second start, whose receipt this is; null likewise.
    warm_s: float | None = None
    #: Those of the first start by phase, as `compile.seconds.by_phase` has them of the second.
    cold_by_phase: dict[str, float] = EMPTY
    #: By cache, how often it was hit, missed, bypassed, switched off or failed in the first start;
    #: `caches.caches` has the second.
    cold_outcomes: dict[str, dict[str, int]] = msgspec.field(
        default_factory=dict[str, dict[str, int]], name="cold_answers"
    )
    compiles: int = 0  #: Compiles of the second start that looked into a cache of graphs.
    again: tuple[CompiledAgainRecord, ...] = ()  #: Those of them that no cache had; at most 100.
    notes: tuple[str, ...] = ()  #: What the first start could not write.


class RankRow(Record, frozen=True, kw_only=True):
    """One rank."""

    rank: int  #: The rank.
    processes: int  #: Processes that had it.
    frames: int  #: As compile.frames, of this rank.
    compiles: int  #: As compile.compiles.
    recompiles: int  #: As compile.recompiles.
    graph_breaks: int  #: As compile.graph_breaks.
    eager_fallbacks: int  #: As compile.eager_fallbacks.
    compile_s: float | None  #: Seconds of all attempts; null where the record has no seconds.
    #: Hits of inductor's and AOTAutograd's caches, local and remote; null where torch did not count
    #: them.
    cache_hits: int | None = None
    cache_misses: int | None = None  #: Misses of them.
    steps: int = 0  #: Steps seen.
    #: Median wall seconds of a step, the first two left out; null where no step was seen.
    step_median_s: float | None = None


class RankDivergence(Record, frozen=True, kw_only=True):
    """Ranks that differ from most of the others in one respect."""

    #: `compile_ids`, `recompile_causes`, `graph_breaks`, `collectives` (the order of collectives in
    #: compiled graphs, which only traces tell) or `cache_hits` (hits and misses of compile caches).
    aspect: str
    ranks: tuple[int, ...]  #: Ranks that differ, all in the same way; at most 64.
    like_rank: int  #: The lowest of the ranks they are compared with, which are the most.
    #: What only they have; at most five. For collectives, the first place that differs.
    only_here: tuple[str, ...] = ()
    only_there: tuple[str, ...] = ()  #: What they lack; at most five.
    more: int = 0  #: Differences that are not named.
    count: int | None = None  #: Ranks that differ in this way; `ranks` names at most 64 of them.


class RankStraggler(Record, frozen=True, kw_only=True):
    """A rank that is slower than the median of the ranks."""

    rank: int  #: The rank.
    #: `step` (median of a step) or, where no step was seen, `compile` (seconds of all compiles).
    what: str
    seconds: float  #: Its seconds.
    ratio: float  #: To the median of the ranks.


class RankTotals(Record, frozen=True, kw_only=True):
    """All ranks, those without a row included."""

    ranks: int  #: Ranks of which something arrived.
    frames: int  #: As compile.frames.
    compiles: int  #: As compile.compiles.
    recompiles: int  #: As compile.recompiles.
    eager_fallbacks: int  #: As compile.eager_fallbacks.
    compile_s: float | None  #: Seconds of all attempts; null where the record has no seconds.


class RanksSection(Record, frozen=True, kw_only=True):
    """The ranks of a run: what each did, and where they did not do the same."""

    #: World size, as reported or as the highest rank implies; null where neither is known.
    expected: int | None
    #: Ranks that were expected and of which nothing arrived; at most 100,000.
    missing: tuple[int, ...] = ()
    rows: tuple[RankRow, ...] = ()  #: One row a rank, ascending.
    divergences: tuple[RankDivergence, ...] = ()  #: Ranks that do not do what most of them do.
    #: Ranks slower than the median of the ranks, slowest first; at most 16. How much is too much is
    #: for the reader to say.
    stragglers: tuple[RankStraggler, ...] = ()
    #: Sums over all ranks, those included that have no row, or that the other sections of the
    #: receipt do not tell.
    totals: RankTotals | None = None
    #: Ranks that the other sections are of, where they are not of all: at most 256, one for each
    #: behaviour and then the lowest. Null where they are of all.
    reported: int | None = msgspec.field(default=None, name="told")
    differing: int | None = None  #: Ranks that differ from most in any respect.
    divergences_left_out: int = 0  #: Groups of ranks that differ and are not listed.
    missing_count: int | None = None  #: Ranks that are missing, those included that are not listed.
