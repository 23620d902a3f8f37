"""What it costs that all groups fire in the same steps, beyond the sum of what each costs alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compilediag.diagnosis.cadence.attribution import Cost, Split
from compilediag.diagnosis.cadence.extra_compiles import recompiles_among
from compilediag.diagnosis.cadence.noise import DRIFT

COMPILE_DRIFT = 0.25
"""The same compile may differ by this share between two processes."""


@dataclass(frozen=True, slots=True)
class Collision:
    """All groups together. Extras are against the sum of the groups alone; negative: cheaper.
    None: not to be had, or within the noise."""

    cost: Cost
    extra_first_hit_s: float | None
    extra_recurring_s: float | None
    extra_recompiles: int | None


def collide(together: Cost, alone: Sequence[Cost]) -> Collision:
    """The collision against its parts."""
    drift = _drift([item.quiet_s for item in (together, *alone) if item.quiet_s])
    firsts = [item.first_hit for item in alone]
    laters = [item.recurring for item in alone]
    known = all(item.compile_s is not None for item in (together, *alone))
    recompiles = sum(recompiles_among(item.extra) for item in alone)
    return Collision(
        cost=together,
        extra_first_hit_s=_beyond(together.first_hit, firsts, drift),
        extra_recurring_s=_beyond(together.recurring, laters, drift),
        extra_recompiles=recompiles_among(together.extra) - recompiles if known else None,
    )


def _drift(quiet_s: Sequence[float]) -> float:
    """By which share the machine was slower for one of the variants than for another, as steps
    tell in which nothing happens: what costs so much more may be the same work."""
    return max(DRIFT, max(quiet_s) / min(quiet_s) - 1) if quiet_s else DRIFT


def _beyond(both: Split | None, parts: Sequence[Split | None], drift: float) -> float | None:
    """The total of both beyond that of the parts; None where a part is missing or noise decides."""
    told = [part for part in parts if part is not None]
    if both is None or len(told) != len(parts) or not parts:
        return None
    noise = math.hypot(*(part.noise_s or 0.0 for part in (both, *told)))
    compile_sum = sum(part.compile_s or 0.0 for part in told)
    metric_sum = sum((part.metric_s or 0.0) + (part.sync_s or 0.0) for part in told)
    compiling = (both.compile_s or 0.0) - compile_sum
    metric = (both.metric_s or 0.0) + (both.sync_s or 0.0) - metric_sum
    beyond = 0.0
    if abs(compiling) > max(COMPILE_DRIFT, drift) * compile_sum:
        beyond += compiling
    if abs(metric) > noise + drift * metric_sum:
        beyond += metric
    return beyond or None
