"""Whether compiled calls give the numbers of eager: what `run --against-eager` found."""

from typing import Literal

from compilediag.receipt.schema.compiles import Place
from compilediag.receipt.schema.record import Record

NumbersLayer = Literal["backend", "decompositions", "aot_autograd", "dynamo"]


class NumberDifference(Record, frozen=True, kw_only=True):
    """The first call of a callable that gives other numbers."""

    function: Place
    call: int
    step: int
    path: str
    dtype: str
    text: str
    largest: float | None = None
    eager_error: float | None = None
    compiled_error: float | None = None
    calls: int = 0


class NarrowedRecord(Record, frozen=True, kw_only=True):
    """Frame and layer of the first difference."""

    layer: NumbersLayer | None
    frames: tuple[str, ...] = ()
    override: str | None = None
    runs: int = 0
    problem: str | None = None


class NumbersSection(Record, frozen=True, kw_only=True):
    """What the comparison found."""

    same: bool | None
    problem: str | None = None
    calls: int = 0
    values: int = 0
    unstable: int = 0
    undetermined: int = 0
    differences: tuple[NumberDifference, ...] = ()
    narrowed: NarrowedRecord | None = None
    notes: tuple[str, ...] = ()
