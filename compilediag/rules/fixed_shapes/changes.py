"""A few sizes to pad to: where sizes vary too much for one graph, and other ones where padding is
most of what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compilediag.diagnosis.codes import SIZES
from compilediag.receipt.schema.evidence import PaddingEvidence
from compilediag.rules.case import Case
from compilediag.rules.changes import Change, Edit
from compilediag.rules.fixed_shapes.plan import (
    CallablePlan,
    PlanLimits,
    bucket_plans,
    dimensions_of,
    has_size_twice,
    listed_buckets,
    name_of,
    planned_sizes,
    settings_of,
)
from compilediag.rules.sizes.advice import MAX_BUCKETS, MAX_WASTE
from compilediag_harness.shapes.buckets import BucketsImpossible, fewest
from compilediag_harness.shapes.grids import plan_grid
from compilediag_harness.wire import Location, PaddedAxis, PaddedDimension, PaddedFunction

_RULES = SIZES | {"CD151", "CD152", "CD403"}
_PADS = (None, 0, 1)
"""The last row again; zeros, and ones: what a mask among the arguments has for padding."""

_RISK = (
    "padded rows are computed too; padding was checked with this run's values, which proves "
    "nothing for others"
)
_OTHER_SIZES = "chosen from the batches of this run: others may need more padding"


def bucket_changes(case: Case) -> Iterator[Change]:
    """`FixedShape` with planned sizes, or other sizes for one that is there."""
    if case.finding.rule == "CD407":
        yield from _other_buckets(case)
    elif case.finding.rule in _RULES and case.kind not in ("marking", "padded"):
        plan = _plan_of(case)
        if plan is not None and not has_size_twice(plan):
            yield from _padded(case, plan)


def _padded(case: Case, plan: CallablePlan) -> Iterator[Change]:
    name, settings = name_of(plan), settings_of(plan)
    axes = tuple(
        PaddedAxis(tuple(PaddedDimension(*item) for item in dims.items()), sizes)
        for dims, sizes in zip(dimensions_of(plan), planned_sizes(plan), strict=True)
    )
    graphs = plan.grid.graphs if plan.grid is not None else len(axes[0].buckets)
    several = len({item.argument for axis in axes for item in axis.dims}) > 1
    function = Location(plan.file or "", plan.line or 0, plan.name)
    for pad in _PADS if several else _PADS[:1]:
        arguments = settings if pad is None else f"{settings}, pad={pad}"
        line = f"{name} = compilediag.FixedShape({name}, {arguments})"
        made = Change("program", "", _RISK, left=graphs - 1, pads=function, same_as=line)
        edit = _edit(case, plan, arguments)
        if edit is not None:
            shown = f"{edit.file}: {line}  # where {name} is compiled"
            yield replace(made, line=shown, edits=(edit,))
        shown = f"{line}  # where it is compiled"
        yield replace(made, line=shown, padded=(PaddedFunction(function, axes, pad),))


def _edit(case: Case, plan: CallablePlan, arguments: str) -> Edit | None:
    """Where the program calls it by a plain name, in a file of its own."""
    file, _, line = (plan.called_at or "").rpartition(":")
    name = plan.held_by or ""
    if not name.isidentifier() or not line.isdecimal() or not case.is_own(file):
        return None
    return Edit(file, int(line), "fixed_shape", (name, arguments))


def _plan_of(case: Case) -> CallablePlan | None:
    """That of the one function of the finding, with the fewest sizes that pad little, and fewer
    than came."""
    try:
        plans = bucket_plans(case.receipt, PlanLimits(MAX_BUCKETS))
    except BucketsImpossible:
        return None
    found = [item for item in plans if (item.file, item.line) in set(_frames(case))]
    if len(found) != 1 or not found[0].counted or found[0].fixed is not None:
        return None
    plan = found[0]
    pairs = zip(plan.varying.sizes, plan.varying.counts, strict=True)
    counts = {sizes: count for sizes, count in pairs if all(sizes)}
    most = min(MAX_BUCKETS, len(counts) - 1)
    if most < 1:
        return None
    if plan.buckets is not None:
        sizes = {size[0]: count for size, count in counts.items()}
        return plan._replace(buckets=fewest(sizes, most, MAX_WASTE))
    if plan.grid is not None:
        grid = plan_grid({(one, other): n for (one, other), n in counts.items()}, most)
        return plan._replace(grid=grid)
    return None


def _frames(case: Case) -> Iterator[tuple[str | None, int | None]]:
    place = case.finding.location
    if place is not None:
        for called in case.receipt.invocations:
            if called.file == place.file and called.name == place.function:
                yield called.file, called.line
    for event in case.compiles:
        yield event.frame.file, event.frame.line


def _other_buckets(case: Case) -> Iterator[Change]:
    """Where the sizes are written."""
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
                pads=function,
                same_as=f"{before} {after}",
            )
