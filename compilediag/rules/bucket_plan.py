"""Buckets for the sizes in a receipt, beside the usual rules of thumb, and as code. The invocations
give the sizes with their counts."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from compilediag.json_document import Document
from compilediag.receipt.schema.record import Record, make_record
from compilediag.rules.changes import parse_callee
from compilediag_harness.shapes.buckets import (
    evaluate_buckets,
    list_multiples,
    list_powers_of_two,
    plan,
)
from compilediag_harness.shapes.grids import plan_grid

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import UserCallRecord
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
    held_by: str | None = None
    """The expression that the program calls it by, "self.model"; None where that is not known."""
    called_at: str | None = None
    """Where it does, "train.py:36"."""
    dims: tuple[tuple[str, ...], ...]
    """Each size that changes, by the places that have it: "obs:0" is dim 0 of argument `obs`."""
    sizes: tuple[tuple[int, ...], ...]
    """Distinct combinations, parallel to `dims`."""
    counts: tuple[int, ...] | None
    """Calls of each; the format allows null, which no plan has any more."""
    complete: bool = True
    """False: the run made more calls than were looked at."""
    other_calls: int
    fixed: FixedSizes | None = None
    """Of a callable that pads already."""
    padded_calls: int = 0
    """Calls among them at sizes that a `FixedShape` had padded to."""
    buckets: tuple[int, ...] | None = None
    """Where one size changes."""
    grid: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Where two sizes change independently; with more, there is no plan."""
    alternatives: tuple[Alternative, ...] = ()
    """The plan first."""

    @property
    def calls(self) -> dict[tuple[int, ...], int]:
        """Calls by the sizes that change."""
        return dict(zip(self.sizes, self.counts or (), strict=True))

    @property
    def planned(self) -> tuple[tuple[int, ...], ...]:
        """The planned sizes of each axis."""
        return self.grid or (self.buckets or (),)


class PlanDocument(Document, frozen=True, kw_only=True):
    """The output of `plan --json`."""

    plans: tuple[PlanRecord, ...]


def make_bucket_plans(receipt: Receipt, limits: PlanLimits) -> tuple[PlanRecord, ...]:
    """Make a plan for each callable whose sizes change, those called most first. What a
    `FixedShape` wraps is planned by the sizes of the batches that came, not by those it padded them
    to.

    Raises:
        BucketsImpossible: the limits leave no bucket.
    """
    records = [*_plan_fixed_shapes(receipt, limits), *_plan_calls(receipt, limits)]
    # The call of the program's own by which each frame was first compiled, where it calls that
    # frame and not something that does: its arguments are those of the frame then.
    calls: dict[tuple[str | None, int | None], UserCallRecord] = {}
    for event in receipt.compile.events:
        if event.entered_at is not None and event.entered_at.arguments:
            calls.setdefault((event.frame.file, event.frame.line), event.entered_at)
    for at, record in enumerate(records):
        call = calls.get((record.file, record.line))
        # Nothing where it cannot be assigned to.
        held_by = None if call is None else parse_callee(call)
        if call is not None and isinstance(held_by, (ast.Name, ast.Attribute)):
            place = f"{call.file}:{call.line}"
            records[at] = replace(record, held_by=ast.unparse(held_by), called_at=place)
    return tuple(sorted(records, key=lambda record: -sum(record.calls.values())))


def _plan_fixed_shapes(receipt: Receipt, limits: PlanLimits) -> Iterator[PlanRecord]:
    for shape in () if receipt.shapes is None else receipt.shapes.fixed:
        requested = shape.requested
        if (
            requested is None
            or len(requested.dims) != len(shape.axes)
            or not any(map(all, requested.sizes))
        ):
            continue
        record = _make_plan(shape.name, shape.file, shape.line, requested, limits)
        rows = record.alternatives
        if rows and shape.padding_waste_fraction is not None:
            now = Alternative("as it ran", len(shape.sizes), shape.padding_waste_fraction)
            rows = (rows[0], now, *rows[1:])
        yield replace(record, fixed=FixedSizes(shape.axes, shape.buckets), alternatives=rows)


def _plan_calls(receipt: Receipt, limits: PlanLimits) -> Iterator[PlanRecord]:
    for row in receipt.invocations:
        if row.padded_calls >= row.calls > 0:
            continue  # at the sizes of a FixedShape, which is planned by the batches passed to it
        if row.varying is not None:
            record = _make_plan(row.name, row.file, row.line, row.varying, limits)
            yield replace(record, complete=row.complete, padded_calls=row.padded_calls)


