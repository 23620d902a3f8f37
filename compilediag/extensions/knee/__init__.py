"""Rule CD409: batches past the knee of throughput, or above a cap of memory, by sizes that the
program has measured with `FixedShape.knee`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import format_count, make_finding, pick
from compilediag.timeline.timeline import Timeline

CLEARLY = 1.05
"""Below it, a larger size loses nothing that the knee would not give up either."""

NO_MEMORY = "does not fit into memory"
"""The problem that the search for the knee reports of sizes above the program's memory cap."""


class _Beyond(NamedTuple):
    """Calls at a size that is too large."""

    size: int
    calls: int
    times: float | None
    """How much longer a row takes than at the size to stay at; None above the cap."""


def find_beyond_knee(timeline: Timeline) -> Iterable[Finding]:
    """Find CD409: one finding a callable, with the size to stay at."""
    for shape in timeline.fixed_shapes:
        knee = shape.knee
        if shape.process != timeline.lead or knee is None or len(shape.buckets) != 1:
            continue
        # Seconds of a row at each size: between the quartiles of what was measured.
        columns = zip(knee.sizes, knee.call_s, knee.slow_call_s, strict=False)
        rows = {
            size: (call_s / size, slow_s / size)
            for size, call_s, slow_s in columns
            if call_s and slow_s
        }
        if not rows:
            continue
        best = min(rows, key=lambda size: rows[size][1])
        row_s, slow_row_s = rows[best]
        problems = zip(knee.sizes, knee.problems, strict=False)
        cap = min((size for size, why in problems if why == NO_MEMORY), default=None)
        beyond: list[_Beyond] = []
        for called in shape.sizes:
            (size,) = called.run
            at, _ = rows.get(size, (0.0, 0.0))
            if cap is not None and size >= cap:
                beyond.append(_Beyond(size, called.calls, None))
            elif size > best and at > CLEARLY * slow_row_s:
                beyond.append(_Beyond(size, called.calls, at / row_s))
        if not beyond:
            continue
        worst = max(excess.times or 0.0 for excess in beyond)
        calls = sum(excess.calls for excess in beyond)
        *others, last = (str(excess.size) for excess in beyond)
        sizes = f"{', '.join(others)} and {last}" if others else last
        title = f"{format_count(calls, 'call')} ran at {sizes} rows, "
        if worst:
            title += f"past the knee: a row takes {worst:.1f} times as long as at {best}"
        else:
            title += "above the cap of memory that was measured for"
        yield make_finding(
            timeline,
            "CD409",
            title,
            f"leave sizes above {best} out of the buckets: larger batches are then split into "
            f"calls of {best}",
            location=shape.function if shape.function.file else None,
            count=calls,
            evidence={
                "callable": shape.function.function,
                "buckets": [list(sizes) for sizes in shape.buckets],
                "stay_at": best,
                **pick(knee, "knee", "backward", "sizes", "call_s", "slow_call_s"),
                "beyond": [excess._asdict() for excess in beyond],
            },
        )


RULES: tuple[Rule, ...] = (find_beyond_knee,)
