"""Buckets for the sizes in a receipt: per callable, beside the usual rules of thumb, and as the
code that a program needs.

The invocations in the receipt give the sizes with their counts; where there are none, the
recompiles give the sizes alone. Pure.
"""

from __future__ import annotations

import ast
import keyword
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from compilediag.json_document import Document
from compilediag.receipt.schema.record import Record, record_from
from compilediag.rules.changes import expression_of
from compilediag.timeline.invocations import varying_sizes
from compilediag_harness.shapes.buckets import evaluate, multiples_of, plan, powers_of_two
from compilediag_harness.shapes.grids import plan_grid

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import EnteredAt
    from compilediag.receipt.schema.invocations import VaryingSizesRecord
    from compilediag.receipt.schema.receipt import Receipt


STEP = 8
"""A rule of thumb that the plan is compared with: buckets at its multiples."""


class PlanLimits(NamedTuple):
    """Limits that a plan must keep to."""

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
    """The sizes that a `FixedShape` pads to now."""

    axes: tuple[str, ...]
    buckets: tuple[tuple[int, ...], ...]
    """Of each axis."""


class PlanRecord(Record, frozen=True, kw_only=True):
    """One callable whose sizes change."""

    name: str
    file: str | None
    line: int | None
    held_by: str | None
    """The expression that the program calls it by, "self.model"; None where that is not known."""
    called_at: str | None
    """Where it does, "train.py:36"."""
    dims: tuple[tuple[str, ...], ...]
    """Each size that changes, by the places that have it: "obs:0" is dim 0 of argument `obs`."""
    sizes: tuple[tuple[int, ...], ...]
    """Distinct combinations, parallel to `dims`."""
    counts: tuple[int, ...] | None
    """Calls of each; null where they are not known: the sizes are those of recompiles then."""
    complete: bool
    """False: the run made more calls than were looked at."""
    other_calls: int
    fixed: FixedSizes | None
    """Of a callable that pads already."""
    padded_calls: int
    """Calls among them at sizes that a `FixedShape` had padded to."""
    buckets: tuple[int, ...] | None
    """Where one size changes."""
    grid: tuple[tuple[int, ...], tuple[int, ...]] | None
    """Where two sizes change independently; with more, there is no plan."""
    alternatives: tuple[Alternative, ...]
    """The plan first."""

    @property
    def calls(self) -> dict[tuple[int, ...], int]:
        """Calls by the sizes that change; one each, where they are not known."""
        return dict(zip(self.sizes, self.counts or [1] * len(self.sizes), strict=True))

    @property
    def planned(self) -> tuple[tuple[int, ...], ...]:
        """The planned sizes of each axis."""
        return self.grid or (self.buckets or (),)


class PlanDocument(Document, frozen=True, kw_only=True):
    """The output of `plan --json`."""

    plans: tuple[PlanRecord, ...]


def bucket_plans(receipt: Receipt, limits: PlanLimits) -> tuple[PlanRecord, ...]:
    """Make a plan for each callable whose sizes change, those called most first. What a
    `FixedShape` wraps is planned by the sizes of the batches that came, not by those it padded them
    to.

    Raises:
        BucketsImpossible: the limits leave no bucket.
    """
    found = [*_from_fixed(receipt, limits), *_from_calls(receipt, limits)]
    if not found and receipt.shapes is None:
        found = [*_from_recompiles(receipt, limits)]
    # The call of the program's own by which each frame was first compiled, where it calls that
    # frame and not something that does: its arguments are those of the frame then.
    calls: dict[tuple[str | None, int | None], EnteredAt] = {}
    for event in receipt.compile.events:
        if event.entered_at is not None and event.entered_at.arguments:
            calls.setdefault((event.frame.file, event.frame.line), event.entered_at)
    for at, item in enumerate(found):
        call = calls.get((item.file, item.line))
        tree = None if call is None else expression_of(call.text)
        # `self.model` of "self.model(x)"; nothing where it cannot be assigned to.
        held_by = tree.func if isinstance(tree, ast.Call) else None
        if call is not None and isinstance(held_by, (ast.Name, ast.Attribute)):
            place = f"{call.file}:{call.line}"
            found[at] = replace(item, held_by=ast.unparse(held_by), called_at=place)
    return tuple(sorted(found, key=lambda item: -sum(item.calls.values())))


