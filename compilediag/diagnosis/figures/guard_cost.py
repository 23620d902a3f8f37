"""What the guards of each frame cost a step: one evaluation, times how often the frame runs in it.

An evaluation is measured right after others, so that it is the least that a call pays. torch's own
figure is of one with empty caches of the processor, which no loop ever sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from compilediag.diagnosis.figures.invocations import invocations_in
from compilediag.timeline.compile_costs import GuardSet, WarmCalls
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location


@dataclass(frozen=True, slots=True)
class FrameGuards:
    """The guards of one frame, by the compile of it whose guards take least."""

    frame: Location
    guards: GuardSet
    compiles: int
    runs_per_step: float | None
    """None where no warm call of it, or no step, was seen."""

    @property
    def us_per_step(self) -> float | None:
        """Microseconds; None where that is not known."""
        if self.runs_per_step is None or self.guards.eval_us is None:
            return None
        return self.guards.eval_us * self.runs_per_step


@dataclass(frozen=True, slots=True)
class GuardCost:
    """The guards of the lead process."""

    step_s: float | None
    """Median of its steps without a compile; None without one."""
    frames: tuple[FrameGuards, ...]
    """Those that cost most first."""
    warm: tuple[WarmCalls, ...]

    @property
    def us_per_step(self) -> float | None:
        """Microseconds of all frames whose part is known; None where that is none."""
        known = [item.us_per_step for item in self.frames]
        found = [value for value in known if value is not None]
        return sum(found) if found else None

    @property
    def share(self) -> float | None:
        """Of a step, from 0 to 1; None where that is not known."""
        if self.us_per_step is None or not self.step_s:
            return None
        return self.us_per_step / 1e6 / self.step_s


def guard_cost(timeline: Timeline) -> GuardCost | None:
    """None where no guards were looked at."""
    process = timeline.lead
    frames = {item.id: item.frame for item in timeline.compiles if item.guarded and item.forward}
    by_frame: dict[Location, list[GuardSet]] = {}
    for item in timeline.guard_sets:
        if item.id.process == process and item.id in frames:
            by_frame.setdefault(frames[item.id], []).append(item)
    if not by_frame:
        return None
    warm = tuple(item for item in timeline.warm_calls if item.process == process)
    runs = _runs_per_step(timeline, warm)
    found = [
        FrameGuards(frame, min(sets, key=_cost), len(sets), runs.get(frame))
        for frame, sets in by_frame.items()
    ]
    found.sort(key=lambda item: -(item.us_per_step or 0.0))
    walls = [s.wall_s for s in timeline.steps if s.process == process and not s.compile_s]
    return GuardCost(median(walls) if walls else None, tuple(found), warm)


def _cost(item: GuardSet) -> float:
    return float("inf") if item.eval_us is None else item.eval_us


def _runs_per_step(timeline: Timeline, warm: Iterable[WarmCalls]) -> dict[Location, float]:
    """How often the graph of each frame runs in a step, by the calls that were looked at."""
    calls: dict[Location, float] = {}
    for item in invocations_in(timeline):
        if item.per_step is not None:
            function = item.calls.function
            calls[function] = calls.get(function, 0.0) + item.per_step.median
    runs: dict[Location, float] = {}
    for item in warm:
        for frame, count in item.runs:
            often = count / item.calls * calls.get(item.function, 0.0)
            runs[frame] = runs.get(frame, 0.0) + often
    return {frame: often for frame, often in runs.items() if often > 0.0}
