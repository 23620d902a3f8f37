"""Events of steps: calls, phases, spans, device waits, and times and memory of devices."""

from __future__ import annotations

from dataclasses import dataclass, field

from compilediag_harness.wire.event import Event, Location, StepEvent, event


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
    """Lines at which the program made the host wait for tensor data, in one whole step; sampled,
    and only in steps in which nothing compiled. Inside of compiled callables only the program's
    functions behind `torch.compiler.disable` are seen."""

    on_device: bool
    """Only tensors on a device were counted. False: the program uses none, and what is counted are
    the reads that would wait for a device if the tensors were there."""
    complete: bool
    """False when the step held more than were counted."""
    places: tuple[Location, ...]
    """The user's line; this and those up to `seconds` are parallel, one entry a kind and line."""
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


@event
class StepsEnded(Event):
    """A batch of finished steps, in order; tuples are parallel, in seconds."""

    first: int
    source: str
    """What marked the steps: "step()", "optimizer", "call" (outermost compiled call)."""
    ends: tuple[float, ...]
    walls: tuple[float, ...]
    data_wait: tuple[float, ...] = ()
    optimizer: tuple[float, ...] = ()
    spans: tuple[float, ...] = ()
    forward: tuple[float, ...] = ()
    backward: tuple[float, ...] = ()
    """Phases exclude each other: the seconds of a step's phases never exceed its wall seconds. An
    empty tuple is a phase that was not measured, never one of zero seconds."""
    noted: bool = False
    """Only the ends of these steps were noted: no calls of compiled callables are recorded, and no
    phases but `data_wait` and `spans`. Then `walls` is empty, each step beginning with the end of
    the one before it, and the first at `began`."""
    began: float | None = None
    measuring_s: float = 0.0
    """Seconds that our own work took out of the first of these steps."""

    def list_walls(self) -> tuple[float, ...]:
        """List the wall seconds of each step; of steps that were only noted, from their ends."""
        if self.walls or self.began is None:
            return self.walls
        begins = (self.began, *self.ends)
        return tuple(end - began for began, end in zip(begins, self.ends, strict=False))


@event
class SpanEnded(StepEvent):
    """A named span of the run ended. Nested spans carry their depth; inner time is not the
    outer's when goodput is added up. Old journals hold one record a span, new ones `SpansEnded`."""

    name: str
    start: float
    wall_s: float
    depth: int
    thread: int
    phase: str | None = None
    """The phase of the step it began in ("forward", "rest"...); None where not known."""


@event
class SpansEnded(Event):
    """A batch of finished spans, in the order they ended, in whole nanoseconds. What spans have in
    common is stored once: `names`, `depths`, `threads` and `phases` are parallel, one entry a kind
    of span; the tuples after them are parallel too, one entry a span."""

    names: tuple[str, ...]
    depths: tuple[int, ...]
    threads: tuple[int, ...]
    phases: tuple[str, ...]
    """The phase of the step a span began in ("forward", "rest"...); "" where not known."""
    kinds: tuple[int, ...]
    """Index in the tuples above of each span's kind."""
    steps: tuple[int, ...]
    starts_ns: tuple[int, ...]
    walls_ns: tuple[int, ...]


@event
class DeviceMemoryRead(StepEvent):
    """The memory that the allocator of one CUDA device held at a moment."""

    device: int
    current: dict[str, int]
    """torch's counters "allocated_bytes", "reserved_bytes", "active_bytes" and
    "inactive_split_bytes", and of each pool as in "allocated_bytes.large_pool"."""
    peak: dict[str, int]
    """Highest values since the program last reset them; without the pools."""
    counts: dict[str, int]
    """"num_alloc_retries", "num_ooms", "num_device_alloc"..."""
