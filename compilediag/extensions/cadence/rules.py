"""Rules CD304 and CD305: what makes periodic steps slow, as far as one run shows.

A run in which everything happens at once cannot separate the costs of a collision: the cadence
probe can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from statistics import median

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.extensions.cadence.attribution import list_quiet, make_baseline
from compilediag.extensions.cadence.samples import VariantEvidence, collect_evidence
from compilediag.rules.make_finding import make_finding
from compilediag.timeline.timeline import Timeline

CHANCE = 0.05
"""Probability that recompiles which the groups have nothing to do with all lie in their steps."""

MIN_IN_A_ROW = 4
"""Recompiles at equal distances; three alone are evenly spaced too often."""

MIN_FIRINGS = 3
MIN_SHARE = 0.05
"""Of a usual step: a metric that costs less is not worth a line."""

NEAR_PERIODS = 3
"""Periods before and after a firing whose quiet steps it is compared with."""


def find_cadence_recompiles(timeline: Timeline) -> Iterable[Finding]:
    """CD304: the recompiles lie in the steps in which declared groups fire, or, where none does
    that, at equal distances."""
    lead = timeline.lead
    compiled = {
        event.step
        for event in timeline.compiles
        if event.recompile and event.recompile.produced and event.process == lead
    }
    if not compiled or (not timeline.cadences and len(compiled) < MIN_IN_A_ROW):
        return
    evidence = collect_evidence(timeline)
    # The first step compiles anyway.
    busy = {step for step in evidence.firing_steps if step > 0}
    if busy and _are_in_firings(compiled, busy, evidence):
        for group in evidence.groups:
            fires = [step for step in group.fires if step > 0]
            parts = {step: (step, *group.get_rest(step)) for step in fires}
            hits = [step for step in fires if not compiled.isdisjoint(parts[step])]
            at = {step for hit in hits for step in parts[hit]}
            if hits and _is_compilation(at, evidence):
                firings = len(fires)
                yield make_finding(
                    timeline,
                    "CD304",
                    f"{len(hits)} of {firings} firings of `{group.name}` are slow because torch "
                    "compiles",
                    "remove the cause of the recompiles in these steps; the metric itself is not "
                    "what is slow",
                    variable=group.name,
                    count=len(hits),
                    steps=hits,
                    evidence={
                        "every": group.every,
                        "firings": firings,
                        "compile_s": _sum_compile_s(at, evidence),
                    },
                )
        return
    rhythm = _find_even_run(sorted(compiled))
    if rhythm:
        every = rhythm[1] - rhythm[0]
        yield make_finding(
            timeline,
            "CD304",
            f"torch compiles again every {every} steps: the slow steps are compilation",
            "remove the cause of the recompiles in these steps, whatever else is done in them",
            count=len(rhythm),
            steps=rhythm,
            evidence={"every": every, "compile_s": _sum_compile_s(rhythm, evidence)},
        )


def _are_in_firings(compiled: set[int], fires: set[int], evidence: VariantEvidence) -> bool:
    """True if every recompile from the first firing on is in a step with a firing, and by chance
    they would not all be."""
    since = min(fires)
    later = [step for step in compiled if step >= since]
    steps = [sample.number for sample in evidence.samples if sample.number >= since]
    if not later or not steps or not fires.issuperset(later):
        return False
    share = len(fires.intersection(steps)) / len(steps)
    return share ** len(later) <= CHANCE


def _is_compilation(steps: Collection[int], evidence: VariantEvidence) -> bool:
    """True if compiling takes most of what these steps take more than the others do."""
    quiet = list_quiet(evidence, evidence.firing_steps, 0)
    usual_s = median(sample.work_s for sample in quiet) if quiet else 0.0
    at = [sample for sample in evidence.samples if sample.number in steps]
    compile_s = sum(sample.compile_s for sample in at)
    return compile_s > sum(max(0.0, sample.work_s - usual_s) for sample in at)


def _sum_compile_s(steps: Collection[int], evidence: VariantEvidence) -> float:
    return sum(event.seconds for event in evidence.compiles if event.step in steps)


def _find_even_run(steps: Sequence[int]) -> list[int]:
    """Find the longest run of neighbours at one distance of two steps or more; empty when it is
    short or leaves more recompiles out than it holds."""
    best: list[int] = []
    run: list[int] = []
    for step in steps:
        if len(run) >= 2 and step - run[-1] != run[1] - run[0]:
            run = [run[-1]]
        run.append(step)
        if len(run) > len(best):
            best = list(run)
    spaced = len(best) >= MIN_IN_A_ROW and best[1] - best[0] >= 2
    return best if spaced and 2 * len(best) > len(steps) else []


def find_cadence_costs(timeline: Timeline) -> Iterable[Finding]:
    """CD305: what a declared group costs each time it fires alone and nothing compiles."""
    if not timeline.cadences:
        return
    evidence = collect_evidence(timeline)
    for group in evidence.groups:
        others = {s for other in evidence.groups if other.name != group.name for s in other.fires}
        alone = set(group.fires).difference(others, evidence.compiled_steps)
        fired = [step for step in evidence.samples if step.number in alone]
        baseline = make_baseline(
            [(step.number, step.work_s) for step in list_quiet(evidence, evidence.firing_steps, 0)],
            max(1, NEAR_PERIODS * group.every),
        )
        if len(fired) >= MIN_FIRINGS and baseline is not None:
            extra_s = median(baseline.compute_excess(step.number, step.work_s) for step in fired)
            if extra_s <= max(baseline.compute_bound(len(fired)), MIN_SHARE * baseline.median):
                continue
            yield make_finding(
                timeline,
                "CD305",
                f"`{group.name}` costs {extra_s * 1e3:.1f} ms each time it fires, without any "
                "compile",
                "fire it less often, or make it cheaper; the cadence probe shows what collisions "
                "add",
                variable=group.name,
                count=len(fired),
                steps=(step.number for step in fired),
                cost_s=extra_s * len(fired),
                evidence={"every": group.every, "firings": len(fired), "extra_s": extra_s},
            )


RULES: tuple[Rule, ...] = (find_cadence_recompiles, find_cadence_costs)
