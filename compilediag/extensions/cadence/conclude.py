"""The conclusion of a cadence probe, from the evidence of all its variants, and its section of the
receipt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from compilediag.extensions.cadence.attribution import (
    DRIFT,
    WORK,
    Cost,
    QuietSteps,
    attribute_cost,
    compute_standing_cost,
    find_usual_count,
    list_quiet,
    make_baseline,
)
from compilediag.extensions.cadence.periods import compute_longest_period, find_offset, find_periods
from compilediag.extensions.cadence.plan import MIN_FIRES, Plan, ProbeGroup, Variant
from compilediag.extensions.cadence.samples import VariantEvidence, count_recompiles, find_extra
from compilediag.receipt.schema.cadence import (
    Attribution,
    CadenceCause,
    CadenceSection,
    CollisionRecord,
    CostSplit,
    GroupRecord,
    PeriodRecord,
    Picture,
    VariantRecord,
    VariantSteps,
)
from compilediag.receipt.schema.compiles import VariantCounts
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import make_record

MAX_CELLS = 120

COMPILE_DRIFT = 0.25
"""The same compile may differ by this share between two processes."""


def compare_with_sum(together: Cost, alone: Sequence[Cost]) -> dict[str, Any]:
    """Compare the collision with the sum of its parts: the extras of a `CollisionRecord`."""
    costs = (together, *alone)
    # By which share the machine was slower for one variant than for another, as steps show in which
    # nothing happens: what costs so much more may be the same work.
    quiet_s = [cost.quiet_s for cost in costs if cost.quiet_s]
    drift = max(DRIFT, max(quiet_s) / min(quiet_s) - 1) if quiet_s else DRIFT
    known = all(cost.compile_s is not None for cost in costs)
    recompiles = sum(count_recompiles(cost.extra) for cost in alone)
    return {
        "extra_first_hit_s": _subtract([cost.first_hit for cost in costs], drift),
        "extra_recurring_s": _subtract([cost.recurring for cost in costs], drift),
        "extra_recompiles": count_recompiles(together.extra) - recompiles if known else None,
    }


def _subtract(splits: Sequence[CostSplit | None], drift: float) -> float | None:
    """Compute the seconds of the first, which is of all together, beyond those of the parts; None
    if one is missing or noise decides."""
    known = [split for split in splits if split is not None]
    if len(known) < max(len(splits), 2):
        return None
    both, *parts = known
    noise = math.hypot(*(part.noise_s or 0.0 for part in (both, *parts)))
    compile_s = sum(part.compile_s or 0.0 for part in parts)
    metric_s = sum(_get_metric_s(part) for part in parts)
    beyond = 0.0
    compiling = (both.compile_s or 0.0) - compile_s
    if abs(compiling) > max(COMPILE_DRIFT, drift) * compile_s:
        beyond += compiling
    metric = _get_metric_s(both) - metric_s
    if abs(metric) > noise + drift * metric_s:
        beyond += metric
    return beyond or None


def _get_metric_s(split: CostSplit) -> float:
    return (split.metric_s or 0.0) + (split.sync_s or 0.0)


FiresFrom = Literal["told", "step times", "counts", "compiles"]
Runs = Mapping[Variant, VariantEvidence]


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One group and what is known of its cost."""

    group: ProbeGroup
    fires_from: FiresFrom | None
    """How it is known when it fired: recorded by the program ("told"), or found; None: unknown."""
    cost: Cost | None
    between_s: float | None = None
    """Extra seconds of every step that does not fire; None within the noise."""
    problem: str | None = None
    never_fired: bool = False
    """Declared, and `due()` never called or in vain: the input of the probe is wrong."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Everything the probe found."""

    groups: tuple[GroupResult, ...] = ()
    collision: CollisionRecord | None = None
    periods: tuple[PeriodRecord, ...] = ()


def conclude(plan: Plan, groups: Sequence[ProbeGroup], runs: Runs) -> Conclusion:
    """Draw the conclusion from the variants that ran; a missing one costs only what needs it."""
    control = next((runs[v] for v in runs if v.kind == "control"), None)
    results = tuple(_conclude_group(plan, group, runs, control) for group in groups)
    # The rhythms that no group explains: of the control, or of the only variant there is.
    kind = "control" if any(candidate.kind != "configured" for candidate in runs) else "configured"
    periods: list[PeriodRecord] = []
    for variant in [candidate for candidate in runs if candidate.kind == kind][:1]:
        after = runs[variant].select_after(plan.warmup)
        for rhythm in find_periods([sample.wall_s - sample.analysis_s for sample in after]):
            compile_s = sum(after[index].compile_s for index in rhythm.list_steps(len(after)))
            periods.append(
                PeriodRecord(
                    variant=variant.name,
                    every=rhythm.period,
                    first_step=after[rhythm.first].number,
                    count=rhythm.count,
                    extra_s=rhythm.extra_s,
                    compile_s=compile_s,
                )
            )
    return Conclusion(results, _conclude_collision(plan, results, runs, control), tuple(periods))


