"""The cost of a change: seconds, guards, synchronisations and memory. Reported, and not judged:
another machine has others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median

from compilediag.certify.points import ExecutedState, JudgedPoint
from compilediag.compare.intervals import MIN_ROUNDS
from compilediag.diagnosis.figures.caches import list_earlier_hits
from compilediag.diagnosis.figures.steps import sum_measured
from compilediag.receipt.schema.compiles import ProofFigure
from compilediag.rules.make_finding import format_count

UNRESOLVED = 1.0  #: Width of the interval of the step time's change from which it says nothing.


def make_figure(
    name: str, before: float | None, after: float | None, unit: str = ""
) -> ProofFigure:
    """Make a figure as receipts have it, whatever kind of number it is."""
    before, after = (None if number is None else float(number) for number in (before, after))
    return ProofFigure(name, before, after, unit)


def state_cost(before: ExecutedState, after: ExecutedState) -> JudgedPoint:
    """State what the change costs or saves: seconds of compiling, and of steps with an interval
    where there are enough; guards, synchronisations and memory."""
    figures = [
        make_figure(name, measure(before), measure(after), unit)
        for (name, unit), measure in _MEASURES.items()
    ]
    hits = [list_earlier_hits(state.receipt.caches) for state in (before, after)]
    counts = [None if found is None else len(found) for found in hits]
    is_alike = counts[0] == counts[1] is not None
    known = [
        figure
        for figure in figures
        if (is_alike or figure.name not in _COMPILING)
        if figure.after is not None and (figure.unit == "s" or figure.before is not None)
    ]
    sentence = _format_interval(before, after)
    compiling = next((its for its in known if its.name == "compile" and its.before), None)
    if compiling is not None:
        sentence += f"; compile {compiling.before:.3g} → {compiling.after:.3g} s"
    if not is_alike and None not in counts:
        told = f"{format_count(counts[0] or 0, 'hit')} of compile caches before, {counts[1]} after"
        sentence += f"; seconds of compiling are not comparable: {told}"
    return JudgedPoint("cost", "stated", sentence, tuple(known))


def _compute_step_time(run: ExecutedState) -> float | None:
    """Compute the median seconds of the steps in which nothing compiled, past the first."""
    quiet = [step.wall_s for step in run.timeline.steps[1:] if step.compile_s == 0]
    return median(quiet) if quiet else None


def _format_interval(baseline: ExecutedState, run: ExecutedState) -> str:
    """Format the change of the step time between steps of one number, where there are enough."""
    before = {(s.process, s.number): s.wall_s for s in baseline.timeline.steps if not s.compile_s}
    ratios = sorted(
        math.log(step.wall_s / before[step.process, step.number])
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
    if ends[0] < 0 < ends[1]:
        return f"step time within {ends[0]:+.0%} and {ends[1]:+.0%}: not resolved by one run each"
    return f"step {change:+.0%} [{ends[0]:+.0%}, {ends[1]:+.0%}], one run each"


def _compute_syncs(run: ExecutedState) -> float | None:
    """Compute the synchronisations of a step: of the sampled steps, which are not as many in each
    run: none with a compile is sampled."""
    section = run.receipt.syncs
    if section is None or not section.sampled_steps:
        return None
    return round(sum(line.count for line in section.lines) / section.sampled_steps, 1)


_MEASURES: Mapping[tuple[str, str], Callable[[ExecutedState], float | None]] = {
    ("compile", "s"): lambda run: run.receipt.compile.time_s.total,
    ("first compiles", "s"): lambda run: run.receipt.compile.time_s.first_compile,
    ("step", "s"): _compute_step_time,
    ("guards of a call", "µs"): lambda run: sum_measured(
        frame.guard_eval_us for frame in run.receipt.compile.frames_detail
    ),
    ("synchronisations a step", ""): _compute_syncs,
    ("host memory", "bytes"): lambda run: run.receipt.memory and run.receipt.memory.host_peak_bytes,
}
"""Names of figures and their units."""

_COMPILING = ("compile", "first compiles")
"""Those that depend on what was in the caches."""
