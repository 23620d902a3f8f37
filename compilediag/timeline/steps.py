"""What was measured of a run's steps, as types: their times, device times, calls, reads, hooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compilediag_harness.wire import Location, PackedBuffer


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step; seconds, None for a phase that was not measured."""

    process: int
    number: int
    end: float
    wall_s: float
    data_wait_s: float | None
    optimizer_s: float | None
    spans_s: float | None
    compile_s: float
    forward_s: float | None = None
    backward_s: float | None = None
    noted: bool = False
    """Only its end is known, and its waits for data and spans; nothing of its calls."""
    measuring_s: float = 0.0
    """Seconds of our own work in it, where that was much."""


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """Device seconds of one step, None for a phase it does not have."""

    process: int
    number: int
    step_s: float
    forward_s: float | None
    backward_s: float | None


@dataclass(frozen=True, slots=True)
class DisabledCalls:
    """The calls of one function behind `torch.compiler.disable` in one phase of the steps."""

    process: int
    function: Location
    phase: str
    count: int
    total_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class SyncSite:
    """Reads of one kind on one of the user's lines, in one sampled step."""

    place: Location
    kind: str
    """"item", "bool", "cpu"...; see `SyncsSampled`."""
    loop: int | None
    """First line of the innermost loop around it in its function, where one is known."""
    spans: tuple[str, ...]
    """Names of the spans that were open, outermost first."""
    count: int
    seconds: float | None = None
    """Inside the calls, waiting included; None: not timed."""


@dataclass(frozen=True, slots=True)
class SyncSample:
    """Where one whole step made the host wait for tensor data; empty where it did not."""

    process: int
    step: int
    on_device: bool
    """The tensors were on a device; False: the reads would wait if they were."""
    complete: bool
    """False when the step held more than were counted."""
    sites: tuple[SyncSite, ...]
    seconds: float | None = None
    """Inside all of the reads; None where not every one was timed."""
    noting_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """What noting them made the step longer by, by phase."""
    packed: tuple[PackedBuffer, ...] = ()
    """Buffers that the step filled and then wrote into."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook of the program's on a compiled module or its parameters, when the process ended."""

    process: int
    kind: str
    """"forward_hook", "backward_hook", "tensor_hook"...; see `HooksFound`."""
    target: str
    function: Location
    disabled: bool


@dataclass(frozen=True, slots=True)
class PartialPhase:
    """A phase of the steps that was measured in part."""

    process: int
    phase: str
    missing: str
