"""Fixed sizes: padding that changes results (CD406) or that other sizes would not need (CD407),
rows that are done and still computed (CD408), batches past the knee of throughput or above a cap
of memory (CD409), and compiles after a warm-up (CD302).

Only sizes that were measured in this process are judged for CD409.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from compilediag.diagnosis.figures.invocations import planned_padding
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import and_more, make_finding, pick, plural
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import KneeMeasured, RowsRun

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
"""Calls and sizes kept in the evidence."""

_FIXES = {
    "contaminated": 'mask padding where rows meet: FixedShape(..., mask="name of an argument")',
    "state": "freeze for padded calls what is updated (module.eval()), or mask what it adds up",
    "reduced": 'reduce over the real rows only: FixedShape(..., mask="name of an argument")',
    "parity": "use the number of real rows (mask.sum()) in place of the padded size",
}


def find_contamination(timeline: Timeline) -> Iterable[Finding]:
    """CD406: a check found results that depend on padding; one finding a callable."""
    for item in of_lead(timeline):
        checked = item.checked
        if checked is None:
            continue
        rows = zip(checked.outputs, checked.kinds, checked.notes, strict=False)
        harmful = [row for row in rows if row[1] in _FIXES]
        if harmful:
            path, kind, note = harmful[0]
            yield finding_of(
                timeline,
                "CD406",
                item,
                f"{path or 'the result'} depends on padding: {note}{and_more(len(harmful))}",
                _FIXES[kind],
                variable=path or None,
                count=len(harmful),
                steps=(checked.step,),
                evidence={
                    "outputs": [
                        dict(zip(("path", "kind", "note"), row, strict=True)) for row in harmful
                    ],
                    **pick(checked, "probes", "seeds", "size", "run"),
                },
            )


def find_padding_waste(timeline: Timeline) -> Iterable[Finding]:
    """CD407: sizes of which as many others would have padded far less, for the calls that came."""
    for item in of_lead(timeline):
        planned, calls = planned_padding(item), sum(item.real.values())
        if planned is None or calls < MIN_CALLS:
            continue
        if item.run_elements - planned.run_elements <= PADDED * item.run_elements:
            continue
        padding = item.run_elements - item.elements
        left = planned.run_elements - item.elements
        what = "rows" if len(item.buckets) == 1 else "elements"
        yield finding_of(
            timeline,
            "CD407",
            item,
            f"{padding} of {item.run_elements} {what} were padding, and as many other sizes would "
            f"have made it {left}",
            f"choose sizes from those that occur: buckets={_named(item.axes, planned.buckets)}",
            count=calls,
            evidence={
                "buckets": [list(sizes) for sizes in item.buckets],
                "planned_buckets": [list(sizes) for sizes in planned.buckets],
                **pick(item, "elements", "run_elements"),
                "planned_run_elements": planned.run_elements,
                "calls": [pick(size, "run", "calls", "elements") for size in item.sizes[:_SHOWN]],
            },
        )


def _named(axes: tuple[str, ...], buckets: tuple[tuple[int, ...], ...]) -> str:
    """As `FixedShape` takes them; where there are too many, the field of the receipt."""
    if sum(len(sizes) for sizes in buckets) > MAX_NAMED:
        return "planned_buckets of the receipt"
    if len(buckets) == 1:
        return str(list(buckets[0]))
    named = (f'"{axis}": {list(sizes)}' for axis, sizes in zip(axes, buckets, strict=True))
    return "{" + ", ".join(named) + "}"


def find_early_exit_waste(timeline: Timeline) -> Iterable[Finding]:
    """CD408: loops over rows in which most of what was computed had been done before."""
    for item in of_lead(timeline):
        loops = [loop for loop in item.loops if loop.steps >= MIN_STEPS and _wasted(loop) > WASTED]
        if not loops:
            continue
        computed = sum(loop.row_steps for loop in loops)
        active = sum(loop.active_row_steps for loop in loops)
        compaction = all(loop.compaction for loop in loops)
        yield finding_of(
            timeline,
            "CD408",
            item,
            f"{computed - active} of {computed} rows were done before they were computed again",
            "add smaller sizes to the buckets, for rows that are left to move to"
            if compaction
            else "let rows that are left move to a smaller size: until_done(..., compaction=True)",
            count=len(loops),
            steps=(loop.step for loop in loops),
            evidence={
                "computed_rows": computed,
                "active_rows": active,
                "loops": len(loops),
                "steps": sum(loop.steps for loop in loops),
                "compaction": compaction,
                "buckets": [list(sizes) for sizes in item.buckets],
            },
        )


def _wasted(loop: RowsRun) -> float:
    return 1.0 - loop.active_row_steps / loop.row_steps if loop.row_steps else 0.0


def find_late_compiles(timeline: Timeline) -> Iterable[Finding]:
    """CD302: calls that compiled or recorded after the warm-up that was to do all of that."""
    for item in of_lead(timeline):
        if not item.late:
            continue
        begun = [text for event in item.late for text in event.begun]
        yield finding_of(
            timeline,
            "CD302",
            item,
            f"torch compiled {plural(len(begun), 'time')} after the warm-up of its fixed sizes",
            "warm it up as it is used: grad mode, training or not, dtype, autocast",
            count=len(begun),
            steps=(event.step for event in item.late),
            evidence={
                "begun": begun[:_SHOWN],
                "sizes": [list(event.size) for event in item.late[:_SHOWN]],
                "run": [list(event.run) for event in item.late[:_SHOWN]],
            },
        )


def of_lead(timeline: Timeline) -> list[FixedShapeRun]:
    """The `FixedShape`s of the lead process."""
    lead = timeline.lead
    return [item for item in timeline.fixed_shapes if item.process == lead]


def finding_of(
    timeline: Timeline,
    code: str,
    item: FixedShapeRun,
    title: str,
    fix: str,
    *,
    variable: str | None = None,
    count: int,
    steps: Iterable[int] = (),
    evidence: dict[str, object],
) -> Finding:
    """A finding about a `FixedShape`, at the function that it wraps."""
    function = item.function
    return make_finding(
        timeline,
        code,
        title,
        fix,
        variable=variable,
        location=function if function.file else None,
        count=count,
        steps=steps,
        evidence={"callable": function.function, **evidence},
    )


CLEARLY = 1.05
"""Below it, a larger size loses nothing that the knee would not give up either."""

NO_MEMORY = "does not fit into memory"
"""The problem that the search for the knee reports of sizes above the program's memory cap."""


