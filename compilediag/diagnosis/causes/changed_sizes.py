"""The dimensions of a tensor that changed, from what its guard expected and what it found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from compilediag.diagnosis.findings import Cause
from compilediag.timeline.compiles import FrameId, Recompile, frame_id_of

_SIZES = re.compile(r"\[([\d*, ]+)\]")

_ALWAYS_CONSTANT = ("0", "1")
_PARAMETER = "._parameters["
"""In the source of what another instance has of another size: its entries are not this one's."""


class Changed(NamedTuple):
    """One dimension that has another size."""

    dimension: int
    before: str
    after: str


def changed_dimensions(expected: str | None, actual: str | None) -> tuple[Changed, ...]:
    """Of `[4, *]` and `[6, 3]` the first: a dynamic dimension ("*") fits every size. Empty where
    the texts are no sizes."""
    before, after = (_SIZES.fullmatch(text or "") for text in (expected, actual))
    if before is None or after is None:
        return ()
    sizes = zip(before[1].split(", "), after[1].split(", "), strict=False)
    return tuple(
        Changed(index, old, new) for index, (old, new) in enumerate(sizes) if old not in ("*", new)
    )


def constant_dimensions(causes: Sequence[Cause], recompiles: Sequence[Recompile]) -> list[int]:
    """The dimensions that torch made a constant once more when it compiled a second size of them,
    though it takes a dimension for dynamic from then on. The two are parallel.

    A cache entry shows it: one that was compiled at an earlier of these recompiles, for another
    size, and demands that size. 0 and 1 are always constants; another module instance has entries
    of its own, which were compiled for the first size.
    """
    found: set[int] = set()
    sizes: dict[FrameId, set[tuple[int, str]]] = {}
    for cause, recompile in zip(causes, recompiles, strict=True):
        frame = FrameId(recompile.process, recompile.epoch, frame_id_of(recompile.compile_id))
        compiled = sizes.setdefault(frame, set())
        # The sizes of the tensor that are all that kept some cache entry from being used again.
        demanded = set[tuple[int, str]]()
        for entry in recompile.entries:
            of_guards = [(g, changed_dimensions(g.expected, g.actual)) for g in entry.guards]
            if all(changed and _PARAMETER not in guard.source for guard, changed in of_guards):
                own = [changed for guard, changed in of_guards if guard.source == cause.source]
                demanded |= {(item.dimension, item.before) for each in own for item in each}
        if not recompile.entries:
            changed = changed_dimensions(cause.expected, cause.actual)
            demanded = {(item.dimension, item.before) for item in changed}
        found |= {dimension for dimension, _ in compiled & demanded}
        compiled |= {
            (item.dimension, item.after)
            for item in changed_dimensions(cause.expected, cause.actual)
            if item.after not in _ALWAYS_CONSTANT
        }
    return sorted(found)
