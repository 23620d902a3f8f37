"""Builds the cadence section of a receipt from the runs and the conclusion of a probe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from compilediag.extensions.cadence.attribution import Cost
from compilediag.extensions.cadence.conclude import Conclusion, GroupResult
from compilediag.extensions.cadence.periods import longest_period
from compilediag.extensions.cadence.plan import Plan, ProbeGroup, Variant
from compilediag.extensions.cadence.samples import VariantEvidence, recompiles_among
from compilediag.receipt.schema.cadence import (
    Attribution,
    CadenceCause,
    CadenceSection,
    CollisionRecord,
    GroupRecord,
    Picture,
    VariantRecord,
    VariantSteps,
)
from compilediag.receipt.schema.compiles import VariantCounts
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import record_from

MAX_CELLS = 120


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


def cadence_section(
    plan: Plan | None,
    groups: Sequence[ProbeGroup],
    runs: Sequence[VariantRun],
    conclusion: Conclusion,
    *,
    fresh_caches: bool,
    notes: Sequence[str],
) -> CadenceSection:
    """Build the section of everything the probe measured; `plan` is None when the configured run
    gave none."""
    after = plan.steps - plan.warmup if plan is not None else None
    by_variant = {run.variant: run for run in runs}
    found, collision = conclusion.collision, None
    if found is not None and plan is not None:
        collision = record_from(
            CollisionRecord,
            found,
            groups=tuple(group.name for group in groups),
            every=plan.every,
            fires=found.cost.after_warmup,
            first_hit=found.cost.first_hit,
            recurring=found.cost.recurring,
        )
    return record_from(
        CadenceSection,
        plan,
        caches="fresh" if fresh_caches else "kept",
        longest_period=None if after is None else longest_period(after),
        groups=tuple(record_from(GroupRecord, group) for group in groups),
        variants=tuple(_variant(run, plan, conclusion) for run in runs),
        attribution=tuple(
            _attribution(item, plan, by_variant) for item in conclusion.groups if plan is not None
        ),
        collision=collision,
        periods=conclusion.periods,
        notes=tuple(notes),
    )


def _variant(run: VariantRun, plan: Plan | None, conclusion: Conclusion) -> VariantRecord:
    receipt, kind = run.receipt, run.variant.kind
    samples = run.evidence.samples
    after = run.evidence.after(plan.warmup if plan is not None else 0)
    walls = [sample.wall_s for sample in after]
    steps = VariantSteps(
        count=len(samples),
        median=median(walls) if walls else None,
        min=min(walls, default=None),
        max=max(walls, default=None),
    )
    picture = None
    if after:
        each = -(-len(walls) // MAX_CELLS)
        cells = (max(walls[start : start + each]) for start in range(0, len(walls), each))
        picture = Picture(first_step=after[0].number, steps_per_cell=each, cells_s=tuple(cells))
    fires = {group.name: run.evidence.fires_of(group.name) for group in run.evidence.groups}
    if kind == "alone":
        found = next((item for item in conclusion.groups if item.group in run.variant.on), None)
        if found is not None and found.cost is not None:
            fires[found.group.name] = found.cost.fires
    return record_from(
        VariantRecord,
        run,
        name=run.variant.name,
        kind=kind,
        groups_on=tuple(group.name for group in run.variant.on),
        settings=dict(run.settings),
        receipt=run.uri,
        status=receipt.status if receipt is not None else None,
        steps=steps if samples else None,
        counts=None if receipt is None else record_from(VariantCounts, receipt.compile),
        fires=fires,
        picture=picture,
    )


def _attribution(
    result: GroupResult, plan: Plan, runs: Mapping[Variant, VariantRun]
) -> Attribution:
    cost = result.cost or Cost((), 0, None, None, None, None, None, {})
    run = runs.get(Variant("alone", (result.group,)))
    # The primary cause of each extra recompile, as the variant's own receipt names it.
    wanted = {(item.process, item.epoch, item.compile_id) for item in cost.extra if item.recompile}
    found: Counter[tuple[str | None, str, str | None, int | None]] = Counter()
    receipt = run.receipt if run is not None else None
    for event in receipt.compile.events if receipt is not None else ():
        if (event.process, event.epoch, event.compile_id) in wanted:
            primary = next((cause for cause in event.causes if cause.primary), None)
            if primary is not None:
                found[primary.rule, primary.variable, primary.file, primary.line] += 1
    causes = tuple(
        CadenceCause(rule=rule, variable=variable, file=file, line=line, recompiles=count)
        for (rule, variable, file, line), count in found.items()
    )
    return record_from(
        Attribution,
        cost,
        group=result.group.name,
        every=plan.every,
        fires=cost.after_warmup,
        first_hit_s=cost.first_hit.total_s if cost.first_hit is not None else None,
        recurring_s=cost.recurring.total_s if cost.recurring is not None else None,
        between_s=result.between_s,
        recompiles=None if cost.compile_s is None else recompiles_among(cost.extra),
        extra_reads=cost.work.get("reads"),
        extra_calls=cost.work.get("calls"),
        causes=causes,
        fires_from=result.fires_from,
        problem=result.problem,
    )
