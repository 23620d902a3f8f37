"""Sizes with measured times, for the tests of CD408."""

from typing import Any

from compilediag.diagnosis.findings import Finding
from compilediag.extensions.knee import find_beyond_knee
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import FixedShapeUsed, KneeMeasured, Location

PLACE = Location("/home/user/app.py", 4, "score")

MS = 0.001


def measured(
    *sizes: tuple[int, float | None, float | None],
    knee: int | None = None,
    problem: str | None = None,
) -> KneeMeasured:
    """Sizes as (rows, milliseconds of a fast call, of a slow call); `problem` is of the last."""
    return KneeMeasured(
        *(1.0, 0, 0, PLACE),
        sizes=tuple(size for size, _, _ in sizes),
        call_s=tuple(fast and fast * MS for _, fast, _ in sizes),
        slow_call_s=tuple(slow and slow * MS for _, _, slow in sizes),
        problems=(*[None] * (len(sizes) - 1), problem),
        knee=knee,
        reason=None if knee else "calls differ by 80% at one size",
        backward=False,
    )


def used(*runs: tuple[int, int]) -> FixedShapeUsed:
    """Calls as (size they ran at, how many)."""
    sizes = tuple((size,) for size, _ in runs)
    counts = tuple(count for _, count in runs)
    return FixedShapeUsed(2.0, 0, PLACE, ("rows",), ((64, 512, 1024),), sizes, sizes, counts)


def found(*events: Any) -> list[Finding]:
    return list(find_beyond_knee(fold([events], user_roots=("/home/user",))))
