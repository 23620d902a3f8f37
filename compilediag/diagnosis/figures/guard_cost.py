"""What the guards of each frame cost a step: one evaluation, times how often the frame runs in it.

An evaluation is measured right after others, so that it is the least that a call pays. torch's own
figure is of one with empty caches of the processor, which no loop ever sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.diagnosis.figures.invocations import invocations_in
from compilediag.receipt.schema.compile_costs import FrameGuards, GuardsSection, WarmCalls
from compilediag.receipt.schema.record import record_from
from compilediag.timeline import compile_costs
from compilediag.timeline.compile_costs import GuardSet
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

KEPT = 200
"""Frames and callables that a receipt lists: those that cost most."""


class GuardCost(NamedTuple):
    """The guards of the lead process."""

    figures: GuardsSection
    """Of all frames, those that cost most first."""
    dearest: GuardSet
    """The guards of the first of them."""


def guards_section(timeline: Timeline) -> GuardsSection | None:
    """What a receipt lists; None where no guards were looked at."""
    found = guard_cost(timeline)
    if found is None:
        return None
    figures = found.figures
    return replace(figures, frames=figures.frames[:KEPT], calls=figures.calls[:KEPT])


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
    warm = [item for item in timeline.warm_calls if item.process == process]
    runs = _runs_per_step(timeline, warm)
    least = {frame: min(sets, key=_cost) for frame, sets in by_frame.items()}
    found = [(_of_frame(frame, guards, runs.get(frame)), guards) for frame, guards in least.items()]
    found.sort(key=lambda pair: -(pair[0].us_per_step or 0.0))
    known = [item.us_per_step for item, _ in found if item.us_per_step is not None]
    us_per_step = sum(known) if known else None
    walls = [s.wall_s for s in timeline.steps if s.process == process and not s.compile_s]
    step_s = median(walls) if walls else None
    figures = GuardsSection(
        step_s=step_s,
        us_per_step=us_per_step,
        share=None if us_per_step is None or not step_s else us_per_step / 1e6 / step_s,
        frames=tuple(item for item, _ in found),
        calls=tuple(
            WarmCalls(
                callable=f"{at.function} ({at.file}:{at.line})",
                calls=item.calls,
                before_graph_us=item.before_graph_us,
            )
            for item in warm
            for at in (item.function,)
        ),
    )
    return GuardCost(figures, found[0][1])


def _of_frame(frame: Location, guards: GuardSet, runs: float | None) -> FrameGuards:
    """`runs` in a step: None where no warm call of it, or no step, was seen."""
    return record_from(
        FrameGuards,
        guards,
        frame=frame,
        kinds=dict(guards.kinds),
        runs_per_step=runs,
        us_per_step=None if runs is None or guards.eval_us is None else guards.eval_us * runs,
    )


def _cost(item: GuardSet) -> float:
    return float("inf") if item.eval_us is None else item.eval_us


def _runs_per_step(
    timeline: Timeline, warm: Iterable[compile_costs.WarmCalls]
) -> dict[Location, float]:
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
