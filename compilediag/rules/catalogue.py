"""Every rule there is, in the order of the codes' families."""

from __future__ import annotations

from compilediag.findings import Rule
from compilediag.rules import (
    arguments,
    attributes,
    breaks,
    buffers,
    cadences,
    closures,
    cudagraph_texts,
    cudagraphs,
    evidence,
    fixed_shapes,
    forecast,
    hooks,
    loading,
    modes,
    optimizers,
    pipeline,
    sizes,
    steady,
    syncs,
    tensors,
    timers,
    unclassified,
)

ALL_RULES: tuple[Rule, ...] = (
    *closures.RULES,
    *buffers.RULES,
    *attributes.RULES,
    *sizes.RULES,
    *tensors.RULES,
    *arguments.RULES,
    *modes.RULES,
    *hooks.RULES,
    *optimizers.RULES,
    *unclassified.RULES,
    *forecast.RULES,
    *breaks.RULES,
    *syncs.RULES,
    *steady.RULES,
    *fixed_shapes.RULES,
    *timers.RULES,
    *cadences.RULES,
    *loading.RULES,
    *pipeline.RULES,
    *cudagraph_texts.RULES,
    *cudagraphs.RULES,
    *evidence.RULES,
)
