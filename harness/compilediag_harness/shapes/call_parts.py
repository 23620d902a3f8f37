"""What a padded call consists of: the user's settings, the call as it came, its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from compilediag_harness.shapes.dims import Dims
from compilediag_harness.shapes.layouts import Layout
from compilediag_harness.shapes.padding import Pad
from compilediag_harness.shapes.sizes import Cost

Sizes = tuple[int, ...]

Part = tuple[int, Sizes, Sizes]
"""One of the calls that a batch takes: its first row, its real sizes, the sizes it runs at."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for, checked."""

    function: Callable[..., Any]
    dims: Dims
    out_dims: Dims | None
    """None: found out by running at two sizes."""
    buckets: tuple[Sizes, ...]
    pad: dict[str, Pad]
    mask: str | None
    overflow: Literal["chunk", "error"]
    cost: Cost | None
    clone: bool | None
    """Outputs are copied; None: where they live in memory that the next call writes to."""
    seed_per_chunk: int | None


class Call(NamedTuple):
    """One call of the user's."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    layout: Layout
    sizes: Sizes
    """Real size of each axis."""
