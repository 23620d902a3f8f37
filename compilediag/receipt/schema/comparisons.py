"""A program compared with itself: with its eager run, and with its second start."""

from typing import Literal

from msgspec import field

from compilediag.receipt.schema.compiles import Place
from compilediag.receipt.schema.record import Record

NumbersLayer = Literal["backend", "decompositions", "aot_autograd", "dynamo"]
"""`backend`: graph passes and code generation of inductor, or a backend of the program's own.
`decompositions`: the operators that inductor has taken apart before. `aot_autograd`:
functionalization and partition. `dynamo`: what is captured is another program already."""


class NumberDifference(Record, frozen=True, kw_only=True):
    """The first call of a compiled callable that gives other numbers than eager on the same
    input."""

    function: Place  #: What is compiled.
    call: int  #: Which call of it, 0 for the first.
    step: int  #: The step in progress.
    #: Which value: empty for what is returned, [0] a member of it, argument[0] and buffer ['mean']
    #: for what is written.
    path: str
    dtype: str  #: Its type, as eager has it.
    text: str  #: The difference: eager → compiled.
    largest: float | None = None  #: Greatest difference seen; null where they are not numbers.
    eager_error: float | None = None  #: Root mean square of eager against float64; null: none.
    compiled_error: float | None = None  #: The same of compiled.
    calls: int = 0  #: Sampled calls of it that differ.


class NarrowedRecord(Record, frozen=True, kw_only=True):
    """Frame and layer of the first difference."""

    #: backend (graph passes and code generation), decompositions, aot_autograd, dynamo; null where
    #: it was not found.
    layer: NumbersLayer | None
    frames: tuple[str, ...] = ()  #: Ids of the frames to compile otherwise; empty: not known.
    #: Value of TORCH_COMPILE_OVERRIDE_BACKENDS with which it vanished; null where none did.
    override: str | None = None
    runs: int = 0  #: Runs that looked for it.
    problem: str | None = None  #: Why it is not known better; null otherwise.


class NumbersSection(Record, frozen=True, kw_only=True):
    """What the comparison found."""

    same: bool | None  #: False: some differ by more than eager's rounding; null: not known.
    problem: str | None = None  #: Why it is not known; null otherwise.
    calls: int = 0  #: Sampled compiled calls that were made eager beside them, on copies.
    #: Their values that were compared: results, tensors given, buffers of the module.
    values: int = 0
    unstable: int = 0  #: Values that differ between two eager calls on the same input: left out.
    undetermined: int = 0  #: Differences that may be rounding or cannot be judged: left out.
    #: The first call of each callable that differs, in the order in which they came; at most 20.
    differences: tuple[NumberDifference, ...] = ()
    #: Where the first one is from (`--bisect-numerics`); null: not searched.
    narrowed: NarrowedRecord | None = None
    notes: tuple[str, ...] = ()  #: What limits the comparison.


AgainstEagerVerdict = Literal[
    "pays", "does_not_pay", "same", "not_resolved", "outputs_differ", "not_concluded"
]
"""`same`: as fast as eager, within the tolerance of `gate --ab`. `not_concluded`: there was nothing
to compare."""


class EagerRatio(Record, frozen=True, kw_only=True):
    """Eager time over compiled time, with its interval: 2.0 is twice as fast compiled."""

    middle: float  #: Median over stretches of steps of all pairs.
    #: Lower bound of the 98 % interval: that of all stretches or of the pairs, if lower.
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
    """What the pairs of runs show."""

    #: pays, does_not_pay (eager is faster in steady state), same (within 1 %), not_resolved (the
    #: interval is wider than the effect), outputs_differ, not_concluded.
    verdict: AgainstEagerVerdict
    problem: str | None = None  #: Why nothing is concluded; null otherwise.
    #: Eager seconds of a steady step over compiled ones (2.0: twice as fast compiled), or null.
    ratio: EagerRatio | None = None
    compiled_step_s: float | None = None  #: Seconds of a usual steady step, compiled.
    eager_step_s: float | None = None  #: Seconds of a usual steady step, eager.
    compile_s: float | None = None  #: Of a usual compiled run; null where it was not measured.
    #: When the compile seconds are earned back; null: never, or not known.
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
    #: Whether compiled calls give eager's numbers; null: not looked at.
    numbers: NumbersSection | None = None


WhyCompiledAgain = Literal[
    "bypass", "disabled", "failed", "key_changed", "entry_gone", "guard_miss", "not_compiled_before"
]


class CompiledAgainRecord(Record, frozen=True, kw_only=True):
    """A compile of the second start that was not taken from a cache."""

    compile_id: str  #: As torch prints it.
    place: str  #: The compiled function and its first line, "f at train.py:3"; empty: not known.
    #: bypass (torch does not cache it), disabled, failed (the cache), key_changed, entry_gone (the
    #: same key), guard_miss (an entry for other sizes), not_compiled_before.
    why: WhyCompiledAgain
    reason: str  #: The same in one sentence, with torch's own words.
    seconds: float | None  #: What the compile took; null where that was not measured.
    #: Components of the key that differ, each with its value in both starts, in short; empty where
    #: the key is the same, or torch does not record of what it is made.
    changes: dict[str, tuple[str | None, str | None]] = field(
        default_factory=dict[str, tuple[str | None, str | None]]
    )


class ColdAndWarmSection(Record, frozen=True, kw_only=True):
    """Two starts of a program with the same caches."""

    #: from_caches: all graphs are from caches; compiles_again: one is not; not_concluded.
    verdict: Literal["from_caches", "compiles_again", "not_concluded"]
    problem: str | None = None  #: Why nothing is concluded; null otherwise.
    cold_s: float | None = None  #: Compile seconds of the first start; null: phases not seen.
    warm_s: float | None = None  #: Those of the second, whose receipt this is; null likewise.
    #: Those of the first start by phase, as `compile.seconds.by_phase` has them of the second.
    cold_by_phase: dict[str, float] = field(default_factory=dict[str, float])
    #: By cache the hits, misses, bypasses, disabled and failed of the first start.
    cold_answers: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    compiles: int = 0  #: Compiles of the second start that looked into a cache of graphs.
    again: tuple[CompiledAgainRecord, ...] = ()  #: Those of them that no cache had; at most 100.
    notes: tuple[str, ...] = ()  #: What the first start could not write.
