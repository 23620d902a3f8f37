"""Every rule there is, in the order of the codes' families, and what their findings absorb."""

from __future__ import annotations

from compilediag import extension_points
from compilediag.diagnosis.codes import RECOMPILES
from compilediag.diagnosis.findings import Rule
from compilediag.rules import cudagraphs, evidence, modes, nothing_compiled, recompiles, tensors
from compilediag.rules.absorption import Absorption
from compilediag.rules.breaks import rule as breaks
from compilediag.rules.costs import caches, guards, late_compiles, long_compiles, rank_waits
from compilediag.rules.fixed_shapes import rule as fixed_shapes
from compilediag.rules.limits import combinations
from compilediag.rules.limits import rule as limits
from compilediag.rules.objects import advice as objects
from compilediag.rules.sizes import advice as sizes
from compilediag.rules.sizes import constraints
from compilediag.rules.steps import data_loading, packing, syncs, timer_scope
from compilediag.rules.values import advice as values


def _rules_of(point: str) -> tuple[Rule, ...]:
    """Those of an extension; none where it is missing."""
    if not extension_points.is_installed(point):
        return ()
    return extension_points.load(point, "diagnosis")


RECOMPILE_RULES = sorted(
    (*sizes.RULES, *values.RULES, *objects.RULES, *tensors.RULES, *modes.RULES),
    key=lambda rule: RECOMPILES.index(rule.code),
)

ALL_RULES: tuple[Rule, ...] = (
    *RECOMPILE_RULES,
    *combinations.RULES,
    objects.unguarded_change,
    *limits.RULES,
    *breaks.RULES,
    *syncs.RULES,
    *late_compiles.RULES,
    *guards.RULES,
    *rank_waits.RULES,
    *fixed_shapes.RULES,
    *timer_scope.RULES,
    *packing.RULES,
    *_rules_of(extension_points.CADENCE_RULES),
    *data_loading.RULES,
    *_rules_of(extension_points.PIPELINE_RULES),
    *cudagraphs.RULES,
    *long_compiles.RULES,
    *caches.RULES,
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
