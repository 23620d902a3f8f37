"""What it costs that all groups fire in the same steps, beyond the sum of what each costs alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compilediag.extensions.cadence.diagnosis.attribution import Cost, Split
from compilediag.extensions.cadence.diagnosis.extra_compiles import recompiles_among
from compilediag.extensions.cadence.diagnosis.noise import DRIFT

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
    costs = (together, *alone)
    # By which share the machine was slower for one variant than for another, as steps show in which
    # nothing happens: what costs so much more may be the same work.
    quiet_s = [item.quiet_s for item in costs if item.quiet_s]
    drift = max(DRIFT, max(quiet_s) / min(quiet_s) - 1) if quiet_s else DRIFT
    known = all(item.compile_s is not None for item in costs)
    recompiles = sum(recompiles_among(item.extra) for item in alone)
    return Collision(
        cost=together,
        extra_first_hit_s=_beyond(together.first_hit, [item.first_hit for item in alone], drift),
        extra_recurring_s=_beyond(together.recurring, [item.recurring for item in alone], drift),
        extra_recompiles=recompiles_among(together.extra) - recompiles if known else None,
    )


def _beyond(both: Split | None, alone: Sequence[Split | None], drift: float) -> float | None:
    """The total of both beyond that of the parts; None where a part is missing or noise decides."""
    parts = [part for part in alone if part is not None]
    if both is None or len(parts) != len(alone) or not parts:
        return None
    noise = math.hypot(*(part.noise_s or 0.0 for part in (both, *parts)))
    compile_s = sum(part.compile_s or 0.0 for part in parts)
    metric_s = sum(_metric_s(part) for part in parts)
    beyond = 0.0
    compiling = (both.compile_s or 0.0) - compile_s
    if abs(compiling) > max(COMPILE_DRIFT, drift) * compile_s:
        beyond += compiling
    metric = _metric_s(both) - metric_s
    if abs(metric) > noise + drift * metric_s:
        beyond += metric
    return beyond or None


def _metric_s(split: Split) -> float:
    return (split.metric_s or 0.0) + (split.sync_s or 0.0)
