"""What is stated of a change and not judged: time, and what a step costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from compilediag.compare.gate.ab import MIN_ROUNDS
from compilediag.fixes.observed import Observed, worst
from compilediag.fixes.points import Point

UNRESOLVED = 1.0
"""Width of the interval of the step time's change from which it says nothing."""


def time_point(baseline: Observed, runs: Sequence[Observed]) -> Point:
    """Compiling, and steps with an interval where there are enough."""
    figures = [
        worst("compile", baseline, runs, lambda run: run.receipt.compile.time_s.total, "s"),
        worst("first compiles", baseline, runs, _first_compiles, "s"),
        worst("step", baseline, runs, _step, "s"),
    ]
    text = _interval(baseline, runs)
    return Point(
        "time", None, text, tuple(figure for figure in figures if figure.after is not None)
    )


def _first_compiles(run: Observed) -> float | None:
    return run.receipt.compile.time_s.first_compile


def _step(run: Observed) -> float | None:
    """Median of the steps in which nothing compiled, past the first."""
    quiet = [step.wall_s for step in run.timeline.steps[1:] if step.compile_s == 0]
    return median(quiet) if quiet else None


def _interval(baseline: Observed, runs: Sequence[Observed]) -> str:
    """The change of the step time between steps of the same number, where there are enough."""
    before = {(s.process, s.number): s.wall_s for s in baseline.timeline.steps if not s.compile_s}
    ratios = [
        math.log(step.wall_s / before[step.process, step.number])
        for run in runs
        for step in run.timeline.steps[1:]
        if not step.compile_s
        and step.wall_s > 0
        and before.get((step.process, step.number), 0.0) > 0
    ]
    if len(ratios) < MIN_ROUNDS:
        return "too few quiet steps to compare their time"
    ordered = sorted(ratios)
    low, high = _median_bounds(len(ordered))
    change, least, most = (math.expm1(x) for x in (median(ordered), ordered[low], ordered[high]))
    if most - least > UNRESOLVED:
        return "step time not resolved by one run each"
    return f"step {change:+.0%} [{least:+.0%}, {most:+.0%}], one run each"


def _median_bounds(count: int) -> tuple[int, int]:
    """Indices of the order statistics between which the median lies 98 times in a hundred, by the
    normal approximation of the binomial."""
    half = math.ceil(2.326 * math.sqrt(count) / 2)
    return max(0, count // 2 - half), min(count - 1, (count - 1) // 2 + half)


def cost_point(baseline: Observed, runs: Sequence[Observed]) -> Point:
    """Guards, synchronisations, memory."""
    figures = [
        worst("guards of a call", baseline, runs, _guard_time, "µs"),
        worst("synchronisations a step", baseline, runs, _syncs),
        worst("host memory", baseline, runs, _memory, "bytes"),
    ]
    known = tuple(each for each in figures if each.before is not None and each.after is not None)
    return Point("cost", None, "stated, not judged", known)


def _guard_time(run: Observed) -> float | None:
    found = [item.guard_eval_us for item in run.receipt.compile.frames_detail]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _syncs(run: Observed) -> float | None:
    """Of the sampled steps, which are not as many in each run: none with a compile is sampled."""
    section = run.receipt.syncs
    if section is None or not section.sampled_steps:
        return None
    return round(sum(line.count for line in section.lines) / section.sampled_steps, 1)


def _memory(run: Observed) -> float | None:
    section = run.receipt.memory
    return section.host_peak_bytes if section is not None else None
