"""Calls of compiled callables by step, the work that the run did, and padding to fixed sizes.

A step counts where all calls were recorded one by one. Samples are the leading sizes of the first
tensors of the calls: two runs that agree in them have done the same work.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec.structs import replace

from compilediag.receipt.schema.invocations import (
    FixedShapeRecord,
    Invocation,
    KneeRecord,
    KneeSize,
    PaddingOutput,
    PaddingRecord,
    PerStep,
    RowLoops,
    ShapesRecord,
    ShapesSection,
    Throughput,
    VaryingSizesRecord,
)
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.invocations import Calls, ShapeCount, find_varying_sizes
from compilediag.timeline.timeline import Step, Timeline
from compilediag_harness.shapes.buckets import plan
from compilediag_harness.shapes.grids import plan_grid
from compilediag_harness.shapes.padding_report import judge_padding
from compilediag_harness.wire import KneeMeasured, PaddingChecked

OFTEN = 2
"""A callable is called often when no other is called more than this many times as often."""


MAX_SHAPES = 16
"""Combinations of shapes of one callable: the most frequent."""

MAX_CALLABLES = 64

MAX_SIZES = 8192
"""Combinations of changing sizes of one callable: the most frequent."""


def list_invocations(timeline: Timeline) -> list[tuple[Calls, Invocation]]:
    """List the callables of the lead process, in the order they were first called, without the
    sizes that change."""
    process = timeline.lead
    own = [calls for calls in timeline.invocations if calls.process == process]
    steps = _select_whole_steps(timeline, own, process)
    complete = not any(step.unsampled for step in timeline.steps if step.process == process)
    rows: list[tuple[Calls, Invocation]] = []
    for calls in own:
        listed = tuple(shape for shape in calls.shapes if shape.shapes is not None)[:MAX_SHAPES]
        counts = Counter(index for index in _find_step_indexes(calls, steps) if index is not None)
        often = [counts[index] for index in range(len(steps))]
        record = Invocation(
            name=calls.function.function,
            file=calls.function.file or None,
            line=calls.function.line or None,
            calls=calls.calls,
            complete=complete,
            per_step=PerStep(steps=len(steps), min=min(often), median=median(often), max=max(often))
            if steps
            else None,
            shapes=tuple(make_record(ShapesRecord, shape) for shape in listed),
            other_shapes=calls.calls - sum(shape.count for shape in listed),
            samples=_sum_over_calls(calls, lambda shape: shape.samples) if complete else None,
            elements=_sum_over_calls(calls, lambda shape: shape.elements) if complete else None,
            padded_calls=calls.padded,
        )
        rows.append((calls, record))
    return rows


def build_invocations_section(timeline: Timeline) -> tuple[Invocation, ...]:
    """Build the section of the lead process's callables, in the order they were first called, each
    with what a plan of buckets needs; shapes beyond those listed are counted."""
    invocations: list[Invocation] = []
    for calls, record in list_invocations(timeline)[:MAX_CALLABLES]:
        shapes = [(shape.shapes, shape.count) for shape in calls.shapes[:MAX_SIZES]]
        varying = find_varying_sizes(shapes, calls.tensors)
        if varying is not None:
            left_out = sum(shape.count for shape in calls.shapes[MAX_SIZES:])
            varying = replace(varying, other_calls=varying.other_calls + left_out)
        invocations.append(replace(record, varying=varying))
    return tuple(invocations)


def build_throughput_section(timeline: Timeline) -> Throughput | None:
    """Build the throughput section; None when there was neither a step nor a call with a tensor."""
    lead = timeline.lead
    walls = [step.wall_s for step in timeline.steps if step.process == lead]
    work = compute_work(timeline)
    wall_s = sum(walls)
    steps_per_s = len(walls) / wall_s if wall_s > 0.0 else None
    if work is None and steps_per_s is None:
        return None
    return replace(work or Throughput(), steps_per_s=steps_per_s)


def compute_work(timeline: Timeline) -> Throughput | None:
    """Compute the work of the run by one callable: the first that was called of those that were
    called often, which is the model and not what follows it. None where it is not known."""
    figures = [
        (calls, record)
        for calls, record in list_invocations(timeline)
        if (record.samples if record.complete else any(calls.samples_at))
    ]
    if not figures:
        return None
    most = max(calls.calls for calls, _ in figures)
    calls, model = next(pair for pair in figures if OFTEN * pair[0].calls >= most)
    steps = _select_whole_steps(timeline, [calls], calls.process)
    indexes = _find_step_indexes(calls, steps)
    if model.complete:
        wall_s = sum(step.wall_s for step in steps)
        counted = zip(indexes, calls.samples_at, strict=False)
        samples = sum(count or 0 for index, count in counted if index is not None)
        return Throughput(
            callable=model.name,
            samples=model.samples,
            elements=model.elements,
            samples_per_s=samples / wall_s if samples and wall_s > 0.0 else None,
        )
    # The work of all steps, from those that were sampled: known where each of these was given the
    # same, and nothing compiled in the others, which may have been given something else.
    throughput = Throughput(callable=model.name, from_steps=len(steps))
    every = [step for step in timeline.steps if step.process == calls.process]
    if any(step.unsampled and step.compile_s for step in every):
        return throughput
    samples, elements = (
        _sum_over_steps(indexes, values, len(steps), len(every))
        for values in (calls.samples_at, calls.elements_at)
    )
    wall_s = sum(step.wall_s for step in every)
    rate = samples / wall_s if samples is not None and wall_s > 0.0 else None
    return replace(throughput, samples=samples, elements=elements, samples_per_s=rate)


def _sum_over_steps(
    indexes: Sequence[int | None], values: Sequence[int | None], steps: int, every: int
) -> int | None:
    """Sum over `every` step, where each of those that are known has the same; else None."""
    sums: list[int | None] = [0] * steps
    for index, value in zip(indexes, values, strict=False):
        if index is not None:
            before = sums[index]
            sums[index] = None if value is None or before is None else before + value
    only = sums[0] if len(set(sums)) == 1 else None
    return None if only is None else only * every


def _select_whole_steps(timeline: Timeline, calls: Sequence[Calls], process: int) -> Sequence[Step]:
    """Select steps where every call was recorded: all, or those before the first that was not."""
    steps = [step for step in timeline.steps if step.process == process and not step.unsampled]
    if all(own.calls == len(own.at) for own in calls):
        return steps
    last = max((own.at[-1] for own in calls if own.at), default=0.0)
    return [step for step in steps if step.end <= last]


def _find_step_indexes(calls: Calls, steps: Sequence[Step]) -> list[int | None]:
    """Find the index of the step of each recorded call, None outside one. A call at the end of a
    step begins the next."""
    ends = [step.end for step in steps]
    indexes: list[int | None] = []
    for at in calls.at:
        index = bisect_right(ends, at)
        inside = index < len(steps) and at >= steps[index].end - steps[index].wall_s
        indexes.append(index if inside else None)
    return indexes


def _sum_over_calls(calls: Calls, size: Callable[[ShapeCount], int | None]) -> int | None:
    total = 0
    for shape in calls.shapes:
        one = size(shape)
        if one is None:
            return None
        total += one * shape.count
    return total


MAX_FIXED_SHAPES = 64
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


def build_shapes_section(timeline: Timeline) -> ShapesSection | None:
    """Build the section of `FixedShape`s; None when the program uses none."""
    lead = timeline.lead
    own = [shape for shape in timeline.fixed_shapes if shape.process == lead]
    if not own:
        return None
    return ShapesSection(fixed=tuple(_make_fixed_record(shape) for shape in own[:MAX_FIXED_SHAPES]))


def _make_fixed_record(fixed_shape: FixedShapeRun) -> FixedShapeRecord:
    function, planned = fixed_shape.function, plan_padding(fixed_shape)
    rows, requested = None, None
    if fixed_shape.loops:
        rows = RowLoops(
            loops=len(fixed_shape.loops),
            steps=sum(loop.steps for loop in fixed_shape.loops),
            computed_rows=sum(loop.row_steps for loop in fixed_shape.loops),
            active_rows=sum(loop.active_row_steps for loop in fixed_shape.loops),
            compacted=sum(loop.compacted for loop in fixed_shape.loops),
        )
    if fixed_shape.requested:
        # What a plan of other sizes needs.
        sizes = tuple(sorted(fixed_shape.requested))
        counts = tuple(fixed_shape.requested[size] for size in sizes)
        requested = VaryingSizesRecord(
            dims=fixed_shape.dims, sizes=sizes, counts=counts, other_calls=fixed_shape.other_batches
        )
    return make_record(
        FixedShapeRecord,
        fixed_shape,
        name=function.function,
        file=function.file or None,
        line=function.line or None,
        sizes=fixed_shape.sizes[:MAX_FIXED_SHAPES],
        padding_waste_fraction=fixed_shape.padding_waste,
        planned_buckets=() if planned is None else planned.buckets,
        planned_waste_fraction=(
            planned.run_elements / fixed_shape.elements - 1.0
            if planned and fixed_shape.elements
            else None
        ),
        warmed=bool(fixed_shape.warmed),
        warmup_compiles=sum(warmup.compiles for warmup in fixed_shape.warmed)
        if fixed_shape.warmed
        else None,
        late_compiles=sum(len(late.begun) for late in fixed_shape.late)
        if fixed_shape.warmed
        else None,
        padding=None if fixed_shape.checked is None else _make_padding_record(fixed_shape.checked),
        rows=rows,
        requested=requested,
        cudagraph_calls=fixed_shape.graph_calls,
        cudagraph_padding_fraction=fixed_shape.graph_padding,
        knee=None if fixed_shape.knee is None else _make_knee_record(fixed_shape.knee),
    )


def _make_knee_record(event: KneeMeasured) -> KneeRecord:
    columns = (event.sizes, event.call_s, event.slow_call_s, event.problems)
    return make_record(
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


def _make_padding_record(checked: PaddingChecked) -> PaddingRecord:
    columns = (checked.outputs, checked.kinds, checked.notes, checked.max_abs, checked.bitwise)
    verdict = judge_padding(checked.kinds, checked.unseen, checked.probes)
    return make_record(
        PaddingRecord,
        checked,
        safe=verdict == "safe",
        verdict=verdict,
        outputs=tuple(
            PaddingOutput(path=path, kind=kind, note=note, max_abs=max_abs, bitwise=bitwise)
            for path, kind, note, max_abs, bitwise in zip(*columns, strict=False)
        ),
    )


def plan_padding(fixed_shape: FixedShapeRun) -> PlannedPadding | None:
    """Plan as many other sizes for the calls that came, and count what those would run in them;
    None without a call, with more than two axes, and where the program gave a cost of its own. A
    large batch that was split counts as the calls it became."""
    if fixed_shape.priced or not fixed_shape.real:
        return None
    if len(fixed_shape.buckets) == 1:
        counts = {sizes[0]: count for sizes, count in fixed_shape.real.items()}
        (buckets,) = fixed_shape.buckets
        planned = plan(counts, len(buckets), multiple=_compute_alignment(buckets))
        return PlannedPadding((planned.buckets,), planned.run_rows)
    if len(fixed_shape.buckets) != 2:
        return None
    first, second = fixed_shape.buckets
    pairs: Counter[tuple[int, int]] = Counter()
    for sizes, count in fixed_shape.real.items():
        # A length of 0 runs in the smallest bucket, as 1 does.
        pairs[max(sizes[0], 1), max(sizes[1], 1)] += count
    multiples = _compute_alignment(first), _compute_alignment(second)
    grid = plan_grid(pairs, len(first) * len(second), multiples=multiples)
    return PlannedPadding((grid.first, grid.second), grid.run_elements)


def _compute_alignment(buckets: Iterable[int]) -> int:
    """Compute the power of two up to MOST_ALIGNED of which all buckets are multiples."""
    return math.gcd(MOST_ALIGNED, *buckets)
