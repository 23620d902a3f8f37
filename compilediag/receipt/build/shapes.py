"""The fixed shapes of a receipt."""

from __future__ import annotations

from compilediag.diagnosis.figures.padding import planned_padding
from compilediag.receipt.schema.invocations import VaryingSizesRecord
from compilediag.receipt.schema.record import record_from
from compilediag.receipt.schema.shapes import (
    FixedShapeRecord,
    KneeRecord,
    KneeSize,
    PaddingOutput,
    PaddingRecord,
    RowLoops,
    ShapesSection,
)
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.padding_report import judged
from compilediag_harness.wire import KneeMeasured, PaddingChecked

MAX_KEPT = 64
"""Callables, and sizes of each: the first."""


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
