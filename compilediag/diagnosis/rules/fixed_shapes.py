"""Fixed sizes: padding that changes results (CD406), padding that other sizes would not need
(CD407), rows that are done and still computed (CD408), and compiles after a warm-up (CD302)."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.figures.padding import PlannedPadding, planned_padding
from compilediag.diagnosis.findings import Finding, Fix, Rule, Severity
from compilediag.diagnosis.ownership import ownership_of
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import PaddingChecked, RowsRun

FEWEST_STEPS = 4
"""Steps of a loop from which on it can be said that most of it was wasted."""

WASTED = 0.5
"""Share of the computed rows that were done."""

FEWEST_CALLS = 16
"""From which on it can be said which sizes come."""

PADDED = 0.2
"""Share of what was computed that as many other sizes would not have computed."""

MOST_SPELLED = 16
"""Sizes that a fix names."""

_FIXES = {
    "contaminated": 'mask padding where rows meet: FixedShape(..., mask="name of an argument")',
    "state": "freeze for padded calls what is updated (module.eval()), or mask what it adds up",
    "reduced": 'reduce over the real rows only: FixedShape(..., mask="name of an argument")',
    "parity": "use the number of real rows (mask.sum()) in place of the padded size",
}


def find_contamination(timeline: Timeline) -> Iterable[Finding]:
    """CD406: a check found results that depend on padding; one finding a callable."""
    for item in of_lead(timeline):
        if item.checked is not None and (harmful := _harmful(item.checked)):
            yield _contaminated(timeline, item, item.checked, harmful)


def _harmful(checked: PaddingChecked) -> list[tuple[str, str, str]]:
    rows = zip(checked.outputs, checked.kinds, checked.notes, strict=False)
    return [(path, kind, note) for path, kind, note in rows if kind in _FIXES]


def _contaminated(
    timeline: Timeline,
    item: FixedShapeRun,
    checked: PaddingChecked,
    harmful: list[tuple[str, str, str]],
) -> Finding:
    path, kind, note = harmful[0]
    what = path or "the result"
    more = f", and {len(harmful) - 1} more" if len(harmful) > 1 else ""
    return finding_of(
        timeline,
        "CD406",
        item,
        title=f"{what} depends on padding: {note}{more}",
        variable=path or None,
        count=len(harmful),
        steps=(checked.step,),
        fix=_FIXES[kind],
        evidence={
            "outputs": [dict(zip(("path", "kind", "note"), row, strict=True)) for row in harmful],
            "probes": list(checked.probes),
            "seeds": list(checked.seeds),
            "size": list(checked.size),
            "run": list(checked.run),
        },
    )


def find_padding_waste(timeline: Timeline) -> Iterable[Finding]:
    """CD407: sizes of which as many others would have padded far less, for the calls that came."""
    for item in of_lead(timeline):
        planned = planned_padding(item)
        if planned is None or sum(item.real.values()) < FEWEST_CALLS:
            continue
        if item.run_elements - planned.run_elements > PADDED * item.run_elements:
            yield _padded(timeline, item, planned)


def _padded(timeline: Timeline, item: FixedShapeRun, planned: PlannedPadding) -> Finding:
    padding = item.run_elements - item.elements
    left = planned.run_elements - item.elements
    what = "rows" if len(item.buckets) == 1 else "elements"
    return finding_of(
        timeline,
        "CD407",
        item,
        title=f"{padding} of {item.run_elements} {what} were padding, and as many other sizes "
        f"would have made it {left}",
        variable=None,
        count=sum(item.real.values()),
        steps=(),
        fix=f"choose sizes for what really comes: buckets={_spelled(item.axes, planned.buckets)}",
        evidence={
            "buckets": [list(sizes) for sizes in item.buckets],
            "planned_buckets": [list(sizes) for sizes in planned.buckets],
            "elements": item.elements,
            "run_elements": item.run_elements,
            "planned_run_elements": planned.run_elements,
            "calls": [
                {"run": list(its.run), "calls": its.calls, "elements": its.elements}
                for its in item.sizes[:64]
            ],
        },
    )


def _spelled(axes: tuple[str, ...], buckets: tuple[tuple[int, ...], ...]) -> str:
    """As `FixedShape` takes them; where there are many, where they stand."""
    if sum(len(sizes) for sizes in buckets) > MOST_SPELLED:
        return "planned_buckets of the receipt"
    if len(buckets) == 1:
        return str(list(buckets[0]))
    told = (f'"{axis}": {list(sizes)}' for axis, sizes in zip(axes, buckets, strict=True))
    return "{" + ", ".join(told) + "}"


def find_early_exit_waste(timeline: Timeline) -> Iterable[Finding]:
    """CD408: loops over rows in which most of what was computed had been done before."""
    for item in of_lead(timeline):
        loops = [
            loop for loop in item.loops if loop.steps >= FEWEST_STEPS and _wasted(loop) > WASTED
        ]
        if loops:
            yield _early_exit(timeline, item, loops)


def _wasted(loop: RowsRun) -> float:
    return 1.0 - loop.active_row_steps / loop.row_steps if loop.row_steps else 0.0


def _early_exit(timeline: Timeline, item: FixedShapeRun, loops: list[RowsRun]) -> Finding:
    computed = sum(loop.row_steps for loop in loops)
    active = sum(loop.active_row_steps for loop in loops)
    switched_off = any(not loop.compaction for loop in loops)
    fix = (
        "let rows that are left move to a smaller size: until_done(..., compaction=True)"
        if switched_off
        else "add smaller sizes to the buckets, for rows that are left to move to"
    )
    return finding_of(
        timeline,
        "CD408",
        item,
        title=f"{computed - active} of {computed} rows were done before they were computed again",
        variable=None,
        count=len(loops),
        steps=tuple(sorted({loop.step for loop in loops})),
        fix=fix,
        evidence={
            "computed_rows": computed,
            "active_rows": active,
            "loops": len(loops),
            "steps": sum(loop.steps for loop in loops),
            "compaction": not switched_off,
            "buckets": [list(sizes) for sizes in item.buckets],
        },
    )


def find_late_compiles(timeline: Timeline) -> Iterable[Finding]:
    """CD302: calls that compiled or recorded after the warm-up that was to do all of that."""
    for item in of_lead(timeline):
        if not item.late:
            continue
        begun = [text for event in item.late for text in event.begun]
        times = "time" if len(begun) == 1 else "times"
        yield finding_of(
            timeline,
            "CD302",
            item,
            title=f"torch compiled {len(begun)} {times} after the warm-up of its fixed sizes",
            variable=None,
            count=len(begun),
            steps=tuple(sorted({event.step for event in item.late})),
            fix="warm it up as it is used: grad mode, training or not, dtype, autocast",
            evidence={
                "begun": begun[:64],
                "sizes": [list(event.size) for event in item.late[:64]],
                "run": [list(event.run) for event in item.late[:64]],
            },
        )


def of_lead(timeline: Timeline) -> list[FixedShapeRun]:
    """The `FixedShape`s of the told process."""
    process = timeline.lead
    return [item for item in timeline.fixed_shapes if item.process == process]


def finding_of(
    timeline: Timeline,
    code: str,
    item: FixedShapeRun,
    *,
    title: str,
    variable: str | None,
    count: int,
    steps: tuple[int, ...],
    fix: str,
    evidence: dict[str, object],
) -> Finding:
    """A finding about a `FixedShape`, with what the register says of its code."""
    register, place = info(code), item.function
    severity: Severity = register.severity
    return Finding(
        rule=code,
        slug=register.slug,
        severity=severity,
        confidence="exact",
        family=register.family,
        variable=variable,
        title=title,
        location=place if place.file else None,
        ownership=ownership_of(place.file, timeline.user_roots) if place.file else "user",
        count=count,
        steps=steps,
        cost_s=None,
        fix=Fix(fix, register.how),
        evidence={"callable": place.function, **evidence},
    )


RULES: tuple[Rule, ...] = (
    find_contamination,
    find_padding_waste,
    find_early_exit_waste,
    find_late_compiles,
)
