"""One run of an arm as the comparison needs it: its steady steps, the calls in them, its compiles.

No step in which something compiles is steady, nor the one after it, which runs the new code for the
first time; nor is the first step, nor one that only the end of the process ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compilediag.diagnosis.cadence.samples import evidence_of
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

ENDED_BY_CALLS = "call"
"""Source of steps whose last one nothing ends but the process."""


@dataclass(frozen=True, slots=True)
class CallTime:
    """The calls of one callable in one step."""

    count: int
    seconds: float
    """Of all of them."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One run, compiled or eager; seconds are wall time of the lead process."""

    steps: Mapping[int, float]
    """The steady ones by number."""
    unsampled: frozenset[int] = frozenset()
    """Those of them that were not looked into: nothing of ours is in their time."""
    calls: Mapping[Location, Mapping[int, CallTime]] = field(
        default_factory=dict[Location, "Mapping[int, CallTime]"]
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
    evidence = evidence_of(timeline)
    compiled = set(evidence.compiled_steps)
    samples = evidence.samples
    first = min((each.number for each in samples), default=0)
    last = samples[-1].number if samples and timeline.step_source == ENDED_BY_CALLS else None
    left_out = {first, last, *compiled, *(step + 1 for step in compiled)}
    steady = {
        each.number: each.wall_s
        for each in samples
        if each.number not in left_out and each.wall_s > 0
    }
    lead = timeline.lead
    on_device = any(each.on_device for each in timeline.timed_calls)
    return Arm(
        steps=steady,
        unsampled=frozenset(
            each.number for each in timeline.steps if each.process == lead and each.unsampled
        )
        & steady.keys(),
        calls={} if on_device else _calls(timeline, frozenset(steady)),
        finished=len(samples),
        compiles=len(evidence.compiles),
        compiled_steps=tuple(sorted(compiled)),
        compile_s=sum(each.seconds for each in evidence.compiles)
        if timeline.observes("metrics_rows")
        else None,
        on_device=on_device,
        whole=whole,
    )


def _calls(timeline: Timeline, steady: frozenset[int]) -> dict[Location, Mapping[int, CallTime]]:
    found: dict[Location, dict[int, CallTime]] = {}
    for each in timeline.timed_calls:
        if (
            each.process == timeline.lead
            and each.step in steady
            and each.count
            and each.seconds > 0
        ):
            time = CallTime(each.count, each.seconds / each.count)
            found.setdefault(each.function, {})[each.step] = time
    return dict(found)
