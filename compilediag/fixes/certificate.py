"""The certificate of a change: six points, each before → after, from runs without and with it.

A change is proved only where the first four points hold in every run with it: the finding is gone,
nothing else is worse, as much is compiled and called, and the program computes the same. Time and
memory are stated, not judged: another machine has others.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.fixes.changes import NOTHING_DECLARED, Declared
from compilediag.fixes.compiled_as_much import compiled_point
from compilediag.fixes.nothing_worse import others_point
from compilediag.fixes.observed import Observed, Without
from compilediag.fixes.padding import padding_points
from compilediag.fixes.points import Certificate, Figure, Point
from compilediag.fixes.same_answers import answers_point
from compilediag.fixes.stated import cost_point, time_point
from compilediag.fixes.subject import Subject, count_in
from compilediag.receipt.schema.receipt import Receipt


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
        return Certificate((Point("applied", False, f"does not run: {broken}"),), len(runs))
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


def _applied(baseline: Observed, runs: Sequence[Observed], labels: Sequence[str]) -> Point:
    for run in runs:
        if (changed := _changed_file(baseline.receipt, run.receipt)) is not None:
            return Point("applied", False, f"{changed} was edited while changes were tried")
        outcomes = sorted(run.timeline.trial_applied, key=lambda each: each.problem is not None)
        applied = {each.change: each.problem for each in outcomes}
        for label in labels:
            if label not in applied:
                return Point("applied", False, f"not applied: the run never reached {label}")
            if applied[label] is not None:
                return Point("applied", False, f"not applied: {label}: {applied[label]}")
    return Point("applied", True, "the change was applied")


def _changed_file(before: Receipt, after: Receipt) -> str | None:
    """A source file that was another one in a later run. What is imported may differ, and data that
    the program writes."""
    old, new = (each.header.provenance.source_sha256 for each in (before, after))
    both = (name for name in old if name in new and name.endswith(".py"))
    return next((name for name in both if old[name] != new[name]), None)


def _finding(
    subject: Subject, baseline: Observed, runs: Sequence[Observed], declared: Declared
) -> Point:
    """A call that recompiles for two causes does so until the last one is gone: where the program
    has as many recompiles as before, the finding has another name now and is not gone."""
    before = count_in(subject, baseline.receipt)
    after = max(count_in(subject, run.receipt) for run in runs)
    figures = (Figure(subject.unit, before, after),)
    if before == 0:
        return Point("finding", False, "the finding did not reappear without the change", figures)
    allowed = min(declared.left, before - 1)
    if after > allowed:
        remain = f"{after} of {before} {subject.unit} remain"
        return Point("finding", False, remain, figures)
    total = baseline.receipt.compile.recompiles
    now = max(run.receipt.compile.recompiles for run in runs)
    if subject.causes and now >= total and not declared.corrects:
        rest = "calls that ran eager" if declared.unlimits else "the same calls"
        why = f"as many recompiles as before ({total} → {now}): {rest} have other causes"
        return Point("finding", False, why, figures)
    return Point("finding", True, f"{subject.unit} {before} → {after}", figures)
