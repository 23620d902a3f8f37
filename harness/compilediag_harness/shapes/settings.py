"""Settings of a `FixedShape`, checked, and the plan of the calls that a batch takes with them."""

from __future__ import annotations

import functools
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

from compilediag_harness.shapes.buckets import MIN_SIZE, Cost, list_multiples, list_powers_of_two
from compilediag_harness.shapes.dims import Dims, ShapeUnusable, Sizes
from compilediag_harness.shapes.padding import Pad

AUTO = "auto"
CALL_SHARE = 8
"""Without measured costs a call costs its rows and this part of the largest size: a kernel launch
is not free."""

EXACT_CALLS = 16
"""A batch of up to so many largest sizes is split exactly."""

_RULE = re.compile(r"(?:(powers_of_two)|multiples_of_(\d+)):(\d+)")


@dataclass(frozen=True, slots=True)
class FixedShapeSettings:
    """The arguments that a `FixedShape` was made with."""

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
    """Plans the calls that a batch takes. A large one is split into the cheapest sizes that
    together hold it: 520 rows on 8, 64 and 512 are 512 and 8.

    Of equal cost, fewer calls. Of a batch of many times the largest size whole calls of the size
    that is cheapest a row are taken out first; the rest is exact.
    """

    def __init__(self, settings: FixedShapeSettings) -> None:
        self._settings, self._axes = settings, settings.dims.axes
        # By rows held: the least cost, its number of calls, and one of its sizes.
        self._least: list[tuple[float, int]] = [(0.0, 0)]
        self._choice = [0]

    def plan_calls(self, sizes: Sizes) -> list[Part]:
        """Plan the calls of a batch.

        Raises:
            ShapeUnusable: no size holds it, or one of the sizes to split it has no known cost.
        """
        rows, *rest = sizes
        row_sizes, *other_sizes = self._settings.buckets
        others: list[int] = []
        for axis, (size, fixed) in enumerate(zip(rest, other_sizes, strict=True), 1):
            if (bucket := find_holding_size(size, fixed)) is None:
                raise ShapeUnusable(
                    f"the batch has {size} in {self._axes[axis]!r}, the largest size is "
                    f"{fixed[-1]}: add a larger bucket; only {self._axes[0]!r} can be split"
                )
            others.append(bucket)
        bucket = find_holding_size(rows, row_sizes)
        if bucket is not None:
            return [Part(0, sizes, (bucket, *others))]
        if self._settings.overflow == "error":
            raise ShapeUnusable(
                f"the batch has {rows} in {self._axes[0]!r}, the largest size is {row_sizes[-1]}: "
                'add a larger bucket, or set overflow="chunk" to split it'
            )
        parts: list[Part] = []
        start = 0
        for bucket in self._split_rows(rows):
            real = min(bucket, rows - start)
            parts.append(Part(start, (real, *rest), (bucket, *others)))
            start += real
        return parts

    def _split_rows(self, rows: int) -> list[int]:
        """Split rows into the sizes of calls, the largest first."""
        prices = self._prices
        largest, cheapest = max(prices), min(prices, key=lambda size: (prices[size] / size, -size))
        whole = max(0, -(-(rows - EXACT_CALLS * largest) // cheapest))
        chosen = [cheapest] * whole
        rest = rows - whole * cheapest
        least, choice = self._least, self._choice
        for held in range(len(least), rest + 1):  # an unbounded knapsack, stored between calls
            best, taken = (math.inf, 0), 0
            for size, price in prices.items():
                before = least[max(held - size, 0)]
                after = (before[0] + price, before[1] + 1)
                if after < best or (after == best and size > taken):
                    best, taken = after, size
            least.append(best)
            choice.append(taken)
        while rest > 0:
            chosen.append(choice[rest])
            rest -= choice[rest]
        return sorted(chosen, reverse=True)

    @functools.cached_property
    def _prices(self) -> dict[int, float]:
        sizes, given = self._settings.buckets[0], self._settings.cost
        cost: Any = given
        if given is None:
            return {size: size + sizes[-1] / CALL_SHARE for size in sizes}
        prices: dict[int, float] = {}
        for size in sizes:
            price: Any = cost.get(size) if isinstance(given, Mapping) else cost(size)
            if price is None or not 0.0 < price < math.inf:
                raise ShapeUnusable(
                    f"the cost of size {size} is {price}: it must be a number above 0"
                )
            prices[size] = float(price)
        return prices


def read_buckets(given: Any, axes: Sequence[str]) -> tuple[tuple[int, ...], ...] | None:
    """Read the sizes of each axis, ascending; None for "auto".

    Raises:
        ShapeUnusable: an axis has no sizes, or they are no ascending integers from `MIN_SIZE` on.
    """
    if isinstance(given, str) and given == AUTO:
        return None
    if isinstance(given, Mapping):
        by_axis = cast(Mapping[Any, Any], given)
        if surplus := [str(axis) for axis in by_axis if axis not in axes]:
            raise ShapeUnusable(f"buckets names {surplus[0]!r}, which is not an axis of dims")
        if missing := [axis for axis in axes if axis not in by_axis]:
            raise ShapeUnusable(f"buckets has no sizes for the axis {missing[0]!r}")
        return tuple(_read_sizes(by_axis[axis], axis) for axis in axes)
    if len(axes) > 1:
        named = ", ".join(f'"{axis}": [...]' for axis in axes)
        raise ShapeUnusable(f"dims has several axes: give sizes for each, buckets={{{named}}}")
    return (_read_sizes(given, axes[0]),)


def _read_sizes(given: Any, axis: str) -> tuple[int, ...]:
    of = f"buckets of {axis!r}"
    if isinstance(given, str):
        match = _RULE.fullmatch(given)
        if match is None or int(match[3]) < MIN_SIZE or match[2] in ("0", "1"):
            raise ShapeUnusable(
                f'{of} is {given!r}: write "powers_of_two:512", "multiples_of_8:512", a list of '
                'sizes, or "auto" for one axis'
            )
        largest = int(match[3])
        return list_powers_of_two(largest) if match[1] else list_multiples(int(match[2]), largest)
    if not isinstance(given, Iterable):
        raise ShapeUnusable(f"{of} must be a list of sizes such as [8, 64, 512], not {given!r}")
    sizes = tuple(cast(Iterable[Any], given))
    if not sizes:
        raise ShapeUnusable(f"{of} is empty: name at least one size, such as [64]")
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool) or size < MIN_SIZE:
            raise ShapeUnusable(
                f"{of} holds {size!r}: a size is an integer from {MIN_SIZE} on (torch compiles "
                "0 and 1 on their own)"
            )
    if any(after <= before for before, after in pairwise(sizes)):
        raise ShapeUnusable(f"{of} must ascend without repeats: {sorted(set(sizes))}")
    return sizes


def find_holding_size(size: int, sizes: Sequence[int]) -> int | None:
    """Find the smallest of `sizes`, which ascend, that holds `size`; None when none does."""
    index = bisect_left(sizes, size)
    return sizes[index] if index < len(sizes) else None
