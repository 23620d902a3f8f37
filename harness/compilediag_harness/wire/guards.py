"""Events of guards that were false or are about to be, and of changes that no guard sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from compilediag_harness.wire.event import AttemptEvent, Location, StepEvent, UserCall, event


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """Facts about a false guard that only the live process shows; None where one was not found."""

    root: str | None = None
    """Where the source starts: "argument", "global", "free_variable" (of the compiled function)."""
    instance_changed: bool | None = None
    """The guarded root object is another object than the one the cache entry was compiled with."""
    free_variable: str | None = None
    """Name of the closure cell's variable, when the source passes through a cell."""
    holder_kind: str | None = None
    """What the last hop is read from: "module", "optimizer", "namedtuple", "dict", "object"..."""
    holder_type: str | None = None
    """Class name of that holder, such as "PositionalEncoding"."""
    value_type: str | None = None
    """Type of the value now, such as "bool", "torch.Tensor", "NoneType"."""
    is_enum: bool | None = None
    member_type: str | None = None
    """For a check that an object has an attribute or a container a key: the type of that member
    now, when it is there."""
    inference_mode: bool | None = None
    """Whether `torch.inference_mode` is on now, where it was not when the entry was compiled, or
    the other way round; None where it is the same."""
    root_type: str | None = None
    """Class name of the module a source starts from."""
    parameter: str | None = None
    """What the user's callable calls the value that a wrapper of torch's own holds in `*args`."""


@dataclass(frozen=True, slots=True)
class ValueUse:
    """A use of a guarded value in the source of what was compiled."""

    kind: str
    """"arithmetic" and "operand" (an operator of torch takes a tensor there) would work with a
    tensor; "math" with the function of torch in place of that of `math`, which "symbolic_math" also
    computes of symbols. Not so "scalar" (an operator takes any number, symbols too), "number" (an
    int), "float" (no symbol), "bound" (`min` or `max` with numbers), "slice", "condition", "loop",
    "index", "text", "item" (inside of a container), "returned", "stored", "other", and "unknown", a
    call that is not known."""
    file: str
    line: int
    callee: str = ""
    """What is called with it, as it is written there."""


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A guarded value was seen to change: it differed after a line of the user's was run."""

    old: str
    new: str
    stack: tuple[Location, ...]
    """That line, then the user's lines that called it; for a change inside a compiled call the line
    of the call, since no line is followed in it."""
    in_call: bool
    """It changed inside a compiled call."""
    step: int


@dataclass(frozen=True, slots=True)
class FalseGuard:
    """One guard of a cache entry that was false, or about to be."""

    source: str
    """The guarded value as Python source in the scope {L, G}; "" where torch reports none."""
    leaf: str
    """Class of the leaf guard ("TENSOR_MATCH"), "SHAPE" for a symbolic shape condition, or
    "PRINTED" for a failure that is only in torch's printed reason."""
    text: str
    """The guard as torch prints it, without the trailing comments."""
    expected: str | None = None
    actual: str | None = None
    user: Location | None = None
    """The user's line that made Dynamo install the guard."""
    hint: str | None = None
    facts: GuardFacts = field(default_factory=GuardFacts)
    writers: tuple[Location, ...] = ()
    """Functions of the running program that write the guarded variable."""
    novel: bool | None = None
    """No cache entry of the frame accepts the present value; False: one does, so that the value was
    compiled for before. None where that was not determined."""
    own: UserCall | None = None
    """The innermost line of the program's own that led to `user`, inside the compiled function,
    where that is a line of a library."""
    branched_on: bool | None = None
    """Of journals before 1.2: a condition reads a value of this name. `uses` says so now."""
    uses: tuple[ValueUse, ...] | None = None
    """What the functions that read the value do with it, as far as guards and the class that holds
    it show them. None where the source of one is not known."""
    changed: ValueChange | None = None
    """How the guarded value came to be as it is; None where that was not seen."""
    changed_by: tuple[UserCall, ...] = ()
    """Lines of the calls in progress that probably changed the value: they write it, or call by its
    name a function that does."""


@dataclass(frozen=True, slots=True)
class EntryDiff:
    """The false guards of one cache entry, in guard order."""

    compile_id: str
    guards: tuple[FalseGuard, ...]
    checked: int = 0
    unevaluated: int = 0
    """Leaf guards that could not be evaluated from Python."""
    left_out: int = 0
    """False guards beyond those in `guards`."""


