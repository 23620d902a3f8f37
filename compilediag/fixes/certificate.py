"""The certificate of a change: six points, each before → after, from runs without and with it.

A change is proved only where the first four points hold in every run with it: the finding is gone,
nothing else is worse, as much is compiled and called, and the program computes the same. Time and
memory are stated, not judged: another machine has others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from compilediag.compare.gate.ab import MIN_ROUNDS
from compilediag.fixes.nothing_worse import compiled_point, others_point, padding_points
from compilediag.fixes.observed import (
    Certificate,
    Observed,
    Subject,
    Without,
    count_in,
    proof_figure,
    worst,
)
from compilediag.fixes.same_answers import answers_point
from compilediag.receipt.schema.compiles import ProofPoint
from compilediag.rules.changes import NOTHING_DECLARED, Declared

UNRESOLVED = 1.0
"""Width of the interval of the step time's change from which it says nothing."""


def judge(
    subject: Subject,
    without: Without,
    runs: Sequence[Observed],
    *,
    labels: Sequence[str] = (),
    declared: Declared = NOTHING_DECLARED,
) -> Certificate:
    """The certificate of a change for a finding.

    Args:
        subject: what the finding is about.
        without: the runs without the change.
        runs: those with it, at least one.
        labels: the parts of the change that a run reports when they are applied.
        declared: what the change itself says that it makes different.
    """
    broken = next((run.problem for run in runs if run.problem), None)
    if broken is not None:
        return Certificate((ProofPoint("applied", False, f"does not run: {broken}"),), len(runs))
    points = [
        _applied(without.baseline, runs, labels),
        _finding(subject, without.baseline, runs, declared),
        others_point(subject, without.baseline, runs, declared),
        compiled_point(without.baseline, runs, declared),
        *padding_points(declared.pads, without.baseline.timeline, [run.timeline for run in runs]),
        answers_point(without, runs, declared),
        time_point(without.baseline, runs),
        cost_point(without.baseline, runs),
    ]
    return Certificate(tuple(points), len(runs))


def _applied(baseline: Observed, runs: Sequence[Observed], labels: Sequence[str]) -> ProofPoint:
    # What is imported may differ from run to run, and data that the program writes.
    before = baseline.receipt.header.provenance.source_sha256
    for run in runs:
        for name, digest in run.receipt.header.provenance.source_sha256.items():
            if name.endswith(".py") and before.get(name, digest) != digest:
                return ProofPoint("applied", False, f"{name} was edited while changes were tried")
        outcomes = sorted(run.timeline.trial_applied, key=lambda each: each.problem is not None)
        applied = {each.change: each.problem for each in outcomes}
        for label in labels:
            if label not in applied:
                return ProofPoint("applied", False, f"not applied: the run never reached {label}")
            if applied[label] is not None:
                return ProofPoint("applied", False, f"not applied: {label}: {applied[label]}")
    return ProofPoint("applied", True, "the change was applied")


def _finding(
    subject: Subject, baseline: Observed, runs: Sequence[Observed], declared: Declared
) -> ProofPoint:
    """A call that recompiles for two causes does so until the last one is gone: where the program
    has as many recompiles as before, the finding has another name now and is not gone."""
    before = count_in(subject, baseline.receipt)
    after = max(count_in(subject, run.receipt) for run in runs)
    figures = (proof_figure(subject.unit, before, after),)
    if before == 0:
        return ProofPoint(
            "finding", False, "the finding did not reappear without the change", figures
        )
    allowed = min(declared.left, before - 1)
    if after > allowed:
        remain = f"{after} of {before} {subject.unit} remain"
        return ProofPoint("finding", False, remain, figures)
    total = baseline.receipt.compile.recompiles
    now = max(run.receipt.compile.recompiles for run in runs)
    if subject.causes and now >= total and not declared.corrects:
        rest = "calls that ran eager" if declared.unlimits else "the same calls"
        why = f"as many recompiles as before ({total} → {now}): {rest} have other causes"
        return ProofPoint("finding", False, why, figures)
    return ProofPoint("finding", True, f"{subject.unit} {before} → {after}", figures)


def time_point(baseline: Observed, runs: Sequence[Observed]) -> ProofPoint:
    """Compiling, and steps with an interval where there are enough."""
    figures = [
        worst("compile", baseline, runs, lambda run: run.receipt.compile.time_s.total, "s"),
        worst(
            "first compiles",
            baseline,
            runs,
            lambda run: run.receipt.compile.time_s.first_compile,
            "s",
        ),
        worst("step", baseline, runs, _step, "s"),
    ]
    known = tuple(figure for figure in figures if figure.after is not None)
    return ProofPoint("time", None, _interval(baseline, runs), known)


def _step(run: Observed) -> float | None:
    """Median of the steps in which nothing compiled, past the first."""
    quiet = [step.wall_s for step in run.timeline.steps[1:] if step.compile_s == 0]
    return median(quiet) if quiet else None


def _interval(baseline: Observed, runs: Sequence[Observed]) -> str:
    """The change of the step time between steps of the same number, where there are enough."""
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


def cost_point(baseline: Observed, runs: Sequence[Observed]) -> ProofPoint:
    """Guards, synchronisations, memory."""
    figures = [
        worst("guards of a call", baseline, runs, _guard_time, "µs"),
        worst("synchronisations a step", baseline, runs, _syncs),
        worst(
            "host memory",
            baseline,
            runs,
            lambda run: run.receipt.memory and run.receipt.memory.host_peak_bytes,
            "bytes",
        ),
    ]
    known = tuple(each for each in figures if each.before is not None and each.after is not None)
    return ProofPoint("cost", None, "stated, not judged", known)


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
