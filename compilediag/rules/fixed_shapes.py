"""Rules about `FixedShape`: padding that changes results (CD406) or that other sizes would not need
(CD407), rows that are done and still computed (CD408), and compiles after a warm-up (CD302).

What may be tried: a few sizes to pad to, where sizes vary too much for one graph, and other ones
where padding is most of what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace as replaced

from msgspec.structs import replace

from compilediag.diagnosis.codes import LIMIT, SIZES
from compilediag.diagnosis.figures.invocations import planned_padding
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.receipt.schema.evidence import PaddingEvidence
from compilediag.rules.bucket_plan import (
    Alternative,
    PlanLimits,
    PlanRecord,
    bucket_plans,
    dimensions_of,
    has_size_twice,
    listed_buckets,
    name_of,
    settings_of,
)
from compilediag.rules.case import Case
from compilediag.rules.changes import Change, Edit
from compilediag.rules.make_finding import and_more, make_finding, pick, plural
from compilediag.rules.sizes.advice import MAX_BUCKETS, MAX_WASTE
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.buckets import BucketsImpossible, fewest
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
    for item in _of_lead(timeline):
        checked = item.checked
        if checked is None:
            continue
        rows = zip(checked.outputs, checked.kinds, checked.notes, strict=False)
        harmful = [row for row in rows if row[1] in _FIXES]
        if harmful:
            path, kind, note = harmful[0]
            yield make_finding(
                timeline,
                "CD406",
                f"{path or 'the result'} depends on padding: {note}{and_more(len(harmful))}",
                _FIXES[kind],
                variable=path or None,
                location=_about(item),
                count=len(harmful),
                steps=(checked.step,),
                evidence={
                    "callable": item.function.function,
                    "outputs": [
                        dict(zip(("path", "kind", "note"), row, strict=True)) for row in harmful
                    ],
                    **pick(checked, "probes", "seeds", "size", "run"),
                },
            )


def find_padding_waste(timeline: Timeline) -> Iterable[Finding]:
    """CD407: sizes of which as many others would have padded far less, for the calls that came."""
    for item in _of_lead(timeline):
        planned, calls = planned_padding(item), sum(item.real.values())
        if planned is None or calls < MIN_CALLS:
            continue
        if item.run_elements - planned.run_elements <= PADDED * item.run_elements:
            continue
        padding = item.run_elements - item.elements
        left = planned.run_elements - item.elements
        what = "rows" if len(item.buckets) == 1 else "elements"
        named = "planned_buckets of the receipt"
        if sum(len(sizes) for sizes in planned.buckets) <= MAX_NAMED:
            named = listed_buckets(item.axes, planned.buckets)
        yield make_finding(
            timeline,
            "CD407",
            f"{padding} of {item.run_elements} {what} were padding, and as many other sizes would "
            f"have made it {left}",
            f"choose sizes from those that occur: buckets={named}",
            location=_about(item),
            count=calls,
            evidence={
                "callable": item.function.function,
                "buckets": [list(sizes) for sizes in item.buckets],
                "planned_buckets": [list(sizes) for sizes in planned.buckets],
                **pick(item, "elements", "run_elements"),
                "planned_run_elements": planned.run_elements,
                "calls": [pick(size, "run", "calls", "elements") for size in item.sizes[:_SHOWN]],
            },
        )


def find_early_exit_waste(timeline: Timeline) -> Iterable[Finding]:
    """CD408: loops over rows in which most of what was computed had been done before."""
    for item in _of_lead(timeline):
        loops = [
            loop
            for loop in item.loops
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
            location=_about(item),
            count=len(loops),
            steps=(loop.step for loop in loops),
            evidence={
                "callable": item.function.function,
                "computed_rows": computed,
                "active_rows": active,
                "loops": len(loops),
                "steps": sum(loop.steps for loop in loops),
                "compaction": compaction,
                "buckets": [list(sizes) for sizes in item.buckets],
            },
        )


def find_late_compiles(timeline: Timeline) -> Iterable[Finding]:
    """CD302: calls that compiled or recorded after the warm-up that was to do all of that."""
    for item in _of_lead(timeline):
        if not item.late:
            continue
        begun = [text for event in item.late for text in event.begun]
        yield make_finding(
            timeline,
            "CD302",
            f"torch compiled {plural(len(begun), 'time')} after the warm-up of its fixed sizes",
            "warm it up as it is used: grad mode, training or not, dtype, autocast",
            location=_about(item),
            count=len(begun),
            steps=(event.step for event in item.late),
            evidence={
                "callable": item.function.function,
                "begun": begun[:_SHOWN],
                "sizes": [list(event.size) for event in item.late[:_SHOWN]],
                "run": [list(event.run) for event in item.late[:_SHOWN]],
            },
        )


def _of_lead(timeline: Timeline) -> list[FixedShapeRun]:
    """List the `FixedShape`s of the lead process."""
    lead = timeline.lead
    return [item for item in timeline.fixed_shapes if item.process == lead]


def _about(item: FixedShapeRun) -> Location | None:
    """Get the function that it wraps; None where its file is not known."""
    return item.function if item.function.file else None


RULES: tuple[Rule, ...] = (
    find_contamination,
    find_padding_waste,
    find_early_exit_waste,
    find_late_compiles,
)


# --- changes ------------------------------------------------------------------------------------

_RULES = SIZES | LIMIT | {"CD403"}
_PADS = (None, 0, 1)
"""The last row again; zeros, and ones: what a mask among the arguments has for padding."""

_RISK = (
    "padded rows are computed too; padding was checked with this run's values, which proves "
    "nothing for others"
)
_OTHER_SIZES = "chosen from the batches of this run: others may need more padding"


def bucket_changes(case: Case) -> Iterator[Change]:
    """Propose `FixedShape` with planned sizes, or other sizes for one that is there."""
    if case.finding.rule == "CD407":
        yield from _other_buckets(case)
    elif case.finding.rule in _RULES and case.kind not in ("marking", "padded"):
        plan = _plan_of(case)
        if plan is not None and not has_size_twice(plan):
            yield from _padded(case, plan)


def _plan_of(case: Case) -> PlanRecord | None:
    """Find the plan of the one function of the finding, with the fewest sizes that pad little, and
    fewer than came."""
    try:
        plans = bucket_plans(case.receipt, PlanLimits(MAX_BUCKETS))
    except BucketsImpossible:
        return None
    frames = {(event.frame.file, event.frame.line) for event in case.compiles}
    if place := case.finding.location:
        called = case.receipt.invocations
        here = (place.file, place.function)
        frames |= {(each.file, each.line) for each in called if (each.file, each.name) == here}
    found = [item for item in plans if (item.file, item.line) in frames]
    if len(found) != 1 or found[0].counts is None or found[0].fixed is not None:
        return None
    plan = found[0]
    counts = {sizes: count for sizes, count in plan.calls.items() if all(sizes)}
    most = min(MAX_BUCKETS, len(counts) - 1)
    if most < 1:
        return None
    if plan.buckets is not None:
        made = fewest({size[0]: count for size, count in counts.items()}, most, MAX_WASTE)
        row = Alternative("planned", len(made.buckets), made.waste)
        return replace(plan, buckets=made.buckets, alternatives=(row,))
    if plan.grid is not None:
        grid = plan_grid({(one, other): n for (one, other), n in counts.items()}, most)
        row = Alternative("planned", grid.graphs, grid.waste)
        return replace(plan, grid=(grid.first, grid.second), alternatives=(row,))
    return None


def _padded(case: Case, plan: PlanRecord) -> Iterator[Change]:
    name, settings = name_of(plan), settings_of(plan)
    axes = tuple(
        PaddedAxis(tuple(PaddedDimension(*item) for item in dims.items()), sizes)
        for dims, sizes in zip(dimensions_of(plan), plan.planned, strict=True)
    )
    several = len({item.argument for axis in axes for item in axis.dims}) > 1
    function = Location(plan.file or "", plan.line or 0, plan.name)
    # Where the program calls it by a plain name, in a file of its own, it can be edited.
    file, _, at = (plan.called_at or "").rpartition(":")
    held_by = plan.held_by or ""
    editable = held_by.isidentifier() and at.isdecimal() and case.is_own(file)
    left = plan.alternatives[0].graphs - 1
    for pad in _PADS if several else _PADS[:1]:
        arguments = settings if pad is None else f"{settings}, pad={pad}"
        line = f"{name} = compilediag.FixedShape({name}, {arguments})"
        made = Change("program", "", _RISK, left=left, pads=(function,), same_as=line)
        if editable:
            edit = Edit(file, int(at), "fixed_shape", (held_by, arguments))
            shown = f"{file}: {line}  # where {name} is compiled"
            yield replaced(made, line=shown, edits=(edit,))
        shown = f"{line}  # where it is compiled"
        yield replaced(made, line=shown, padded=(PaddedFunction(function, axes, pad),))


def _other_buckets(case: Case) -> Iterator[Change]:
    """Propose the planned sizes where the program writes its own."""
    evidence = PaddingEvidence.of(case.finding.evidence)
    shapes = case.receipt.shapes
    for item in () if shapes is None else shapes.fixed:
        now = item.buckets, item.planned_buckets
        if not item.planned_buckets or now != (evidence.buckets, evidence.planned_buckets):
            continue
        before = listed_buckets(item.axes, item.buckets)
        after = listed_buckets(item.axes, item.planned_buckets)
        function = Location(item.file or "", item.line or 0, item.name)
        for file in case.receipt.header.provenance.source_sha256:
            yield Change(
                "program",
                f"{file}: FixedShape(..., buckets={after})  # not {before}",
                _OTHER_SIZES,
                edits=(Edit(file, 1, "fixed_shape_buckets", (before, after)),),
                pads=(function,),
                same_as=f"{before} {after}",
            )