def _make_plan(
    name: str, file: str | None, line: int | None, varying: VaryingSizesRecord, limits: PlanLimits
) -> PlanRecord:
    # Invariant: `dims`, `sizes`, `counts` and `other_calls` have the same names in both records.
    record = make_record(PlanRecord, varying, name=name, file=file, line=line)
    if len(varying.dims) == 2:
        pairs = {(one, other): count for (one, other), count in record.calls.items()}
        multiples = (limits.multiple, limits.multiple)
        grid = plan_grid(pairs, limits.graphs, multiples=multiples)
        rows = (Alternative("planned", grid.graphs, grid.waste),)
        return replace(record, grid=(grid.first, grid.second), alternatives=rows)
    if len(varying.dims) != 1:
        return record
    counts = {size[0]: count for size, count in record.calls.items()}
    made = plan(
        counts,
        limits.graphs,
        multiple=limits.multiple,
        cap=limits.cap,
        per_graph_cost=limits.per_graph,
    )
    largest = max(counts) if limits.cap is None else min(max(counts), limits.cap)
    plans = {"planned": made, "one size": evaluate_buckets(counts, made.buckets[-1:])}
    usual = {
        "powers of two": list_powers_of_two(largest),
        f"multiples of {STEP}": list_multiples(STEP, largest),
    }
    for rule, every in usual.items():
        sizes = tuple(size for size in every if limits.cap is None or size <= limits.cap)
        if sizes:
            plans[rule] = evaluate_buckets(counts, sizes)
    rows = (Alternative(rule, len(result.buckets), result.waste) for rule, result in plans.items())
    return replace(record, buckets=made.buckets, alternatives=tuple(rows))


# --- the code of a plan -------------------------------------------------------------------------

_AXES = ("rows", "length")
"""Names that the code gives to two sizes that change independently."""


def choose_name(record: PlanRecord) -> str:
    """Choose the name that the program calls it by, or would: `policy` for "Policy.forward"."""
    if record.held_by is not None:
        return record.held_by
    name = record.name
    parts = [part for part in name.split(".") if part.isidentifier() and part != "forward"]
    # What torch wraps around a module is called `inner`.
    if not parts or ("<locals>" in name and name.endswith(".inner")):
        return "compiled"
    base = parts[-1].lower() if name.endswith(".forward") else parts[-1]
    return "compiled" if keyword.iskeyword(base) else base


def find_obstacle(record: PlanRecord) -> str | None:
    """Find why no code can be written: one tensor has a size in two of its dimensions, of which
    `FixedShape` takes one; or a tensor is known by its position, as where calls have fewer."""
    axes = list_dimensions(record)
    if any(len(tensors) < len(its) for tensors, its in zip(axes, record.dims, strict=True)):
        return "one tensor has this size in two dims: name one of them in FixedShape by hand"
    if any(name.isdecimal() for tensors in axes for name in tensors):
        return "a tensor is known by its position: name its argument in FixedShape by hand"
    return None


def list_dimensions(record: PlanRecord) -> tuple[dict[str, int], ...]:
    """List for each axis the dimension of each argument that has it."""
    axes = ([place.rpartition(":") for place in places] for places in record.dims)
    return tuple({name: int(dim) for name, _, dim in places} for places in axes)


def format_settings(record: PlanRecord) -> str:
    """Format the arguments of `FixedShape`: `dims={"x": 0}, buckets=[8, 16]`."""
    axes = list_dimensions(record)
    if record.grid is None:
        dims = {tensor: str(dim) for tensor, dim in axes[0].items()}
    else:
        by_tensor: dict[str, dict[str, str]] = {}
        for axis, tensors in zip(_AXES, axes, strict=True):
            for tensor, dim in tensors.items():
                by_tensor.setdefault(tensor, {})[axis] = str(dim)
        dims = {tensor: _format_dict(of_tensor) for tensor, of_tensor in by_tensor.items()}
    return f"dims={_format_dict(dims)}, buckets={format_buckets(_AXES, record.planned)}"


def format_buckets(axes: Sequence[str], sizes: Sequence[Sequence[int]]) -> str:
    """Format sizes as `FixedShape` takes them."""
    if len(sizes) == 1:
        return str([*sizes[0]])
    return _format_dict({axis: str([*one]) for axis, one in zip(axes, sizes, strict=False)})


def _format_dict(mapping: Mapping[str, str]) -> str:
    """Format a dict as Python writes it, its values as they are."""
    keys = (f'"{key}"' if key.isprintable() and '"' not in key else repr(key) for key in mapping)
    return "{" + ", ".join(f"{k}: {v}" for k, v in zip(keys, mapping.values(), strict=True)) + "}"
