"""The user's settings, checked, and the calls that a batch takes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from compilediag_harness.shapes.buckets import Cost
from compilediag_harness.shapes.dims import Dims, Sizes
from compilediag_harness.shapes.padding import Pad
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.sizes import Splitter, holding


@dataclass(frozen=True, slots=True)
class Settings:
    """What a `FixedShape` was made with."""

    function: Callable[..., Any]
    dims: Dims
    out_dims: Dims | None
    """None: found by running at two sizes."""
    buckets: tuple[Sizes, ...]
    pad: dict[str, Pad]
    mask: str | None
    overflow: Literal["chunk", "error"]
    cost: Cost | None
    clone: bool | None
    """Outputs are copied; None: where they live in memory that the next call writes to."""
    seed_per_chunk: int | None


class Part(NamedTuple):
    """One of the calls that a batch takes."""

    start: int
    """Its first row."""
    sizes: Sizes
    """Real ones."""
    bucket: Sizes
    """The sizes it runs at."""


class Planner:
    """Which calls a batch takes."""

    def __init__(self, settings: Settings) -> None:
        self._axes, self._buckets = settings.dims.axes, settings.buckets
        self._overflow, self._cost = settings.overflow, settings.cost
        self._splitter: Splitter | None = None

    def plan(self, sizes: Sizes) -> list[Part]:
        """The calls of a batch."""
        rows, *rest = sizes
        others = [self._holding(axis, size) for axis, size in enumerate(rest, 1)]
        row_sizes = self._buckets[0]
        bucket = holding(rows, row_sizes)
        if bucket is not None:
            return [Part(0, sizes, (bucket, *others))]
        if self._overflow == "error":
            raise ShapeUnusable(
                f"the batch has {rows} in {self._axes[0]!r}, the largest size is {row_sizes[-1]}: "
                'add a larger bucket, or set overflow="chunk" to split it'
            )
        if self._splitter is None:
            self._splitter = Splitter(row_sizes, self._cost)
        parts: list[Part] = []
        start = 0
        for bucket in self._splitter.split(rows):
            real = min(bucket, rows - start)
            parts.append(Part(start, (real, *rest), (bucket, *others)))
            start += real
        return parts

    def _holding(self, axis: int, size: int) -> int:
        bucket = holding(size, self._buckets[axis])
        if bucket is None:
            raise ShapeUnusable(
                f"the batch has {size} in {self._axes[axis]!r}, the largest size is "
                f"{self._buckets[axis][-1]}: add a larger bucket; only {self._axes[0]!r} can be "
                "split"
            )
        return bucket