def _from_fixed(receipt: Receipt, limits: PlanLimits) -> Iterator[PlanRecord]:
    for item in () if receipt.shapes is None else receipt.shapes.fixed:
        asked = item.asked
        if asked is None or len(asked.dims) != len(item.axes) or not any(map(all, asked.sizes)):
            continue
        found = _planned(item.name, item.file, item.line, asked, limits)
        rows = found.alternatives
        if rows and item.padding_waste_fraction is not None:
            now = Alternative("as it ran", len(item.sizes), item.padding_waste_fraction)
            rows = (rows[0], now, *rows[1:])
        yield replace(found, fixed=FixedSizes(item.axes, item.buckets), alternatives=rows)


def _from_calls(receipt: Receipt, limits: PlanLimits) -> Iterator[PlanRecord]:
    for item in receipt.invocations:
        if item.padded_calls >= item.calls > 0:
            continue  # at the sizes of a FixedShape, which is planned by the batches passed to it
        if item.varying is not None:
            found = _planned(item.name, item.file, item.line, item.varying, limits)
            yield replace(found, complete=item.complete, padded_calls=item.padded_calls)


def _from_recompiles(receipt: Receipt, limits: PlanLimits) -> Iterator[PlanRecord]:
    """Plan by the sizes that recompiles met, and those they were compared with."""
    shapes: dict[tuple[str, str, int], dict[str, None]] = {}
    for event in receipt.compile.events:
        frame = event.frame
        texts = shapes.setdefault((frame.function, frame.file, frame.line), {})
        sizes = [each for each in event.causes if each.kind == "size"]
        # The shapes of the arguments that made it compile: "obs=[8, 16], mask=[8]".
        before = ", ".join(f"{each.variable}={each.expected}" for each in sizes if each.expected)
        after = ", ".join(f"{each.variable}={each.actual}" for each in sizes if each.actual)
        texts |= dict.fromkeys(filter(None, (before, after)))
    for (function, file, line), texts in shapes.items():
        varying = varying_sizes((text, 1) for text in texts)
        if varying is not None:
            yield replace(_planned(function, file, line, varying, limits), counts=None)


def _planned(
    name: str, file: str | None, line: int | None, varying: VaryingSizesRecord, limits: PlanLimits
) -> PlanRecord:
    # Invariant: `dims`, `sizes`, `counts` and `other_calls` have the same names in both records.
    found = record_from(
        PlanRecord,
        varying,
        name=name,
        file=file,
        line=line,
        held_by=None,
        called_at=None,
        complete=True,
        fixed=None,
        padded_calls=0,
        buckets=None,
        grid=None,
        alternatives=(),
    )
    if len(varying.dims) == 2:
        pairs = {(one, other): count for (one, other), count in found.calls.items()}
        multiples = (limits.multiple, limits.multiple)
        grid = plan_grid(pairs, limits.graphs, multiples=multiples)
        rows = (Alternative("planned", grid.graphs, grid.waste),)
        return replace(found, grid=(grid.first, grid.second), alternatives=rows)
    if len(varying.dims) != 1:
        return found
    counts = {size[0]: count for size, count in found.calls.items()}
    made = plan(
        counts,
        limits.graphs,
        multiple=limits.multiple,
        cap=limits.cap,
        per_graph_cost=limits.per_graph,
    )
    largest = max(counts) if limits.cap is None else min(max(counts), limits.cap)
    compared = {"planned": made, "one size": evaluate(counts, made.buckets[-1:])}
    usual = {
        "powers of two": powers_of_two(largest),
        f"multiples of {STEP}": multiples_of(STEP, largest),
    }
    for rule, every in usual.items():
        sizes = tuple(size for size in every if limits.cap is None or size <= limits.cap)
        if sizes:
            compared[rule] = evaluate(counts, sizes)
    rows = (Alternative(rule, len(each.buckets), each.waste) for rule, each in compared.items())
    return replace(found, buckets=made.buckets, alternatives=tuple(rows))


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


