"""One run of an arm as the comparison needs it: its steady steps, the calls in them, its compiles.

No step in which something compiles is steady, nor the one after it, which runs the new code for the
first time; nor is the first step, nor one that only the end of the process ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

ENDED_BY_CALLS = "call"
"""Source of steps whose last one nothing ends but the process."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something that took time, once or several times: a step, or the calls of one callable in
    one."""

    seconds: float
    """Of all of it."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Arm:
    """One run, compiled or eager; seconds are wall time of the lead process."""

    steps: Mapping[int, Work]
    """The steady ones by number."""
    unsampled: frozenset[int] = frozenset()
    """Those of them that were not looked into: nothing of ours is in their time."""
    calls: Mapping[Location, Mapping[int, Work]] = field(
        default_factory=dict[Location, "Mapping[int, Work]"]
    )
    """By callable and steady step; empty where a device was in use: a call may return before its
    work is done."""
    finished: int = 0
    """Steps in all."""
    compiles: int = 0
    """Attempts; a backward compile is one too."""
    compiled_steps: tuple[int, ...] = ()
    """Steps in which something compiles."""
    compile_s: float | None = None
    on_device: bool = False
    """A CUDA device was in use."""
    whole: bool = True
    """It ended by itself."""


def arm_of(timeline: Timeline, *, whole: bool = True) -> Arm:
    """What one run gives to the comparison."""
    lead = timeline.lead
    steps = [each for each in timeline.steps if each.process == lead]
    compiles = [each for each in timeline.compiles if each.process == lead]
    compiled = {each.step for each in compiles}
    # Of two kinds of steps, such as single calls and then whole updates, the last kind is meant.
    kind = [each for each in steps if each.source == steps[-1].source]
    left_out = {each.number for each in kind[:1]} | compiled | {step + 1 for step in compiled}
    if kind and kind[-1].source == ENDED_BY_CALLS:
        left_out.add(kind[-1].number)
    steady = [each for each in kind if each.number not in left_out and each.wall_s > 0]
    on_device = any(each.on_device for each in timeline.timed_calls)
    numbers = frozenset(each.number for each in steady)
    return Arm(
        steps={each.number: Work(each.wall_s) for each in steady},
        unsampled=frozenset(each.number for each in steady if each.unsampled),
        calls={} if on_device else _calls(timeline, numbers),
        finished=len(steps),
        compiles=len(compiles),
        compiled_steps=tuple(sorted(compiled)),
        compile_s=sum(each.seconds for each in compiles)
        if timeline.observes("metrics_rows")
        else None,
        on_device=on_device,
        whole=whole,
    )


def _calls(timeline: Timeline, steady: frozenset[int]) -> dict[Location, Mapping[int, Work]]:
    found: dict[Location, dict[int, Work]] = {}
    for each in timeline.timed_calls:
        if each.process == timeline.lead and each.step in steady and each.seconds > 0:
            found.setdefault(each.function, {})[each.step] = Work(each.seconds, each.count)
    return dict(found)
