"""Whether compiled calls give the numbers of eager: what `run --against-eager` found."""

from typing import Literal

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
