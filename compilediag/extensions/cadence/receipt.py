"""Builds the cadence section of a receipt from the runs and the conclusion of a probe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from compilediag.extensions.cadence.attribution import Cost
from compilediag.extensions.cadence.conclude import Conclusion, GroupResult
from compilediag.extensions.cadence.periods import compute_longest_period
from compilediag.extensions.cadence.plan import Plan, ProbeGroup, Variant
from compilediag.extensions.cadence.samples import VariantEvidence, count_recompiles
from compilediag.receipt.schema.cadence import (
    Attribution,
    CadenceCause,
    CadenceSection,
    GroupRecord,
    Picture,
    VariantRecord,
    VariantSteps,
)
from compilediag.receipt.schema.compiles import VariantCounts
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import make_record

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
