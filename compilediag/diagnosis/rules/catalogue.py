"""Every rule there is, in the order of the codes' families, and what their findings absorb."""

from __future__ import annotations

from compilediag.diagnosis.absorption import Absorption
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules import (
    batch_size,
    breaks,
    cadences,
    combinations,
    compile_caches,
    constraints,
    cudagraph_texts,
    cudagraphs,
    data_loading,
    evidence,
    fixed_shapes,
    forecast,
    hooks,
    late_compiles,
    nothing_compiled,
    packing,
    pipeline,
    recompile_fixes,
    recompiles,
    syncs,
    timer_scope,
)

ALL_RULES: tuple[Rule, ...] = (
    *recompile_fixes.RULES,
    *combinations.RULES,
    *hooks.RULES,
    *forecast.RULES,
    *breaks.RULES,
    *syncs.RULES,
    *late_compiles.RULES,
    *fixed_shapes.RULES,
    *batch_size.RULES,
    *timer_scope.RULES,
    *packing.RULES,
    *cadences.RULES,
    *data_loading.RULES,
    *pipeline.RULES,
    *cudagraph_texts.RULES,
    *cudagraphs.RULES,
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
