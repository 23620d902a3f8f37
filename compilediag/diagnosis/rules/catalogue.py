"""Every rule there is, in the order of the codes' families, and what their findings absorb."""

from __future__ import annotations

from compilediag import extension_points
from compilediag.diagnosis.absorption import Absorption
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules import (
    batch_size,
    breaks,
    combinations,
    compile_caches,
    constraints,
    cudagraph_texts,
    cudagraphs,
    data_loading,
    evidence,
    fixed_shapes,
    forecast,
    guard_cost,
    hooks,
    late_compiles,
    long_compiles,
    nothing_compiled,
    packing,
    rank_waits,
    recompile_fixes,
    recompiles,
    syncs,
    timer_scope,
)


def _rules_of(point: str) -> tuple[Rule, ...]:
    """Those of an extension; none where it is missing."""
    if not extension_points.is_installed(point):
        return ()
    return extension_points.load(point, "diagnosis")


ALL_RULES: tuple[Rule, ...] = (
    *recompile_fixes.RULES,
    *combinations.RULES,
    *hooks.RULES,
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
    *_rules_of(extension_points.PIPELINE_RULES),
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
