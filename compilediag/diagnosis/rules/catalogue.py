"""Every rule there is, in the order of the codes' families, and what their findings absorb."""

from __future__ import annotations

from compilediag import extension_points
from compilediag.diagnosis.absorption import Absorption
from compilediag.diagnosis.codes import RECOMPILES
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules import (
    batch_size,
    breaks,
    combinations,
    compile_caches,
    constraints,
    containers,
    cudagraph_texts,
    cudagraphs,
    data_loading,
    evidence,
    fixed_shapes,
    forecast,
    guard_cost,
    late_compiles,
    long_compiles,
    modes,
    nothing_compiled,
    packing,
    pipeline,
    rank_waits,
    recompiles,
    sizes,
    syncs,
    tensors,
    timer_scope,
    values,
)


def _rules_of(point: str) -> tuple[Rule, ...]:
    """Those of an extension; none where it is missing."""
    if not extension_points.is_installed(point):
        return ()
    return extension_points.load(point, "diagnosis")


RECOMPILE_RULES = sorted(
    (*sizes.RULES, *values.RULES, *containers.RULES, *tensors.RULES, *modes.RULES),
    key=lambda rule: RECOMPILES.index(rule.code),
)

ALL_RULES: tuple[Rule, ...] = (
    *RECOMPILE_RULES,
    *combinations.RULES,
    containers.unguarded_change,
    *forecast.RULES,
    *breaks.RULES,
    *syncs.RULES,
    *late_compiles.RULES,
    *guard_cost.RULES,
    *rank_waits.RULES,
    *fixed_shapes.RULES,
    *batch_size.RULES,
    *timer_scope.RULES,
    *packing.RULES,
    *_rules_of(extension_points.CADENCE_RULES),
    *data_loading.RULES,
    *pipeline.RULES,
    *cudagraph_texts.RULES,
    *cudagraphs.RULES,
    *long_compiles.RULES,
    *compile_caches.RULES,
    *nothing_compiled.RULES,
    *evidence.RULES,
)

ALL_ABSORPTIONS: tuple[Absorption, ...] = (
    *recompiles.ABSORBS,
    *breaks.ABSORBS,
    *evidence.ABSORBS,
    *constraints.ABSORBS,
    *nothing_compiled.ABSORBS,
)
"""In the order in which they apply: a frame that ran eager absorbs only if no break explains it."""
