"""What a step calls: compiled callables, disabled functions, hooks, and what makes it wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from compilediag_harness.wire.event import Event, StepEvent, event
from compilediag_harness.wire.quoted import Location


@event
class CompiledCallsMade(Event):
    """Calls of compiled callables from eager code since the last such record."""

    numbers: tuple[int, ...]
    """The callables that occur, by a number that one has in all records of the process."""
    functions: tuple[Location, ...]
    """What they are; parallel to `numbers`. Two modules of one class are two callables."""
    shapes: tuple[str | None, ...]
    """Shapes of a call's tensors, each once: "[8, 16], mask=[8]"; None where they were too many."""
    samples: tuple[int | None, ...]
    """Leading size of the first tensor, parallel to `shapes`."""
    elements: tuple[int | None, ...]
    """Elements of that tensor."""
    callables: tuple[int, ...]
    """With `shape_places` (positions in `shapes`) and `counts`: how often which callable was
    called with which shapes. -1: a callable that has no number, because there are too many."""
    shape_places: tuple[int, ...]
    counts: tuple[int, ...]
    order: tuple[int, ...] = ()
    """Each call, as a position in `callables`; only the first so many of a process."""
    at: tuple[float, ...] = ()
    """When those began."""
    tensors: tuple[tuple[str, ...], ...] = ()
    """Parallel to `functions`: the tensors of its first call by parameter and key ("batch.ids"), in
    the order of `shapes`; empty where the parameters are not known."""
    padded: tuple[int, ...] = ()
    """Parallel to `functions`: calls that a `FixedShape` made, at its own sizes."""


@event
class EagerStanceCalls(Event):
    """Outermost calls of compiled callables under a stance of `torch.compiler.set_stance` that
    compiles nothing, since the last such record; tuples are parallel."""

    functions: tuple[Location, ...]
    stances: tuple[str, ...]
    """"force_eager": they ran eager; "eager_on_recompile": those that fit no cache entry did."""
    counts: tuple[int, ...]
    set_at: tuple[Location | None, ...] = ()
    """The user's line that set the stance; None where it was set before we looked."""


@event
class DisabledCallsEnded(Event):
    """Calls of the program's functions behind `torch.compiler.disable`, added up since the last
    such record; tuples are parallel, in seconds. Where one calls another, both have its time."""

    functions: tuple[Location, ...]
    phases: tuple[str, ...]
    """The phase of the step that the calls were in; one function may stand here once a phase."""
    counts: tuple[int, ...]
    total_s: tuple[float, ...]
    longest_s: tuple[float, ...]


@event
class HooksFound(Event):
    """The program's hooks on its compiled modules and their parameters, when the process ends;
    tuples are parallel."""

    kinds: tuple[str, ...]
    """"forward_hook", "forward_pre_hook", "backward_hook", "backward_pre_hook", "tensor_hook",
    "accumulate_grad_hook"."""
    targets: tuple[str, ...]
    """Path of the module or parameter below the compiled module."""
    functions: tuple[Location, ...]
    disabled: tuple[bool, ...]
    """The hook is behind `torch.compiler.disable`: its calls are in `DisabledCallsEnded`."""


@dataclass(frozen=True, slots=True)
class PackedBuffer:
    """A buffer that one step filled with one value, and then wrote into."""

    place: Location
    """The first line that writes into it."""
    name: str
    """Its name there, such as "batch"."""
    fill: str
    """What filled it: "zeros", "new_full", "zero_"."""
    fill_line: int
    buffers: int
    """How often it was filled."""
    stores: int
    buffer_bytes: int
    """Filled, each time added up."""
    written_bytes: int | None
    """Written afterwards, at least; None where it is not known of every store."""
    seconds: float | None
    """Inside of the stores; None where not all were timed."""


@event
class SyncsSampled(StepEvent):
    """Where the program made the host wait for tensor data, in one whole step; sampled, and only in
    steps in which nothing compiled. Inside of compiled callables only the program's functions
    behind `torch.compiler.disable` are seen."""

    on_device: bool
    """Only tensors on a device were counted. False: the program uses none, and what is counted are
    the reads that would wait for a device if the tensors were there."""
    complete: bool
    """False when the step held more than were counted."""
    places: tuple[Location, ...]
    """The user's line; this tuple and those up to `seconds` are parallel, one entry a kind and
    line."""
    kinds: tuple[str, ...]
    """"item", "tolist", "bool", "float", "int", "index", "cpu", "to_cpu", "numpy", "nonzero"."""
    loops: tuple[int, ...]
    """First line of the innermost loop around the line in its function; 0 where none is known."""
    spans: tuple[tuple[str, ...], ...]
    """Names of the spans that were open, outermost first."""
    counts: tuple[int, ...]
    seconds: tuple[float, ...] = ()
    """Inside the calls themselves, what one waited for included; empty where not all were timed."""
    noting_s: dict[str, float] = field(default_factory=dict[str, float])
    """What noting the reads made the step longer by, by phase."""
    packed: tuple[PackedBuffer, ...] = ()
