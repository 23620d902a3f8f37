"""The compiles of one variant that the control did not make: those that its groups caused.

The same frame compiled in the same step, or again for the same printed reason, is the same compile
in both runs; what is left over is the groups' doing. Seconds of compiles are measured, never
inferred from step times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence

from compilediag.timeline.timeline import Compile

_ENTRY = re.compile(r"^\S*/\S*:\s*")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d{6,}")


def extra_compiles(variant: Sequence[Compile], control: Sequence[Compile]) -> tuple[Compile, ...]:
    """Compiles of `variant` without a counterpart in `control`, in time order."""
    left, others = list(variant), list(control)
    for key in (_at_its_step, _for_its_reason):
        left, others = _unmatched(left, others, key)
    return tuple(left)


def _unmatched(
    left: list[Compile], others: list[Compile], key: Callable[[Compile], Hashable]
) -> tuple[list[Compile], list[Compile]]:
    """What remains of both when equal keys are taken away in pairs."""
    waiting: dict[Hashable, list[Compile]] = {}
    for item in others:
        waiting.setdefault(key(item), []).append(item)
    alone: list[Compile] = []
    for item in left:
        partners = waiting.get(key(item))
        if partners:
            partners.pop(0)
        else:
            alone.append(item)
    kept = {id(item) for items in waiting.values() for item in items}
    return alone, [item for item in others if id(item) in kept]


def _at_its_step(item: Compile) -> Hashable:
    return item.frame, item.forward, item.step


def _for_its_reason(item: Compile) -> Hashable:
    reasons = item.recompile.reasons if item.recompile is not None else ()
    first = _NUMBERS.sub("#", _ENTRY.sub("", reasons[0])) if reasons else ""
    return item.frame, item.forward, first


def recompiles_among(compiles: Sequence[Compile]) -> int:
    """Those of them that a failed guard caused and that ended with guarded code."""
    return sum(item.recompile is not None and item.recompile.produced for item in compiles)
