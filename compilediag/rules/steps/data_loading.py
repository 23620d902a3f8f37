"""CD307: most of a steady step is spent waiting for its batch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding
from compilediag.timeline.timeline import Timeline

MIN_SHARE = 0.5
"""Part of the usual step that must be waiting."""

MIN_STEPS = 8
"""Steps without a compile below which nothing is reported."""


def find_data_bound_steps(timeline: Timeline) -> Iterable[Finding]:
    """CD307: judged by medians, over the steps of the lead process in which nothing compiled."""
    lead = timeline.lead
    steps = [
        (step.data_wait_s, step.wall_s)
        for step in timeline.steps
        if step.process == lead
        and step.data_wait_s is not None
        and step.compile_s == 0.0
        and math.isfinite(step.wall_s)
    ]
    if len(steps) < MIN_STEPS:
        return
    waits, walls = zip(*steps, strict=True)
    wait_s, wall_s = median(waits), median(walls)
    if wall_s <= 0.0 or wait_s < MIN_SHARE * wall_s:
        return
    yield make_finding(
        timeline,
        "CD307",
        f"{wait_s / wall_s:.0%} of the usual step is waiting for data",
        "load batches in other processes (`num_workers`), and move work out of the dataset",
        caveat="each worker holds a copy of the dataset and takes a core",
        count=len(steps),
        cost_s=sum(waits),
        evidence={
            "share": wait_s / wall_s,
            "usual_wait_s": wait_s,
            "usual_step_s": wall_s,
            "steps": len(steps),
        },
    )


RULES: tuple[Rule, ...] = (find_data_bound_steps,)