def _conclude_group(
    plan: Plan, group: ProbeGroup, runs: Runs, control: VariantEvidence | None
) -> GroupResult:
    evidence = runs.get(Variant("alone", (group,)))
    if evidence is None:
        return GroupResult(group, None, None, problem="its variant gave no steps")
    fires, fires_from = find_fires(plan, group, evidence, control)
    cost = attribute_cost(evidence, control, fires, plan.warmup)
    if not fires:
        problem = _explain_no_fires(plan, group, evidence)
        return GroupResult(group, None, cost, problem=problem, never_fired=group.origin == "code")
    problem = None
    if control is None:
        problem = "without the control nobody knows which compiles are its own"
    elif cost.after_warmup < MIN_FIRES:
        problem = f"it fired only {cost.after_warmup} times after warm-up"
    # What the group costs where it does not fire, from every variant it is on or off in.
    on: list[QuietSteps] = []
    off: list[QuietSteps] = []
    for variant, evidence in runs.items():
        is_on = variant.kind == "configured" or group in variant.on
        fired = evidence.firing_steps.union(fires if is_on else ())
        quiet = list_quiet(evidence, fired, plan.warmup)
        baseline = make_baseline([(sample.number, sample.work_s) for sample in quiet], plan.steps)
        if baseline is not None:
            (on if is_on else off).append(baseline)
    return GroupResult(group, fires_from, cost, compute_standing_cost(on, off), problem)


def _explain_no_fires(plan: Plan, group: ProbeGroup, evidence: VariantEvidence) -> str:
    if group.origin != "code":
        return (
            f"no rhythm of {plan.every} steps stands out: a firing costs less than the noise, or "
            "the template does not reach the program"
        )
    declared = next((cadence for cadence in evidence.groups if cadence.name == group.name), None)
    if declared is None:
        return "never fired: the program did not declare it in this variant"
    if declared.shift is None:
        return "never fired: due() was never called, or only inside compiled code"
    return "never fired: due() was called, but with no step at which it could be due"


def find_fires(
    plan: Plan, group: ProbeGroup, evidence: VariantEvidence, control: VariantEvidence | None
) -> tuple[tuple[int, ...], FiresFrom | None]:
    """Find the steps in which a group fired, and how they are known.

    The period is always known. Where it begins is recorded for a group of the code; for a template
    it is found: in the step times; else in what each step does, which is counted and has no noise;
    else from the first compile the control has not.
    """
    recorded = evidence.list_fires(group.name)
    if recorded:
        return recorded, "told"
    after = evidence.select_after(plan.warmup)
    if not after:
        return (), None
    end = after[-1].number + 1
    first = _find_rhythm_start(plan, evidence)
    if first is not None and (control is None or _find_rhythm_start(plan, control) != first):
        return tuple(range(first, end, plan.every)), "step times"
    # The steps that call or read more often than the others, where these are just the ones of a
    # rhythm of the plan's period, and the control has no such steps.
    for name in WORK:
        busy = _find_busy_steps(plan, evidence, name)
        if len(busy) < MIN_FIRES or (control is not None and _find_busy_steps(plan, control, name)):
            continue
        if busy == tuple(range(busy[0], end, plan.every)):
            return busy, "counts"
    extra = find_extra(evidence.compiles, control.compiles) if control is not None else ()
    compiled = next((event.step for event in extra if event.step >= plan.warmup), None)
    if compiled is None:
        return (), None
    return tuple(range(compiled, end, plan.every)), "compiles"


def _find_busy_steps(plan: Plan, evidence: VariantEvidence, name: str) -> tuple[int, ...]:
    counts = [(step.number, getattr(step, name)) for step in evidence.select_after(plan.warmup)]
    usual = find_usual_count(evidence.select_after(plan.warmup), name)
    if usual is None:
        return ()
    return tuple(number for number, count in counts if count is not None and count > usual)


def _find_rhythm_start(plan: Plan, evidence: VariantEvidence) -> int | None:
    """Find the first step after warm-up at which a rhythm of the plan's period stands out."""
    after = evidence.select_after(plan.warmup)
    rhythm = find_offset([sample.work_s for sample in after], plan.every)
    return None if rhythm is None else after[rhythm.first].number


def _conclude_collision(
    plan: Plan, results: Sequence[GroupResult], runs: Runs, control: VariantEvidence | None
) -> CollisionRecord | None:
    variant = next((candidate for candidate in runs if candidate.kind == "collision"), None)
    if variant is None:
        return None
    evidence = runs[variant]
    steps = {step for group in variant.on for step in evidence.list_fires(group.name)}
    for result in results:
        # Found in the group's own variant, where no other one is in the way.
        if result.fires_from not in (None, "told") and result.cost is not None:
            steps.update(result.cost.fires)
    together = attribute_cost(evidence, control, sorted(steps), plan.warmup)
    known = [result.cost for result in results if result.cost is not None]
    extras = compare_with_sum(together, known) if len(known) == len(results) else {}
    return CollisionRecord(
        groups=tuple(group.name for group in variant.on),
        every=plan.every,
        fires=together.after_warmup,
        first_hit=together.first_hit,
        recurring=together.recurring,
        **extras,
    )