@event
class Recompiled(AttemptEvent):
    """torch determined why no cache entry of a frame fits: it begins to compile it again."""

    frame: Location
    reasons: tuple[str, ...]
    """torch's printed reasons, one per cache entry: of the one used last, and of `entries`."""
    entries: tuple[EntryDiff, ...]
    """The live entries with the fewest false guards, in torch's order, which is the most recently
    used first; empty when that was impossible."""
    analysis_s: float
    problem: str | None = None
    """Why the entries could not be analysed, if so."""
    entries_left_out: int = 0
    """Live entries beyond those in `entries`."""


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """A condition on dynamic sizes that a graph was built under."""

    expression: str
    """As sympy prints it: "Eq(s77, 4)"."""
    sizes: tuple[tuple[str, str], ...]
    """Each symbol of it with the source of a size that it stands for."""
    fixed: tuple[str, ...]
    """Sources of the sizes that became constants by it."""
    torch_calls: tuple[str, ...]
    """Functions of torch that needed its value, innermost first."""
    stack: tuple[Location, ...]
    """The lines of the traced code, outermost first; empty where torch needed it after tracing."""
    texts: tuple[str, ...]
    """The source texts of `stack`."""


MAX_SIZE_GUARDS = 64
"""Conditions recorded of one attempt: the first ones; those of a large export are thousands."""

MAX_OPEN_ATTEMPTS = 64
"""Compiles without an end whose conditions are stored."""


@dataclass
class SizeAttempt:
    """The conditions of an attempt to compile that has not ended."""

    number: int
    guards: list[SizeGuard] = field(default_factory=list[SizeGuard])
    left_out: int = 0
    recent: bool = False
    """The condition added last is in `guards`."""

    def accept_condition(self) -> bool:
        """Accept one more condition; False where there are too many, and it is only counted."""
        self.recent = len(self.guards) < MAX_SIZE_GUARDS
        self.left_out += not self.recent
        return self.recent

    def add_fixed_sizes(self, sources: Iterable[str]) -> None:
        """Add sources of sizes that the condition added last made constants."""
        if self.recent and self.guards:
            last = self.guards[-1]
            fixed = tuple(dict.fromkeys((*last.fixed, *sources)))
            self.guards[-1] = replace(last, fixed=fixed)


@event
class SizesGuarded(AttemptEvent):
    """Conditions on dynamic sizes of one attempt to compile, in order. An export has no id."""

    guards: tuple[SizeGuard, ...]
    left_out: int = 0
    """Later conditions beyond those in `guards`."""


@dataclass(frozen=True, slots=True)
class TensorGuard:
    """A guard on a tensor that a compiled frame was given, and the layout of that one."""

    source: str
    required: str
    """The guard's text up to sizes: type, dispatch keys, dtype, device and requires_grad."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


@event
class InputsGuarded(AttemptEvent):
    """The guards of one compile on the tensors that the frame was given."""

    tensors: tuple[TensorGuard, ...]
    conditions: tuple[str, ...]
    """All on their sizes and strides in Python, those that allow one value alone included."""


@event
class HazardsChecked(StepEvent):
    """After a step in which something compiled, guards already false were looked for."""

    frame: Location
    guards: tuple[FalseGuard, ...]
    """Guards of the most recently used entry that are false now: armed causes."""
    checked: int
    unevaluated: int
    seconds: float
    skipped: str | None = None
    """Why nothing follows from it ("over 50 ms", "another entry may serve"), if so."""


@event
class UnguardedChanged(StepEvent):
    """Hooks or methods of a compiled module changed after its compile; no guard sees it."""

    frame: Location
    what: str
    """"forward_hook", "forward_pre_hook", "class_method", "instance_method"."""
    target: str
    """Module path and name, such as "encoder.layer0" or "Block.forward"."""
    where: Location | None


@event
class EffectLost(AttemptEvent):
    """Guarded code lacks an effect of the code that it was made from; torch says nothing."""

    source: str
    """Of a guard: of the tensor that is written, or of the `random.Random`."""
    operation: str
    """"copy_", "iadd", "randint"."""
    kind: str
    """"left out": a write; "repeated": a draw, by each call of the graph; "misread": a draw, which
    the graph reads as another number; "merged": a draw, which the graph has once for two."""
    where: Location | None


@event
class Witnessed(StepEvent):
    """Write tracing: the program's lines were followed to see who changes what is guarded."""

    line_events: int
    seconds: float
    """Spent in looking at values."""
    values: int
    """That were watched at last."""
    values_left_out: int
    stopped: str | None = None
    """Why lines were not followed to the end, or not at all; `step` is the one when it stopped."""
