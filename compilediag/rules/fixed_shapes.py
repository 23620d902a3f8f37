"""Rules about `FixedShape`: padding that changes results (CD406) or that other sizes would not need
(CD407), rows that are done and still computed (CD408), and compiles after a warm-up (CD302); what
may be tried: a few sizes to pad to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace as replaced

from msgspec.structs import replace

from compilediag.diagnosis.codes import LIMIT, SIZES
from compilediag.diagnosis.figures.invocations import plan_padding
from compilediag.diagnosis.findings import Finding
from compilediag.rules.bucket_plan import (
    Alternative,
    PlanLimits,
    PlanRecord,
    choose_name,
    find_obstacle,
    format_buckets,
    format_settings,
    list_dimensions,
    make_bucket_plans,
)
from compilediag.rules.changes import Edit, ProgramChange
from compilediag.rules.fix_context import FixContext
from compilediag.rules.make_finding import format_count, format_more, make_finding, pick
from compilediag.rules.sizes.advice import MAX_BUCKETS, MAX_WASTE
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.buckets import BucketsImpossible, find_fewest_buckets
from compilediag_harness.shapes.grids import plan_grid
from compilediag_harness.wire import Location, PaddedAxis, PaddedDimension, PaddedFunction

MIN_STEPS = 4
"""Steps of a loop from which on it can be concluded that most of it was wasted."""

WASTED = 0.5
"""Share of the computed rows that were done."""

MIN_CALLS = 16
"""From which on it can be concluded which sizes come."""

PADDED = 0.2
"""Share of what was computed that as many other sizes would not have computed."""

MAX_NAMED = 16
"""Sizes that a fix names."""

_SHOWN = 64
"""Calls and sizes stored in the evidence."""

_FIXES = {
    "contaminated": 'mask padding where rows meet: FixedShape(..., mask="name of an argument")',
    "state": "freeze for padded calls what is updated (module.eval()), or mask what it adds up",
    "reduced": 'reduce over the real rows only: FixedShape(..., mask="name of an argument")',
    "parity": "use the number of real rows (mask.sum()) in place of the padded size",
}


def find_contamination(timeline: Timeline) -> Iterable[Finding]:
    """CD406: a check found results that depend on padding; one finding a callable."""
    for shape in _list_lead_shapes(timeline):
        checked = shape.checked
        if checked is None:
            continue
        rows = zip(checked.outputs, checked.kinds, checked.notes, strict=False)
        harmful = [row for row in rows if row[1] in _FIXES]
        if harmful:
            path, kind, note = harmful[0]
            yield make_finding(
                timeline,
                "CD406",
                f"{path or 'the result'} depends on padding: {note}{format_more(len(harmful))}",
                _FIXES[kind],
                variable=path or None,
                location=_get_function(shape),
                count=len(harmful),
                steps=(checked.step,),
                evidence={
                    "callable": shape.function.function,
                    "outputs": [
                        dict(zip(("path", "kind", "note"), row, strict=True)) for row in harmful
                    ],
                    **pick(checked, "probes", "seeds", "size", "run"),
                },
            )


def find_padding_waste(timeline: Timeline) -> Iterable[Finding]:
    """CD407: sizes of which as many others would have padded far less, for the calls that came."""
    for shape in _list_lead_shapes(timeline):
        planned, calls = plan_padding(shape), sum(shape.real.values())
        if planned is None or calls < MIN_CALLS:
            continue
        if shape.run_elements - planned.run_elements <= PADDED * shape.run_elements:
            continue
        padding = shape.run_elements - shape.elements
        left = planned.run_elements - shape.elements
        what = "rows" if len(shape.buckets) == 1 else "elements"
        named = "planned_buckets of the receipt"
        if sum(len(sizes) for sizes in planned.buckets) <= MAX_NAMED:
            named = format_buckets(shape.axes, planned.buckets)
        yield make_finding(
            timeline,
            "CD407",
            f"{padding} of {shape.run_elements} {what} were padding, and as many other sizes would "
            f"have made it {left}",
            f"choose sizes from those that occur: buckets={named}",
            location=_get_function(shape),
            count=calls,
            evidence={
                "callable": shape.function.function,
                "buckets": [list(sizes) for sizes in shape.buckets],
                "planned_buckets": [list(sizes) for sizes in planned.buckets],
                **pick(shape, "elements", "run_elements"),
                "planned_run_elements": planned.run_elements,
                "calls": [pick(size, "run", "calls", "elements") for size in shape.sizes[:_SHOWN]],
            },
        )


def find_early_exit_waste(timeline: Timeline) -> Iterable[Finding]:
    """CD408: loops over rows in which most of what was computed had been done before."""
    for shape in _list_lead_shapes(timeline):
        loops = [
            loop
            for loop in shape.loops
            if loop.steps >= MIN_STEPS
            and loop.row_steps
            and 1.0 - loop.active_row_steps / loop.row_steps > WASTED
        ]
        if not loops:
            continue
        computed = sum(loop.row_steps for loop in loops)
        active = sum(loop.active_row_steps for loop in loops)
        compaction = all(loop.compaction for loop in loops)
        yield make_finding(
            timeline,
            "CD408",
            f"{computed - active} of {computed} rows were done before they were computed again",
            "add smaller sizes to the buckets, for rows that are left to move to"
            if compaction
            else "let rows that are left move to a smaller size: until_done(..., compaction=True)",
            location=_get_function(shape),
            count=len(loops),
            steps=(loop.step for loop in loops),
            evidence={
                "callable": shape.function.function,
                "computed_rows": computed,
                "active_rows": active,
                "loops": len(loops),
                "steps": sum(loop.steps for loop in loops),
                "compaction": compaction,
                "buckets": [list(sizes) for sizes in shape.buckets],
            },
        )


def find_late_compiles(timeline: Timeline) -> Iterable[Finding]:
    """CD302: calls that compiled or recorded after the warm-up that was to do all of that."""
    for shape in _list_lead_shapes(timeline):
        if not shape.late:
            continue
        begun = [text for event in shape.late for text in event.begun]
        times = format_count(len(begun), "time")
        yield make_finding(
            timeline,
            "CD302",
            f"torch compiled {times} after the warm-up of its fixed sizes",
            "warm it up as it is used: grad mode, training or not, dtype, autocast",
            location=_get_function(shape),
            count=len(begun),
            steps=(event.step for event in shape.late),
            evidence={
                "callable": shape.function.function,
                "begun": begun[:_SHOWN],
                "sizes": [list(event.size) for event in shape.late[:_SHOWN]],
                "run": [list(event.run) for event in shape.late[:_SHOWN]],
            },
        )


def _list_lead_shapes(timeline: Timeline) -> list[FixedShapeRun]:
    """List the `FixedShape`s of the lead process."""
    lead = timeline.lead
    return [shape for shape in timeline.fixed_shapes if shape.process == lead]


def _get_function(shape: FixedShapeRun) -> Location | None:
    """Get the function that it wraps; None where its file is not known."""
    return shape.function if shape.function.file else None


# --- changes ------------------------------------------------------------------------------------

_RULES = SIZES | LIMIT | {"CD403"}
_PADS = (None, 0, 1)
"""The last row again; zeros, and ones: what a mask among the arguments has for padding."""

_RISK = (
    "padded rows are computed too; padding was checked with this run's values, which proves "
    "nothing for others"
)


def propose_bucket_changes(context: FixContext) -> Iterator[ProgramChange]:
    """Propose `FixedShape` with planned sizes."""
    if context.finding.rule in _RULES and context.kind not in ("marking", "padded"):
        plan = _find_plan(context)
        if plan is not None and find_obstacle(plan) is None:
            yield from _propose_padding(context, plan)


def _find_plan(context: FixContext) -> PlanRecord | None:
    """Find the plan of the one function of the finding, with the fewest sizes that pad little, and
    fewer than came."""
    try:
        plans = make_bucket_plans(context.receipt, PlanLimits(MAX_BUCKETS))
    except BucketsImpossible:
        return None
    frames = {(event.frame.file, event.frame.line) for event in context.compiles}
    if place := context.finding.location:
        called = context.receipt.invocations
        here = (place.file, place.function)
        frames |= {(row.file, row.line) for row in called if (row.file, row.name) == here}
    own = [record for record in plans if (record.file, record.line) in frames]
    if len(own) != 1 or own[0].fixed is not None:
        return None
    plan = own[0]
    counts = {sizes: n for sizes, n in plan.calls.items() if all(sizes)}
    most = min(MAX_BUCKETS, len(counts) - 1)
    if most < 1:
        return None
    if plan.buckets is not None:
        made = find_fewest_buckets({size[0]: n for size, n in counts.items()}, most, MAX_WASTE)
        row = Alternative("planned", len(made.buckets), made.waste)
        return replace(plan, buckets=made.buckets, alternatives=(row,))
    if plan.grid is not None:
        grid = plan_grid({(one, other): n for (one, other), n in counts.items()}, most)
        row = Alternative("planned", grid.graphs, grid.waste)
        return replace(plan, grid=(grid.first, grid.second), alternatives=(row,))
    return None


def _propose_padding(context: FixContext, plan: PlanRecord) -> Iterator[ProgramChange]:
    name, settings = choose_name(plan), format_settings(plan)
    axes = tuple(
        PaddedAxis(tuple(PaddedDimension(*dimension) for dimension in dims.items()), sizes)
        for dims, sizes in zip(list_dimensions(plan), plan.planned, strict=True)
    )
    several = len({dimension.argument for axis in axes for dimension in axis.dims}) > 1
    function = Location(plan.file or "", plan.line or 0, plan.name)
    # Where the program calls it by a plain name, in a file of its own, it can be edited.
    file, _, at = (plan.called_at or "").rpartition(":")
    held_by = plan.held_by or ""
    editable = held_by.isidentifier() and at.isdecimal() and context.is_own(file)
    left = plan.alternatives[0].graphs - 1
    for pad in _PADS if several else _PADS[:1]:
        arguments = settings if pad is None else f"{settings}, pad={pad}"
        line = f"{name} = compilediag.FixedShape({name}, {arguments})"
        made = ProgramChange("program", "", _RISK, left=left, pads=(function,), same_as=line)
        if editable:
            edit = Edit(file, int(at), "fixed_shape", (held_by, arguments))
            shown = f"{file}: {line}  # where {name} is compiled"
            yield replaced(made, line=shown, edits=(edit,))
        shown = f"{line}  # where it is compiled"
        yield replaced(made, line=shown, padded=(PaddedFunction(function, axes, pad),))
