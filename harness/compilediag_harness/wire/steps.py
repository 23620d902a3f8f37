"""Steps, the spans in them, and what was measured beside them on devices."""

from __future__ import annotations

from dataclasses import field

from compilediag_harness.wire.event import Event, StepEvent, event


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
    partial: dict[str, str] = field(default_factory=dict[str, str])
    """Phases that are measured in part, each with what is missing."""
    noted: bool = False
    """Only the ends of these steps were noted: no calls of compiled callables are recorded, and no
    phases but `data_wait` and `spans`. Then `walls` is empty, each step beginning with the end of
    the one before it, and the first at `began`."""
    began: float | None = None
    measuring_s: float = 0.0
    """Seconds that our own work took out of the first of these steps."""

    def every_wall(self) -> tuple[float, ...]:
        """Wall seconds of each step; of steps that were only noted, from their ends."""
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
class DeviceStepsTimed(Event):
    """Device time of steps, known some time after they ended; tuples are parallel, in seconds."""

    steps: tuple[int, ...]
    step_s: tuple[float, ...]
    forward_s: tuple[float | None, ...]
    backward_s: tuple[float | None, ...]
    """None where a step has no such phase."""
    dropped: int = 0
    """Steps since the last record whose events were never waited for."""


@event
class DeviceMemoryRead(StepEvent):
    """What the allocator of one CUDA device held at a moment."""

    device: int
    current: dict[str, int]
    """torch's counters "allocated_bytes", "reserved_bytes", "active_bytes" and
    "inactive_split_bytes", and of each pool as in "allocated_bytes.large_pool"."""
    peak: dict[str, int]
    """Highest values since the program last reset them; without the pools."""
    counts: dict[str, int]
    """"num_alloc_retries", "num_ooms", "num_device_alloc"..."""


@event
class ProfileEnded(Event):
    """A window of torch.profiler that a signal asked for has ended, or did not begin."""

    first_step: int
    last_step: int
    file: str | None
    """Name of the trace in the folder for artifacts; None where there is none."""
    problem: str | None = None
