"""The dimensions of a tensor that changed, from what its guard expected and what it found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from compilediag.diagnosis.findings import Cause
from compilediag.timeline.compiles import Recompile, frame_id_of

_SIZES = re.compile(r"\[([\d*, ]+)\]")


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
    """The dimensions of which one frame of one process was compiled again more than once, each time
    for another constant size: ranks, and frames since a reset, begin anew. The two are parallel."""
    times = Counter(
        (frame_id_of(recompile.compile_id), recompile.process, recompile.epoch, item.dimension)
        for cause, recompile in zip(causes, recompiles, strict=True)
        for item in changed_dimensions(cause.expected, cause.actual)
    )
    return sorted({key[-1] for key, count in times.items() if count > 1})
