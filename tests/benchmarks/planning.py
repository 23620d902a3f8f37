"""CPU seconds of choosing buckets, for more sizes than a run has, with costs that rise and fall."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping

from bench import Bench, Benchmark, Row

from compilediag_harness.shapes.buckets import plan, plan_buckets

SIZES, BUCKETS, GOAL_S = 5_000, 16, 0.5


def planning(bench: Bench) -> Iterator[Row]:
    """The planner alone, in this process."""
    draw = random.Random(2026)
    counts = {size: draw.randint(1, 50) for size in range(1, SIZES + 1)}
    measured = {size: 0.3 + size * draw.uniform(0.001, 0.003) for size in counts}
    for costs, told in ((None, "rows"), (measured, "measured, not rising evenly")):
        used = bench.median(lambda costs=costs: seconds(counts, costs))
        yield Row(
            f"plan of {SIZES:,} sizes, k={BUCKETS}, cost: {told}",
            f"waste {plan(counts, BUCKETS, cost=costs).waste:.1%}",
            f"{used * 1e3:.0f} ms CPU",
            f"≤ {GOAL_S * 1e3:.0f} ms",
            "holds" if used <= GOAL_S else "fails",
        )


def seconds(counts: Mapping[int, int], costs: Mapping[int, float] | None) -> float:
    """CPU seconds of one plan."""
    began = time.process_time()
    plan_buckets(counts, BUCKETS, cost=costs)
    return time.process_time() - began


BENCHMARKS: dict[str, Benchmark] = {"plan": planning}