# --- the section of the receipt -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VariantRun:
    """One variant that was run."""

    variant: Variant
    settings: Mapping[str, str]
    """What moved the groups: environment variables or arguments."""
    exit_code: int | None
    wall_s: float | None
    evidence: VariantEvidence
    receipt: Receipt | None = None
    uri: str | None = None
    """Path of its receipt from the probe's directory; None when there is none."""
    problem: str | None = None


def build_cadence_section(
    plan: Plan | None,
    groups: Sequence[ProbeGroup],
    runs: Sequence[VariantRun],
    conclusion: Conclusion,
    *,
    fresh_caches: bool,
    notes: Sequence[str],
) -> CadenceSection:
    """Build the section of all the probe measured; `plan`: None if the configured run gave none."""
    after = plan.steps - plan.warmup if plan is not None else None
    by_variant = {run.variant: run for run in runs}
    return make_record(
        CadenceSection,
        plan,
        caches="fresh" if fresh_caches else "kept",
        longest_period=None if after is None else compute_longest_period(after),
        groups=tuple(make_record(GroupRecord, group) for group in groups),
        variants=tuple(_build_variant(run, plan, conclusion) for run in runs),
        attribution=tuple(
            _build_cost(result, plan, by_variant)
            for result in conclusion.groups
            if plan is not None
        ),
        collision=conclusion.collision,
        periods=conclusion.periods,
        notes=tuple(notes),
    )


def _build_variant(run: VariantRun, plan: Plan | None, conclusion: Conclusion) -> VariantRecord:
    receipt, kind = run.receipt, run.variant.kind
    samples = run.evidence.samples
    after = run.evidence.select_after(plan.warmup if plan is not None else 0)
    walls = [sample.wall_s for sample in after]
    steps = VariantSteps(
        count=len(samples),
        median=median(walls) if walls else None,
        min=min(walls, default=None),
        max=max(walls, default=None),
    )
    picture = None
    if after:
        width = -(-len(walls) // MAX_CELLS)
        cells = (max(walls[start : start + width]) for start in range(0, len(walls), width))
        picture = Picture(first_step=after[0].number, steps_per_cell=width, cells_s=tuple(cells))
    fires = {group.name: run.evidence.list_fires(group.name) for group in run.evidence.groups}
    if kind == "alone":
        result = next((entry for entry in conclusion.groups if entry.group in run.variant.on), None)
        if result is not None and result.cost is not None:
            fires[result.group.name] = result.cost.fires
    return make_record(
        VariantRecord,
        run,
        name=run.variant.name,
        kind=kind,
        groups_on=tuple(group.name for group in run.variant.on),
        settings=dict(run.settings),
        receipt=run.uri,
        status=receipt.status if receipt is not None else None,
        steps=steps if samples else None,
        counts=None if receipt is None else make_record(VariantCounts, receipt.compile),
        fires=fires,
        picture=picture,
    )


def _build_cost(result: GroupResult, plan: Plan, runs: Mapping[Variant, VariantRun]) -> Attribution:
    cost = result.cost or Cost((), 0, None, None, None, None, None, {})
    run = runs.get(Variant("alone", (result.group,)))
    # The primary cause of each extra recompile, as the variant's own receipt names it.
    wanted = {
        (event.process, event.epoch, event.compile_id) for event in cost.extra if event.recompile
    }
    counts: Counter[tuple[str | None, str, str | None, int | None]] = Counter()
    receipt = run.receipt if run is not None else None
    for event in receipt.compile.events if receipt is not None else ():
        if (event.process, event.epoch, event.compile_id) in wanted:
            primary = next((cause for cause in event.causes if cause.primary), None)
            if primary is not None:
                counts[primary.rule, primary.variable, primary.file, primary.line] += 1
    causes = tuple(
        CadenceCause(rule=rule, variable=variable, file=file, line=line, recompiles=count)
        for (rule, variable, file, line), count in counts.items()
    )
    return make_record(
        Attribution,
        cost,
        group=result.group.name,
        every=plan.every,
        fires=cost.after_warmup,
        first_hit_s=cost.first_hit.total_s if cost.first_hit is not None else None,
        recurring_s=cost.recurring.total_s if cost.recurring is not None else None,
        between_s=result.between_s,
        recompiles=None if cost.compile_s is None else count_recompiles(cost.extra),
        extra_reads=cost.work.get("reads"),
        extra_calls=cost.work.get("calls"),
        causes=causes,
        fires_from=result.fires_from,
        problem=result.problem,
    )