def histogram(
    counts: Mapping[int, int], buckets: Sequence[int], max_ranges: int
) -> tuple[list[SizesOfBucket], Range | None]:
    """Build a histogram of the sizes by bucket, each bucket in equally many ranges, about
    `max_ranges` in all, and those above the largest bucket, which run in several calls; sizes of no
    rows are left out. `counts`: how often each size occurred; `buckets`: ascending."""
    by_bucket: dict[int, dict[int, int]] = {bucket: {} for bucket in buckets}
    above: dict[int, int] = {}
    for size, count in sorted(counts.items()):
        index = bisect_left(buckets, size)
        if size and count:
            (by_bucket[buckets[index]] if index < len(buckets) else above)[size] = count
    sections: list[SizesOfBucket] = []
    for bucket, sizes in by_bucket.items():
        if sizes:
            calls = sum(sizes.values())
            rows = sum(size * count for size, count in sizes.items())
            ranges = _ranges(sizes, max(1, max_ranges // len(buckets)))
            sections.append(SizesOfBucket(bucket, ranges, calls, bucket * calls / rows - 1.0))
    split = Range(min(above), max(above), sum(above.values())) if above else None
    return sections, split


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


# --- the code of a plan -------------------------------------------------------------------------

_AXES = ("rows", "length")
"""Names that the code gives to two sizes that change independently."""


def name_of(item: PlanRecord) -> str:
    """Choose the name that the program calls it by, or would: `policy` for "Policy.forward"."""
    if item.held_by is not None:
        return item.held_by
    name = item.name
    parts = [part for part in name.split(".") if part.isidentifier() and part != "forward"]
    # What torch wraps around a module is called `inner`.
    if not parts or ("<locals>" in name and name.endswith(".inner")):
        return "compiled"
    base = parts[-1].lower() if name.endswith(".forward") else parts[-1]
    return "compiled" if keyword.iskeyword(base) else base


def has_size_twice(item: PlanRecord) -> bool:
    """True where one tensor has a size in two of its dimensions: `FixedShape` takes one."""
    return any(
        len(tensors) < len(places)
        for tensors, places in zip(dimensions_of(item), item.dims, strict=True)
    )


def dimensions_of(item: PlanRecord) -> tuple[dict[str, int], ...]:
    """List for each axis the dimension of each argument that has it."""
    axes = ([place.rpartition(":") for place in places] for places in item.dims)
    return tuple({name: int(dim) for name, _, dim in places} for places in axes)


def settings_of(item: PlanRecord) -> str:
    """Format the arguments of `FixedShape`: `dims={"x": 0}, buckets=[8, 16]`."""
    axes = dimensions_of(item)
    if item.grid is None:
        dims = {tensor: str(dim) for tensor, dim in axes[0].items()}
    else:
        by_tensor: dict[str, dict[str, str]] = {}
        for axis, tensors in zip(_AXES, axes, strict=True):
            for tensor, dim in tensors.items():
                by_tensor.setdefault(tensor, {})[axis] = str(dim)
        dims = {tensor: _literal(of_tensor) for tensor, of_tensor in by_tensor.items()}
    return f"dims={_literal(dims)}, buckets={listed_buckets(_AXES, item.planned)}"


def listed_buckets(axes: Sequence[str], sizes: Sequence[Sequence[int]]) -> str:
    """Format sizes as `FixedShape` takes them."""
    if len(sizes) == 1:
        return str([*sizes[0]])
    return _literal({axis: str([*one]) for axis, one in zip(axes, sizes, strict=False)})


def _literal(items: Mapping[str, str]) -> str:
    """Format a dict as Python writes it, its values as they are."""
    keys = (f'"{key}"' if key.isprintable() and '"' not in key else repr(key) for key in items)
    return "{" + ", ".join(f"{k}: {v}" for k, v in zip(keys, items.values(), strict=True)) + "}"
