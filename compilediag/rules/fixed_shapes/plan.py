"""Buckets for the sizes in a receipt: per callable, beside the usual rules of thumb, and as the
code that a program needs.

The invocations in the receipt give the sizes with their counts; where there are none, the
recompiles give the sizes alone. Pure.
"""

from __future__ import annotations

import ast
import keyword
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from compilediag.json_document import Document
from compilediag.receipt.schema.record import Record, record_from
from compilediag.timeline.invocations import varying_sizes
from compilediag_harness.shapes.buckets import (
    BucketPlan,
    evaluate,
    multiples_of,
    plan,
    powers_of_two,
)
from compilediag_harness.shapes.grids import GridPlan, plan_grid

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent, EnteredAt
    from compilediag.receipt.schema.invocations import VaryingSizesRecord
    from compilediag.receipt.schema.receipt import Receipt


STEP = 8
"""A rule of thumb that the plan is compared with: buckets at its multiples."""

_RULE = "CD105"


class PlanLimits(NamedTuple):
    """What a plan must keep to."""

    graphs: int = 8
    """Most buckets, or most cells of a grid."""
    multiple: int = 1
    cap: int | None = None
    per_graph: float = 0.0
    """Padded rows that one more bucket must save."""


class Alternative(NamedTuple):
    """The plan itself, or a rule of thumb."""

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


class CallablePlan(NamedTuple):
    """One callable whose sizes change."""

    name: str
    file: str | None
    line: int | None
    varying: VaryingSizesRecord
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
    """Calls among them at sizes that a `FixedShape` had padded to."""
    held_by: str | None = None
    """The expression that the program calls it by, "self.model"; None where that is not known."""
    called_at: str | None = None
    """Where it does, "train.py:36"."""

    @property
    def counts(self) -> dict[int, int]:
        """Calls by the size that changes, where it is one."""
        return _first_sizes(self.varying)


def bucket_plans(receipt: Receipt, limits: PlanLimits) -> tuple[CallablePlan, ...]:
    """A plan for each callable whose sizes change, those called most first. What a `FixedShape`
    wraps is planned by the sizes of the batches that came, not by those it padded them to.

    Raises:
        BucketsImpossible: the limits leave no bucket.
    """
    found = [*_from_fixed(receipt, limits), *_from_calls(receipt, limits)]
    if not found and receipt.shapes is None:
        found = [*_from_recompiles(receipt, limits)]
    calls = _calls_by_place(receipt)
    named = [_with_call(item, calls.get((item.file, item.line))) for item in found]
    return tuple(sorted(named, key=lambda item: -sum(item.varying.counts)))


def _calls_by_place(receipt: Receipt) -> dict[tuple[str | None, int | None], EnteredAt]:
    """The call of the program's own by which each frame was first compiled, where it calls that
    frame and not something that does: its arguments are those of the frame then."""
    found: dict[tuple[str | None, int | None], EnteredAt] = {}
    for event in receipt.compile.events:
        if event.entered_at is not None and event.entered_at.arguments:
            found.setdefault((event.frame.file, event.frame.line), event.entered_at)
    return found


def _with_call(item: CallablePlan, call: EnteredAt | None) -> CallablePlan:
    held_by = None if call is None else _called_expression(call.text)
    if call is None or held_by is None:
        return item
    return item._replace(held_by=held_by, called_at=f"{call.file}:{call.line}")


def _called_expression(text: str) -> str | None:
    """`self.model` of "self.model(x)"; None of what cannot be assigned to."""
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    holds = isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute))
    return ast.unparse(call.func) if holds and isinstance(call, ast.Call) else None


class PlanRecord(Record, frozen=True, kw_only=True):
    """One plan."""

    name: str
    file: str | None
    line: int | None
    held_by: str | None
    called_at: str | None
    dims: tuple[tuple[str, ...], ...]
    """Each size that changes, by the places that have it: "obs:0" is dim 0 of argument `obs`."""
    sizes: tuple[tuple[int, ...], ...]
    """Distinct combinations, parallel to `dims`."""
    counts: tuple[int, ...] | None
    """Calls of each; null where they are not known."""
    complete: bool
    other_calls: int
    fixed: FixedSizes | None
    padded_calls: int
    buckets: tuple[int, ...] | None
    grid: tuple[tuple[int, ...], tuple[int, ...]] | None
    alternatives: tuple[Alternative, ...]


class PlanDocument(Document, frozen=True, kw_only=True):
    """What `plan --json` prints."""

    plans: tuple[PlanRecord, ...]