class _Size(NamedTuple):
    """Seconds of a row at one size: between the quartiles of what was measured."""

    size: int
    row_s: float
    slow_row_s: float


class _Beyond(NamedTuple):
    """Calls at a size that is too large."""

    size: int
    calls: int
    times: float | None
    """How much longer a row takes than at the size to stay at; None above the cap."""


def beyond_knee(timeline: Timeline) -> Iterable[Finding]:
    """CD409: one finding a callable, with the size to stay at."""
    for item in of_lead(timeline):
        if item.knee is None or len(item.buckets) != 1:
            continue
        columns = zip(item.knee.sizes, item.knee.call_s, item.knee.slow_call_s, strict=False)
        sizes = [
            _Size(size, call_s / size, slow_s / size)
            for size, call_s, slow_s in columns
            if call_s and slow_s
        ]
        if not sizes:
            continue
        best = min(sizes, key=lambda each: each.slow_row_s)
        beyond = _beyond(item, item.knee, sizes, best)
        if beyond:
            yield _beyond_finding(timeline, item, item.knee, beyond, best)


def _beyond(
    item: FixedShapeRun, knee: KneeMeasured, sizes: list[_Size], best: _Size
) -> list[_Beyond]:
    """Sizes that were called, and lie above the best one or above the cap."""
    measured = {each.size: each for each in sizes}
    problems = zip(knee.sizes, knee.problems, strict=False)
    cap = min((size for size, why in problems if why == NO_MEMORY), default=None)
    found: list[_Beyond] = []
    for called in item.sizes:
        (size,) = called.run
        at = measured.get(size)
        if cap is not None and size >= cap:
            found.append(_Beyond(size, called.calls, None))
        elif at and size > best.size and at.row_s > CLEARLY * best.slow_row_s:
            found.append(_Beyond(size, called.calls, at.row_s / best.row_s))
    return found


def _beyond_finding(
    timeline: Timeline,
    item: FixedShapeRun,
    knee: KneeMeasured,
    beyond: list[_Beyond],
    best: _Size,
) -> Finding:
    worst = max(beyond, key=lambda each: each.times or 0.0)
    calls = sum(each.calls for each in beyond)
    *others, last = (str(each.size) for each in beyond)
    sizes = f"{', '.join(others)} and {last}" if others else last
    title = f"{plural(calls, 'call')} ran at {sizes} rows, "
    if worst.times is None:
        title += "above the cap of memory that was measured for"
    else:
        title += f"past the knee: a row takes {worst.times:.1f} times as long as at {best.size}"
    return finding_of(
        timeline,
        "CD409",
        item,
        title,
        f"leave sizes above {best.size} out of the buckets: larger batches are then split into "
        f"calls of {best.size}",
        count=calls,
        evidence={
            "buckets": [list(sizes) for sizes in item.buckets],
            "stay_at": best.size,
            "knee": knee.knee,
            **pick(knee, "backward", "sizes", "call_s", "slow_call_s"),
            "beyond": [each._asdict() for each in beyond],
        },
    )


RULES: tuple[Rule, ...] = (
    find_contamination,
    find_padding_waste,
    find_early_exit_waste,
    find_late_compiles,
    beyond_knee,
)
