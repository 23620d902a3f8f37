"""Callables that run at fixed sizes: calls, padding, its proof, and what as many sizes would have
padded, had they been chosen for the calls that came."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from compilediag.receipt.schema.invocations import (
    FixedShapeRecord,
    KneeRecord,
    KneeSize,
    PaddingOutput,
    PaddingRecord,
    RowLoops,
    ShapesSection,
    VaryingSizesRecord,
)
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.buckets import plan
from compilediag_harness.shapes.grids import plan_grid
from compilediag_harness.shapes.padding_report import judged
from compilediag_harness.wire import KneeMeasured, PaddingChecked

MAX_KEPT = 64
"""Callables, and sizes of each: the first."""


MOST_ALIGNED = 8
"""Sizes that are multiples of it, or of a smaller power of two, stay so: kernels like them."""


@dataclass(frozen=True, slots=True)
class PlannedPadding:
    """Other sizes, as many, and what the same calls would run in them."""

    buckets: tuple[tuple[int, ...], ...]
    """Of each axis, ascending."""
    run_elements: int
    """The sizes of the axes multiplied, over all calls, padding included. Never too small."""


def shapes_section(timeline: Timeline) -> ShapesSection | None:
    """None when the program uses no `FixedShape`."""
    lead = timeline.lead
    own = [item for item in timeline.fixed_shapes if item.process == lead]
    if not own:
        return None
    return ShapesSection(fixed=tuple(_record(item) for item in own[:MAX_KEPT]))


def _record(item: FixedShapeRun) -> FixedShapeRecord:
    function, planned = item.function, planned_padding(item)
    return record_from(
        FixedShapeRecord,
        item,
        name=function.function,
        file=function.file or None,
        line=function.line or None,
        sizes=item.sizes[:MAX_KEPT],
        padding_waste_fraction=item.padding_waste,
        planned_buckets=() if planned is None else planned.buckets,
        planned_waste_fraction=(
            planned.run_elements / item.elements - 1.0 if planned and item.elements else None
        ),
        warmed=bool(item.warmed),
        warmup_compiles=sum(warmup.compiles for warmup in item.warmed) if item.warmed else None,
        late_compiles=sum(len(late.begun) for late in item.late) if item.warmed else None,
        padding=None if item.checked is None else _padding(item.checked),
        rows=_rows(item),
        asked=_asked(item),
        cudagraph_calls=item.graph_calls,
        cudagraph_padding_fraction=item.graph_padding,
        knee=None if item.knee is None else _knee(item.knee),
    )


def _knee(event: KneeMeasured) -> KneeRecord:
    columns = (event.sizes, event.call_s, event.slow_call_s, event.problems)
    return record_from(
        KneeRecord,
        event,
        size=event.knee,
        measured=tuple(
            KneeSize(
                size=size,
                call_s=call_s,
                slow_call_s=slow_call_s,
                rows_per_s=size / call_s if call_s else None,
                problem=problem,
            )
            for size, call_s, slow_call_s, problem in zip(*columns, strict=False)
        ),
    )


def _asked(item: FixedShapeRun) -> VaryingSizesRecord | None:
    """What a plan of other sizes needs; None without a batch, and where no sizes were reported."""
    if not item.asked:
        return None
    sizes = sorted(item.asked)
    return VaryingSizesRecord(
        dims=item.dims,
        sizes=tuple(sizes),
        counts=tuple(item.asked[size] for size in sizes),
        other_calls=item.other_batches,
    )


def _padding(checked: PaddingChecked) -> PaddingRecord:
    columns = (checked.outputs, checked.kinds, checked.notes, checked.max_abs, checked.bitwise)
    verdict = judged(checked.kinds, checked.unseen, checked.probes)
    return record_from(
        PaddingRecord,
        checked,
        safe=verdict == "safe",
        verdict=verdict,
        outputs=tuple(
            PaddingOutput(path=path, kind=kind, note=note, max_abs=max_abs, bitwise=bitwise)
            for path, kind, note, max_abs, bitwise in zip(*columns, strict=False)
        ),
    )


def _rows(item: FixedShapeRun) -> RowLoops | None:
    if not item.loops:
        return None
    return RowLoops(
        loops=len(item.loops),
        steps=sum(loop.steps for loop in item.loops),
        computed_rows=sum(loop.row_steps for loop in item.loops),
        active_rows=sum(loop.active_row_steps for loop in item.loops),
        compacted=sum(loop.compacted for loop in item.loops),
    )


def planned_padding(item: FixedShapeRun) -> PlannedPadding | None:
    """None where it cannot be known: without a call, with more than two axes, and where the
    program gave a cost of its own, which padding does not follow.

    A large batch that was split counts as the calls it became; fewer of them may be needed.
    """
    if item.priced or not item.real:
        return None
    if len(item.buckets) == 1:
        counts = {sizes[0]: count for sizes, count in item.real.items()}
        (buckets,) = item.buckets
        found = plan(counts, len(buckets), multiple=_aligned(buckets))
        return PlannedPadding((found.buckets,), found.run_rows)
    if len(item.buckets) == 2:
        return _of_a_grid(item)
    return None


def _of_a_grid(item: FixedShapeRun) -> PlannedPadding:
    first, second = item.buckets
    counts: Counter[tuple[int, int]] = Counter()
    for sizes, count in item.real.items():
        # A length of 0 runs in the smallest bucket, as 1 does.
        counts[max(sizes[0], 1), max(sizes[1], 1)] += count
    grid = plan_grid(
        counts,
        len(first) * len(second),
        multiples=(_aligned(first), _aligned(second)),
    )
    return PlannedPadding((grid.first, grid.second), grid.run_elements)


def _aligned(buckets: Iterable[int]) -> int:
    """The power of two up to MOST_ALIGNED of which all buckets are multiples."""
    return math.gcd(MOST_ALIGNED, *buckets)
