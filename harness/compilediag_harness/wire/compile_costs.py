"""What compiled code costs beside its seconds of compiling: its guards, the way to its graph, the
memory of making it."""

from __future__ import annotations

from compilediag_harness.wire.event import Event, StepEvent, event
from compilediag_harness.wire.quoted import Location


@event
class GuardsEvaluated(StepEvent):
    """The guards of one compile, just built, with what evaluating them takes in a process that does
    nothing else in between. A compile may have several: each piece of its guards that torch builds.
    """

    compile_id: str
    epoch: int
    eval_us: float | None
    """Median microseconds of a few evaluations after torch's own; None where they could not be
    evaluated. torch's figure in `Compiled` is of one evaluation, with empty caches of the processor
    but in 2.7."""
    kinds: tuple[str, ...]
    """What is evaluated, by torch's names, the most frequent first; parallel to `counts`."""
    counts: tuple[int, ...]
    lines: tuple[Location, ...]
    """The lines of the traced code that most guards are for; parallel to `line_counts`."""
    line_counts: tuple[int, ...]
    evaluated: int | None = None
    """How many are evaluated, which is less than torch counts; None where that could not be read.
    """
    in_python: int | None = None
    """Of them those that call a Python function each time."""
    python_texts: tuple[str, ...] = ()
    """The first of those."""


@event
class WarmCallsTimed(Event):
    """Some outermost calls of compiled callables in which nothing compiled: what lies between the
    call and the begin of its first graph, and how often each frame's graph ran in it. The newest
    such record of a process holds those before it."""

    functions: tuple[Location, ...]
    calls: tuple[int, ...]
    """Calls looked at; parallel to `functions`."""
    before_graph_us: tuple[float | None, ...]
    """Median microseconds; None where code that is not compiled runs before the first graph."""
    callers: tuple[int, ...]
    """With `frames` and `runs`: in the calls of which of `functions` the graph of which frame ran,
    and how often in all of them."""
    frames: tuple[Location, ...]
    runs: tuple[int, ...]


@event
class CompileMemoryRead(StepEvent):
    """Host memory of this process around one compile, in bytes."""

    compile_id: str
    epoch: int
    forward: bool
    before: int
    """Resident when it began."""
    after: int
    """Resident when it ended."""
    peak_before: int
    """The most that was ever resident, when it began."""
    peak_after: int
    """The same when it ended: the peak of this compile where it is larger."""