def document_of(plans: Sequence[CallablePlan]) -> PlanDocument:
    """The plans, for programs."""
    return PlanDocument(schema="compilediag.plan", plans=tuple(map(_record, plans)))


def _record(item: CallablePlan) -> PlanRecord:
    varying, grid = item.varying, item.grid
    return record_from(
        PlanRecord,
        item,
        dims=varying.dims,
        sizes=varying.sizes,
        counts=varying.counts if item.counted else None,
        other_calls=varying.other_calls,
        buckets=None if item.buckets is None else item.buckets.buckets,
        grid=None if grid is None else (grid.first, grid.second),
    )


def _from_fixed(receipt: Receipt, limits: PlanLimits) -> Iterator[CallablePlan]:
    for item in () if receipt.shapes is None else receipt.shapes.fixed:
        asked = item.asked
        if asked is None or len(asked.dims) != len(item.axes) or not any(map(all, asked.sizes)):
            continue
        found = _planned(item.name, item.file, item.line, asked, limits, counted=True)
        now: list[Alternative] = []
        if item.padding_waste_fraction is not None:
            now = [Alternative("as it ran", len(item.sizes), item.padding_waste_fraction)]
        yield found._replace(
            fixed=FixedSizes(item.axes, item.buckets),
            alternatives=(*found.alternatives[:1], *now, *found.alternatives[1:])
            if found.alternatives
            else (),
        )


def _from_calls(receipt: Receipt, limits: PlanLimits) -> Iterator[CallablePlan]:
    for item in receipt.invocations:
        if item.padded_calls >= item.calls > 0:
            continue  # at the sizes of a FixedShape, which is planned by the batches passed to it
        if item.varying is not None:
            varying = item.varying
        else:  # an old receipt has no sizes, only the most frequent shapes
            shapes = [(shape.shapes, shape.count) for shape in item.shapes]
            varying = varying_sizes([*shapes, (None, item.other_shapes)])
        if varying is not None:
            found = _planned(item.name, item.file, item.line, varying, limits, counted=True)
            yield found._replace(complete=item.complete, padded_calls=item.padded_calls)


def _from_recompiles(receipt: Receipt, limits: PlanLimits) -> Iterator[CallablePlan]:
    """The sizes that recompiles met, and those they were compared with."""
    shapes: dict[tuple[str, str, int], dict[str, None]] = {}
    for event in receipt.compile.events:
        frame = event.frame
        texts = shapes.setdefault((frame.function, frame.file, frame.line), {})
        for which in ("expected", "actual"):
            if text := _shapes_of(event, which):
                texts[text] = None
    for (function, file, line), texts in shapes.items():
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
    varying: VaryingSizesRecord,
    limits: PlanLimits,
    *,
    counted: bool,
) -> CallablePlan:
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
    return CallablePlan(name, file, line, varying, counted, buckets, grid, alternatives)


def _first_sizes(varying: VaryingSizesRecord) -> dict[int, int]:
    counts: Counter[int] = Counter()
    for sizes, count in zip(varying.sizes, varying.counts, strict=True):
        counts[sizes[0]] += count
    return dict(counts)


