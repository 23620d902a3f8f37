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

    function: Place
    call: int
    """Of this callable, 0 for the first."""
    step: int
    path: str
    """The value that differs, as in `ComparedValue`."""
    dtype: str
    text: str
    """What eager gives, and what compiled gives."""
    largest: float | None = None
    eager_error: float | None = None
    """Root mean square of eager's own rounding, against float64."""
    compiled_error: float | None = None
    calls: int = 0
    """Sampled calls of the callable that differ."""


class NarrowedRecord(Record, frozen=True, kw_only=True):
    """Frame and layer of the first difference."""

    layer: NumbersLayer | None
    frames: tuple[str, ...] = ()
    """Frame ids that have to be compiled otherwise for it to vanish; empty: not known."""
    override: str | None = None
    """The value of the variable with which it was seen to vanish."""
    runs: int = 0
    problem: str | None = None


class NumbersSection(Record, frozen=True, kw_only=True):
    """What the comparison found."""

    same: bool | None
    problem: str | None = None
    calls: int = 0
    values: int = 0
    unstable: int = 0
    """Values that differ between two eager calls on the same input: left out."""
    undetermined: int = 0
    """Values of which rounding may or may not be the reason."""
    differences: tuple[NumberDifference, ...] = ()
    narrowed: NarrowedRecord | None = None
    notes: tuple[str, ...] = ()


AgainstEagerVerdict = Literal[
    "pays", "does_not_pay", "same", "not_resolved", "outputs_differ", "not_concluded"
]
"""`same`: as fast as eager, within the tolerance of `gate --ab`. `not_concluded`: there was nothing
to compare."""


class EagerRatio(Record, frozen=True, kw_only=True):
    """Eager time over compiled time, with its interval: 2.0 is twice as fast compiled."""

    middle: float
    low: float
    high: float


class BreakEvenSteps(Record, frozen=True, kw_only=True):
    """Steps that earn the compile seconds back, with their interval; no high end: perhaps never."""

    step: int
    low: int
    high: int | None


class CallableAgainstEager(Record, frozen=True, kw_only=True):
    """One compiled callable in both arms: seconds of a call that begins in eager code, without its
    backward, usual in steady steps."""

    function: Place
    calls: float
    """In a steady step that calls it, on average."""
    compiled_s: float
    eager_s: float
    ratio: EagerRatio


class ArmRecord(Record, frozen=True, kw_only=True):
    """One run of an arm."""

    arm: Literal["compiled", "eager"]
    pair: int
    wall_s: float | None
    steps: int
    problem: str | None = None


class AgainstEagerSection(Record, frozen=True, kw_only=True):
    """What the pairs of runs show."""

    verdict: AgainstEagerVerdict
    problem: str | None = None
    ratio: EagerRatio | None = None
    compiled_step_s: float | None = None
    eager_step_s: float | None = None
    compile_s: float | None = None
    break_even: BreakEvenSteps | None = None
    pairs: int = 0
    steps: int = 0
    """Steady steps that were compared, of all pairs."""
    finished: int = 0
    """Steps of one compiled run."""
    caches: Literal["fresh", "kept"] = "fresh"
    callables: tuple[CallableAgainstEager, ...] = ()
    runs: tuple[ArmRecord, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: NumbersSection | None = None


WhyCompiledAgain = Literal[
    "bypass", "disabled", "failed", "key_changed", "entry_gone", "guard_miss", "not_compiled_before"
]


class CompiledAgainRecord(Record, frozen=True, kw_only=True):
    """A compile of the second start that was not taken from a cache."""

    compile_id: str
    place: str
    why: WhyCompiledAgain
    reason: str
    seconds: float | None
    changes: dict[str, tuple[str | None, str | None]] = field(
        default_factory=dict[str, tuple[str | None, str | None]]
    )


class ColdAndWarmSection(Record, frozen=True, kw_only=True):
    """Two starts of a program with the same caches."""

    verdict: Literal["from_caches", "compiles_again", "not_concluded"]
    problem: str | None = None
    cold_s: float | None = None
    warm_s: float | None = None
    cold_by_phase: dict[str, float] = field(default_factory=dict[str, float])
    cold_answers: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    compiles: int = 0
    again: tuple[CompiledAgainRecord, ...] = ()
    notes: tuple[str, ...] = ()
