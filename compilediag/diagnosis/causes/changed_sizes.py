"""The dimensions of a tensor that changed, from what its guard expected and what it found."""

from __future__ import annotations

import re
from typing import NamedTuple

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
