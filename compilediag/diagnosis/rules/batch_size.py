"""Batches past the knee of throughput, or above a cap of memory (CD409).

Told of sizes only that were measured in this process: a `FixedShape` was asked for its knee, and
then called at a size where a row takes clearly longer than at a smaller one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.diagnosis.rules.fixed_shapes import finding_of, of_lead
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import KneeMeasured

CLEARLY = 1.05
"""Below it, a larger size loses nothing that the knee would not give up either."""

NO_MEMORY = "does not fit into memory"
"""What the search for the knee says of sizes above the cap that the program gave."""


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
        sizes = _measured(item.knee)
        if not sizes:
            continue
        best = min(sizes, key=lambda its: its.slow_row_s)
        beyond = _beyond(item, item.knee, sizes, best)
        if beyond:
            yield _told(timeline, item, item.knee, beyond, best)


def _measured(knee: KneeMeasured) -> list[_Size]:
    columns = zip(knee.sizes, knee.call_s, knee.slow_call_s, strict=False)
    return [
        _Size(size, call_s / size, slow_s / size)
        for size, call_s, slow_s in columns
        if call_s and slow_s
    ]


def _beyond(
    item: FixedShapeRun, knee: KneeMeasured, sizes: list[_Size], best: _Size
) -> list[_Beyond]:
    """Sizes that were called, and lie above the best one or above the cap."""
    rows = {its.size: its for its in sizes}
    refused = {
        size for size, why in zip(knee.sizes, knee.problems, strict=False) if why == NO_MEMORY
    }
    found: list[_Beyond] = []
    for its in item.sizes:
        (size,) = its.run
        at = rows.get(size)
        if any(size >= cap for cap in refused):
            found.append(_Beyond(size, its.calls, None))
        elif at and size > best.size and at.row_s > CLEARLY * best.slow_row_s:
            found.append(_Beyond(size, its.calls, at.row_s / best.row_s))
    return found


def _told(
    timeline: Timeline,
    item: FixedShapeRun,
    knee: KneeMeasured,
    beyond: list[_Beyond],
    best: _Size,
) -> Finding:
    worst = max(beyond, key=lambda its: its.times or 0.0)
    calls = sum(its.calls for its in beyond)
    said = f"{calls} {'call' if calls == 1 else 'calls'} ran at {_listed(beyond)} rows"
    if worst.times is None:
        title = f"{said}, above the cap of memory that was measured for"
    else:
        longer = f"{worst.times:.1f} times as long as at {best.size}"
        title = f"{said}, past the knee: a row takes {longer}"
    return finding_of(
        timeline,
        "CD409",
        item,
        title=title,
        variable=None,
        count=calls,
        steps=(),
        fix=f"leave sizes above {best.size} out of the buckets: larger batches are then split into "
        f"calls of {best.size}",
        evidence={
            "buckets": [list(its) for its in item.buckets],
            "stay_at": best.size,
            "knee": knee.knee,
            "backward": knee.backward,
            "sizes": list(knee.sizes),
            "call_s": list(knee.call_s),
            "slow_call_s": list(knee.slow_call_s),
            "beyond": [its._asdict() for its in beyond],
        },
    )


def _listed(beyond: list[_Beyond]) -> str:
    sizes = [str(its.size) for its in beyond]
    return sizes[0] if len(sizes) == 1 else f"{', '.join(sizes[:-1])} and {sizes[-1]}"


RULES: tuple[Rule, ...] = (beyond_knee,)
