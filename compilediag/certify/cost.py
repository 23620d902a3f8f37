"""The cost of a change: seconds, guards, synchronisations and memory. Reported, and not judged:
another machine has others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from compilediag.certify.points import ExecutedState, JudgedPoint
from compilediag.compare.gate.ab import MIN_ROUNDS
from compilediag.receipt.schema.compiles import ProofFigure

UNRESOLVED = 1.0  #: Width of the interval of the step time's change from which it says nothing.


def make_figure(
    name: str, before: float | None, after: float | None, unit: str = ""
) -> ProofFigure:
    """Make a figure as receipts have it, whatever kind of number it is."""
    before, after = (None if number is None else float(number) for number in (before, after))
    return ProofFigure(name, before, after, unit)


def find_worst(
    name: str,
    baseline: ExecutedState,
    runs: Sequence[ExecutedState],
    value: Callable[[ExecutedState], float | None],
    unit: str = "",
) -> ProofFigure:
    """Find the worst figure of runs with a change: the largest, without those that have none."""
    after = [number for run in runs if (number := value(run)) is not None]
    return make_figure(name, value(baseline), max(after, default=None), unit)


def state_cost(before: ExecutedState, after: ExecutedState) -> JudgedPoint:
    """State what the change costs or saves."""
    sentence, times = measure_time(before, [after])
    return JudgedPoint("cost", "stated", sentence, (*times, *measure_costs(before, [after])))


def measure_time(
    baseline: ExecutedState, runs: Sequence[ExecutedState]
) -> tuple[str, tuple[ProofFigure, ...]]:
    """Measure the seconds of compiling, and of steps with an interval where there are enough: a
    sentence, and the figures."""
    measures: dict[str, Callable[[ExecutedState], float | None]] = {
        "compile": lambda run: run.receipt.compile.time_s.total,
        "first compiles": lambda run: run.receipt.compile.time_s.first_compile,
        "step": _compute_step_time,
    }
    figures = [find_worst(name, baseline, runs, of, "s") for name, of in measures.items()]
    known = tuple(figure for figure in figures if figure.after is not None)
    return _format_interval(baseline, runs), known


def _compute_step_time(run: ExecutedState) -> float | None:
    """Compute the median seconds of the steps in which nothing compiled, past the first."""
    quiet = [step.wall_s for step in run.timeline.steps[1:] if step.compile_s == 0]
    return median(quiet) if quiet else None


def _format_interval(baseline: ExecutedState, runs: Sequence[ExecutedState]) -> str:
    """Format the change of the step time between steps of one number, where there are enough."""
    before = {(s.process, s.number): s.wall_s for s in baseline.timeline.steps if not s.compile_s}
    ratios = sorted(
        math.log(step.wall_s / before[step.process, step.number])
        for run in runs
        for step in run.timeline.steps[1:]
        if not step.compile_s
        and step.wall_s > 0
        and before.get((step.process, step.number), 0.0) > 0
    )
    count = len(ratios)
    if count < MIN_ROUNDS:
        return "too few quiet steps to compare their time"
    # The order statistics between which the median lies 98 times in a hundred, by the normal
    # approximation of the binomial.
    half = math.ceil(2.326 * math.sqrt(count) / 2)
    bounds = max(0, count // 2 - half), min(count - 1, (count - 1) // 2 + half)
    change, *ends = (math.expm1(x) for x in (median(ratios), *(ratios[at] for at in bounds)))
    if ends[1] - ends[0] > UNRESOLVED:
        return "step time not resolved by one run each"
    return f"step {change:+.0%} [{ends[0]:+.0%}, {ends[1]:+.0%}], one run each"


def measure_costs(
    baseline: ExecutedState, runs: Sequence[ExecutedState]
) -> tuple[ProofFigure, ...]:
    """Measure guards, synchronisations and memory."""
    costs = [
        find_worst("guards of a call", baseline, runs, _sum_guard_time, "µs"),
        find_worst("synchronisations a step", baseline, runs, _compute_syncs),
        find_worst(
            "host memory",
            baseline,
            runs,
            lambda run: run.receipt.memory and run.receipt.memory.host_peak_bytes,
            "bytes",
        ),
    ]
    return tuple(cost for cost in costs if cost.before is not None and cost.after is not None)


def _sum_guard_time(run: ExecutedState) -> float | None:
    times = [frame.guard_eval_us for frame in run.receipt.compile.frames_detail]
    known = [value for value in times if value is not None]
    return sum(known) if known else None


def _compute_syncs(run: ExecutedState) -> float | None:
    """Compute the synchronisations of a step: of the sampled steps, which are not as many in each
    run: none with a compile is sampled."""
    section = run.receipt.syncs
    if section is None or not section.sampled_steps:
        return None
    return round(sum(line.count for line in section.lines) / section.sampled_steps, 1)
