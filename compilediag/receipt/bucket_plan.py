"""Buckets for the sizes that a receipt knows: per callable, against the usual rules of thumb.

Pure: the receipt's ledger of calls gives the sizes with their counts; where there is none, the
recompiles give the sizes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from compilediag.timeline.call_sizes import VaryingSizes, varying_sizes
from compilediag_harness.shapes.buckets import (
    BucketPlan,
    evaluate,
    multiples_of,
    plan,
    powers_of_two,
)
from compilediag_harness.shapes.grids import GridPlan, plan_grid

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent
    from compilediag.receipt.schema.receipt import Receipt

STEP = 8
"""The rule of thumb that the plan is compared with: multiples of it."""

_RULE = "CD105"


class Limits(NamedTuple):
    """What a plan must keep to."""

    graphs: int = 8
    """Most buckets, or most cells of a grid."""
    multiple: int = 1
    cap: int | None = None
    per_graph: float = 0.0
    """Padded rows that one more bucket must save."""


class Alternative(NamedTuple):
    """A rule of thumb, or the plan itself."""

    name: str
    graphs: int
    """In which a call would run."""
    waste: float
    """Padding as a share of the rows."""


class FixedSizes(NamedTuple):
    """What a `FixedShape` pads to now."""

    axes: tuple[str, ...]
    buckets: tuple[tuple[int, ...], ...]
    """Of each axis."""


class SizePlan(NamedTuple):
    """One callable whose sizes change."""

    name: str
    file: str | None
    line: int | None
    varying: VaryingSizes
    counted: bool
    """False: the sizes are those of recompiles, each counted once; how often they come is not
    known."""
    buckets: BucketPlan | None
    """Where one size changes."""
    grid: GridPlan | None
    """Where two sizes change independently; with more, there is no plan."""
    alternatives: tuple[Alternative, ...]
    """The plan first."""
    complete: bool = True
    """False: the run made more calls than were looked at."""
    fixed: FixedSizes | None = None
    """Of a callable that pads already."""
    padded_calls: int = 0
    """Calls among them whose sizes are those that a `FixedShape` had padded to."""

    @property
    def counts(self) -> dict[int, int]:
        """Calls by the size that changes, where it is one."""
        return _first_sizes(self.varying)


def plans_of(receipt: Receipt, limits: Limits) -> tuple[SizePlan, ...]:
    """A plan for each callable whose sizes change, those called most first. What a `FixedShape`
    wraps is planned by the sizes of the batches that came, not by those it padded them to.

    Raises:
        BucketsImpossible: the limits leave no bucket.
    """
    found = [*_from_fixed(receipt, limits), *_from_calls(receipt, limits)]
    if not found and receipt.shapes is None:
        found = list(_from_recompiles(receipt, limits))
    return tuple(sorted(found, key=lambda item: -sum(item.varying.counts)))


def spelled(item: SizePlan) -> dict[str, object]:
    """One plan, ready for JSON."""
    varying, grid = item.varying, item.grid
    return {
        "name": item.name,
        "file": item.file,
        "line": item.line,
        "dims": varying.dims,
        "sizes": varying.sizes,
        "counts": varying.counts if item.counted else None,
        "complete": item.complete,
        "other_calls": varying.other_calls,
        "fixed": None if item.fixed is None else item.fixed._asdict(),
        "padded_calls": item.padded_calls,
        "buckets": None if item.buckets is None else item.buckets.buckets,
        "grid": None if grid is None else (grid.first, grid.second),
        "alternatives": [row._asdict() for row in item.alternatives],
    }


def _from_fixed(receipt: Receipt, limits: Limits) -> Iterator[SizePlan]:
    for item in () if receipt.shapes is None else receipt.shapes.fixed:
        asked = item.asked
        if asked is None or len(asked.dims) != len(item.axes) or not any(map(all, asked.sizes)):
            continue
        varying = VaryingSizes(asked.dims, asked.sizes, asked.counts, asked.other_calls)
        found = _planned(item.name, item.file, item.line, varying, limits, counted=True)
        now = (
            []
            if item.padding_waste_fraction is None
            else [Alternative("as it ran", len(item.sizes), item.padding_waste_fraction)]
        )
        first, *others = found.alternatives or (None,)
        yield found._replace(
            fixed=FixedSizes(item.axes, item.buckets),
            alternatives=() if first is None else (first, *now, *others),
        )


def _from_calls(receipt: Receipt, limits: Limits) -> Iterator[SizePlan]:
    for item in receipt.invocations:
        if item.padded_calls >= item.calls > 0:
            continue  # the sizes are those of a FixedShape, which is planned by what it was given
        told = item.varying
        if told is not None:
            varying = VaryingSizes(told.dims, told.sizes, told.counts, told.other_calls)
        else:  # a receipt of before sizes were kept has the most frequent shapes
            shapes = [(shape.shapes, shape.count) for shape in item.shapes]
            varying = varying_sizes([*shapes, (None, item.other_shapes)])
        if varying is not None:
            found = _planned(item.name, item.file, item.line, varying, limits, counted=True)
            yield found._replace(complete=item.complete, padded_calls=item.padded_calls)


def _from_recompiles(receipt: Receipt, limits: Limits) -> Iterator[SizePlan]:
    """The sizes that recompiles met, and those they were compared with."""
    seen: dict[tuple[str, str, int], dict[str, None]] = {}
    for event in receipt.compile.events:
        frame = event.frame
        texts = seen.setdefault((frame.function, frame.file, frame.line), {})
        for which in ("expected", "actual"):
            text = _shapes_of(event, which)
            if text:
                texts[text] = None
    for (function, file, line), texts in seen.items():
        varying = varying_sizes((text, 1) for text in texts)
        if varying is not None:
            yield _planned(function, file, line, varying, limits, counted=False)


def _shapes_of(event: CompileEvent, which: str) -> str:
    """The shapes of the arguments that made a recompile: "obs=[8, 16], mask=[8]"."""
    return ", ".join(
        f"{cause.variable}={getattr(cause, which)}"
        for cause in event.causes
        if cause.rule == _RULE and cause.kind == "size" and getattr(cause, which)
    )


def _planned(
    name: str,
    file: str | None,
    line: int | None,
    varying: VaryingSizes,
    limits: Limits,
    *,
    counted: bool,
) -> SizePlan:
    buckets, grid, alternatives = None, None, ()
    dims = len(varying.dims)
    if dims == 1:
        buckets, alternatives = _one_size(_first_sizes(varying), limits)
    elif dims == 2:
        pairs = zip(varying.sizes, varying.counts, strict=True)
        grid = plan_grid(
            {(one, other): count for (one, other), count in pairs},
            limits.graphs,
            multiples=(limits.multiple, limits.multiple),
        )
        alternatives = (Alternative("planned", grid.graphs, grid.waste),)
    return SizePlan(name, file, line, varying, counted, buckets, grid, alternatives)


def _first_sizes(varying: VaryingSizes) -> dict[int, int]:
    counts: dict[int, int] = {}
    for sizes, count in zip(varying.sizes, varying.counts, strict=True):
        counts[sizes[0]] = counts.get(sizes[0], 0) + count
    return counts


def _one_size(
    counts: Mapping[int, int], limits: Limits
) -> tuple[BucketPlan, tuple[Alternative, ...]]:
    found = plan(
        counts,
        limits.graphs,
        multiple=limits.multiple,
        cap=limits.cap,
        per_graph_cost=limits.per_graph,
    )
    largest = max(counts) if limits.cap is None else min(max(counts), limits.cap)
    usual = {
        "one size": found.buckets[-1:],
        "powers of two": _within(powers_of_two(largest), limits.cap),
        f"multiples of {STEP}": _within(multiples_of(STEP, largest), limits.cap),
    }
    judged = {name: evaluate(counts, sizes) for name, sizes in usual.items() if sizes}
    told = {"planned": found, **judged}
    return found, tuple(
        Alternative(name, len(item.buckets), item.waste) for name, item in told.items()
    )


def _within(sizes: tuple[int, ...], cap: int | None) -> tuple[int, ...]:
    return tuple(size for size in sizes if cap is None or size <= cap)
