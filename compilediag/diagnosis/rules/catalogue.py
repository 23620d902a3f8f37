"""Every rule there is, in the order of the codes' families."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules import (
    batch_size,
    breaks,
    cadences,
    cudagraph_texts,
    cudagraphs,
    data_loading,
    evidence,
    fixed_shapes,
    forecast,
    hooks,
    late_compiles,
    packing,
    pipeline,
    recompile_fixes,
    syncs,
    timer_scope,
)

ALL_RULES: tuple[Rule, ...] = (
    *recompile_fixes.RULES,
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
    *evidence.RULES,
)
