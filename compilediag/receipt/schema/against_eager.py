"""Whether compiling pays: a program compiled against itself eager."""

from typing import Literal

from compilediag.receipt.schema.compiles import Place
from compilediag.receipt.schema.numbers import NumbersSection
from compilediag.receipt.schema.record import Record

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
