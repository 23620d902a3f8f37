"""Batches past the knee of throughput, or above a cap of memory (CD409).

Only sizes that were measured in this process are judged: the knee of a `FixedShape` was measured,
and it was then called at a size where a row takes clearly longer than at a smaller one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.fixed_shapes.rule import finding_of, of_lead
from compilediag.rules.make_finding import pick, plural
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import KneeMeasured

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
            yield _finding(timeline, item, item.knee, beyond, best)


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


def _finding(
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


RULES: tuple[Rule, ...] = (beyond_knee,)
