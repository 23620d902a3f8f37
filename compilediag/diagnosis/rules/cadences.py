"""CD304, CD305: what makes periodic steps slow, as far as one run tells.

A run in which everything happens at once cannot take a collision apart: the cadence probe can.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from compilediag.diagnosis.cadence.noise import Baseline, baseline_of
from compilediag.diagnosis.cadence.samples import Evidence, Sample, evidence_of
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Finding, Fix, Rule
from compilediag.timeline.cadence import CadenceGroup
from compilediag.timeline.timeline import Timeline

CHANCE = 0.05
"""Probability that recompiles which the groups have nothing to do with all lie in their steps."""

FEWEST_IN_A_ROW = 4
"""Recompiles at equal distances; three alone are evenly spaced too often."""

FEWEST_FIRINGS = 3
LEAST_SHARE = 0.05
"""Of a usual step: a metric that costs less is not worth a line."""

NEAR_PERIODS = 3
"""Periods before and after a firing whose quiet steps it is compared with."""


def find_cadence_recompiles(timeline: Timeline) -> Iterable[Finding]:
    """CD304: the recompiles lie in the steps in which declared groups fire, or, where none does
    that, at equal distances."""
    process = timeline.lead
    compiled = {
        item.step
        for item in timeline.compiles
        if item.recompile and item.recompile.produced and item.process == process
    }
    if not compiled or (not timeline.cadences and len(compiled) < FEWEST_IN_A_ROW):
        return
    seen = evidence_of(timeline)
    groups = [group for group in seen.groups if _later(group)]
    if groups and _belong(compiled, groups, seen):
        for group in groups:
            hits = [step for step in _later(group) if step in compiled]
            if hits and _is_compilation(hits, seen):
                yield _of_group(group, hits, seen)
        return
    rhythm = _evenly_spaced(sorted(compiled))
    if rhythm:
        yield _of_rhythm(rhythm, seen)


def _later(group: CadenceGroup) -> tuple[int, ...]:
    """The firings after the first step, which compiles anyway."""
    return tuple(step for step in group.fires if step > 0)


def _belong(compiled: set[int], groups: Sequence[CadenceGroup], seen: Evidence) -> bool:
    """Every recompile from the first firing on is in a step with a firing, and by chance they would
    not all be."""
    fires = {step for group in groups for step in _later(group)}
    since = min(fires)
    later = [step for step in compiled if step >= since]
    steps = [sample.number for sample in seen.samples if sample.number >= since]
    if not later or not steps or not fires.issuperset(later):
        return False
    share = len(fires.intersection(steps)) / len(steps)
    return share ** len(later) <= CHANCE


def _is_compilation(steps: Sequence[int], seen: Evidence) -> bool:
    """Compiling takes most of what these steps take more than the others do."""
    usual_s = _usual_s(seen)
    at = [sample for sample in seen.samples if sample.number in set(steps)]
    compile_s = sum(sample.compile_s for sample in at)
    return compile_s > sum(max(0.0, sample.work_s - usual_s) for sample in at)


def _usual_s(seen: Evidence) -> float:
    quiet = _quiet(seen)
    return median(sample.work_s for sample in quiet) if quiet else 0.0


def _quiet(seen: Evidence) -> list[Sample]:
    fires = {step for group in seen.groups for step in group.fires}
    busy = fires.union(seen.compiled_steps)
    return [sample for sample in seen.samples if sample.number not in busy]


def _of_group(group: CadenceGroup, hits: Sequence[int], seen: Evidence) -> Finding:
    firings = _later(group)
    compile_s = _compile_s(hits, seen)
    return _finding(
        "CD304",
        group.name,
        f"{len(hits)} of {len(firings)} firings of `{group.name}` are slow because torch compiles",
        hits,
        "remove the cause of the recompiles in these steps; the metric itself is not what is slow",
        {"every": group.every, "firings": len(firings), "compile_s": compile_s},
    )


def _of_rhythm(steps: Sequence[int], seen: Evidence) -> Finding:
    every = steps[1] - steps[0]
    return _finding(
        "CD304",
        None,
        f"torch compiles again every {every} steps: the slow steps are compilation",
        steps,
        "remove the cause of the recompiles in these steps, whatever else is done in them",
        {"every": every, "compile_s": _compile_s(steps, seen)},
    )


def _compile_s(steps: Sequence[int], seen: Evidence) -> float:
    return sum(item.seconds for item in seen.compiles if item.step in set(steps))


def _evenly_spaced(steps: Sequence[int]) -> list[int]:
    """The longest run of neighbours at one distance of two steps or more; empty when it is short
    or leaves more recompiles out than it holds."""
    best: list[int] = []
    run: list[int] = []
    for step in steps:
        if len(run) >= 2 and step - run[-1] != run[1] - run[0]:
            run = [run[-1]]
        run.append(step)
        if len(run) > len(best):
            best = list(run)
    spaced = len(best) >= FEWEST_IN_A_ROW and best[1] - best[0] >= 2
    return best if spaced and 2 * len(best) > len(steps) else []


def find_cadence_costs(timeline: Timeline) -> Iterable[Finding]:
    """CD305: what a declared group costs each time it fires alone and nothing compiles."""
    if not timeline.cadences:
        return
    seen = evidence_of(timeline)
    for group in seen.groups:
        others = {s for other in seen.groups if other.name != group.name for s in other.fires}
        alone = set(group.fires).difference(others, seen.compiled_steps)
        fired = [sample for sample in seen.samples if sample.number in alone]
        baseline = baseline_of(
            [(sample.number, sample.work_s) for sample in _quiet(seen)],
            max(1, NEAR_PERIODS * group.every),
        )
        if len(fired) >= FEWEST_FIRINGS and baseline is not None:
            yield from _cost(group, fired, baseline)


def _cost(group: CadenceGroup, fired: Sequence[Sample], baseline: Baseline) -> Iterable[Finding]:
    extra_s = median(baseline.excess(sample.number, sample.work_s) for sample in fired)
    if extra_s <= max(baseline.bound(len(fired)), LEAST_SHARE * baseline.median):
        return
    yield _finding(
        "CD305",
        group.name,
        f"`{group.name}` costs {extra_s * 1e3:.1f} ms each time it fires, without any compile",
        [sample.number for sample in fired],
        "fire it less often, or make it cheaper; the cadence probe tells what collisions add",
        {"every": group.every, "firings": len(fired), "extra_s": extra_s},
        cost_s=extra_s * len(fired),
    )


def _finding(
    code: str,
    name: str | None,
    title: str,
    steps: Sequence[int],
    fix: str,
    evidence: dict[str, object],
    cost_s: float | None = None,
) -> Finding:
    register = info(code)
    return Finding(
        rule=code,
        slug=register.slug,
        severity=register.severity,
        confidence="exact",
        family=register.family,
        variable=name,
        title=title,
        location=None,
        ownership="user",
        count=len(steps),
        steps=tuple(steps),
        cost_s=cost_s,
        fix=Fix(fix, register.how),
        evidence=evidence,
    )


RULES: tuple[Rule, ...] = (find_cadence_recompiles, find_cadence_costs)