def _one_size(
    counts: Mapping[int, int], limits: PlanLimits
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
    evaluated = {name: evaluate(counts, sizes) for name, sizes in usual.items() if sizes}
    return found, tuple(
        Alternative(name, len(item.buckets), item.waste)
        for name, item in {"planned": found, **evaluated}.items()
    )


def _within(sizes: tuple[int, ...], cap: int | None) -> tuple[int, ...]:
    return tuple(size for size in sizes if cap is None or size <= cap)


# --- the histogram of the sizes ---------------------------------------------------------------


class Range(NamedTuple):
    """Neighbouring sizes."""

    low: int
    high: int
    calls: int


class SizesOfBucket(NamedTuple):
    """The sizes that run in one bucket."""

    bucket: int
    ranges: tuple[Range, ...]
    """Ascending, without gaps, from the smallest size."""
    calls: int
    waste: float
    """Padding as a share of the rows."""


class Histogram(NamedTuple):
    """All sizes of one callable."""

    sections: tuple[SizesOfBucket, ...]
    split: Range | None
    """Batches above the largest bucket, which run in several calls."""


def histogram(counts: Mapping[int, int], buckets: Sequence[int], max_ranges: int) -> Histogram:
    """The sizes by bucket, each bucket in equally many ranges; sizes of no rows are left out.

    Args:
        counts: how often each size occurred.
        buckets: ascending.
        max_ranges: about how many ranges there may be.
    """
    by_bucket: dict[int, dict[int, int]] = {bucket: {} for bucket in buckets}
    above: dict[int, int] = {}
    for size, count in sorted(counts.items()):
        index = bisect_left(buckets, size)
        if size and count:
            (by_bucket[buckets[index]] if index < len(buckets) else above)[size] = count
    each = max(1, max_ranges // len(buckets))
    return Histogram(
        tuple(_section(bucket, sizes, each) for bucket, sizes in by_bucket.items() if sizes),
        Range(min(above), max(above), sum(above.values())) if above else None,
    )


def _section(bucket: int, sizes: Mapping[int, int], max_ranges: int) -> SizesOfBucket:
    calls = sum(sizes.values())
    rows = sum(size * count for size, count in sizes.items())
    return SizesOfBucket(bucket, _ranges(sizes, max_ranges), calls, bucket * calls / rows - 1.0)


def _ranges(sizes: Mapping[int, int], max_ranges: int) -> tuple[Range, ...]:
    low, high = min(sizes), max(sizes)
    width = -(-(high - low + 1) // max_ranges)
    calls = [0] * (-(-(high - low + 1) // width))
    for size, count in sizes.items():
        calls[(size - low) // width] += count
    return tuple(
        Range(low + index * width, min(low + (index + 1) * width - 1, high), count)
        for index, count in enumerate(calls)
    )


_AXES = ("rows", "length")
"""Names that the code gives to two sizes that change independently."""


def name_of(item: CallablePlan) -> str:
    """What the program calls it by, or would: `policy` for "Policy.forward"."""
    return item.held_by or _variable(item.name)


def has_size_twice(item: CallablePlan) -> bool:
    """One tensor has a size in two of its dimensions: `FixedShape` takes one."""
    dims = item.varying.dims
    return any(len(_dimensions(places)) < len(places) for places in dims)


def settings_of(item: CallablePlan) -> str:
    """`dims={"x": 0}, buckets=[8, 16]`."""
    return f"dims={_dims_of(item)}, buckets={buckets_of(item)}"


def buckets_of(item: CallablePlan, axes: Sequence[str] = _AXES) -> str:
    """The planned sizes."""
    return listed_buckets(axes, planned_sizes(item))


def planned_sizes(item: CallablePlan) -> tuple[tuple[int, ...], ...]:
    """Of each axis."""
    if item.grid is not None:
        return item.grid.first, item.grid.second
    return (item.buckets.buckets if item.buckets is not None else (),)


def listed_buckets(axes: Sequence[str], sizes: Sequence[Sequence[int]]) -> str:
    """Sizes as `FixedShape` takes them."""
    if len(sizes) == 1:
        return _listed(sizes[0])
    return _literal({axis: _listed(one) for axis, one in zip(axes, sizes, strict=False)})


def dimensions_of(item: CallablePlan) -> tuple[dict[str, int], ...]:
    """Of each axis, the dimension of each argument that has it."""
    return tuple(_dimensions(places) for places in item.varying.dims)


def _dims_of(item: CallablePlan) -> str:
    axes = dimensions_of(item)
    if item.grid is None:
        return _literal({tensor: str(dim) for tensor, dim in axes[0].items()})
    by_tensor: dict[str, dict[str, str]] = {}
    for axis, tensors in zip(_AXES, axes, strict=True):
        for tensor, dim in tensors.items():
            by_tensor.setdefault(tensor, {})[axis] = str(dim)
    return _literal({tensor: _literal(dims) for tensor, dims in by_tensor.items()})


def _variable(name: str) -> str:
    parts = [part for part in name.split(".") if part.isidentifier() and part != "forward"]
    if "<locals>" in name and name.endswith(".inner"):
        return "compiled"  # what torch wraps around a module
    base = parts[-1].lower() if parts and name.endswith(".forward") else (parts or ["compiled"])[-1]
    return "compiled" if keyword.iskeyword(base) else base


def _dimensions(places: Sequence[str]) -> dict[str, int]:
    parts = (place.rpartition(":") for place in places)
    return {name: int(dim) for name, _, dim in parts}


def _listed(sizes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _literal(items: Mapping[str, str]) -> str:
    """A dict as Python writes it, its values as they are."""
    keys = (f'"{key}"' if key.isprintable() and '"' not in key else repr(key) for key in items)
    return "{" + ", ".join(f"{k}: {v}" for k, v in zip(keys, items.values(), strict=True)) + "}"
