"""Whether compiling pays: a program compiled against itself eager."""

from typing import Literal

from compilediag.receipt.schema.compiles import Place
from compilediag.receipt.schema.numbers import NumbersSection
from compilediag.receipt.schema.record import Record

AgainstEagerVerdict = Literal[
    "pays", "does_not_pay", "same", "not_resolved", "outputs_differ", "not_concluded"
]


class EagerRatio(Record, frozen=True, kw_only=True):
    """Eager time over compiled time, with its interval."""

    middle: float
    low: float
    high: float


class BreakEvenSteps(Record, frozen=True, kw_only=True):
    """Steps that earn the compile seconds back, with their interval."""

    step: int
    low: int
    high: int | None


class CallableAgainstEager(Record, frozen=True, kw_only=True):
    """One compiled callable in both arms."""

    function: Place
    calls: float
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
    finished: int = 0
    caches: Literal["fresh", "kept"] = "fresh"
    callables: tuple[CallableAgainstEager, ...] = ()
    runs: tuple[ArmRecord, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: NumbersSection | None = None
