"""CD307: most of a steady step is spent waiting for its batch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Finding, Fix, Rule
from compilediag.timeline.timeline import Timeline

SHARE = 0.5
"""Part of the usual step that must be waiting."""

FEWEST = 8
"""Steps without a compile below which nothing is said."""


def find_data_bound_steps(timeline: Timeline) -> Iterable[Finding]:
    """CD307: judged by medians, over the steps of the lead process in which nothing compiled."""
    process = timeline.lead
    steps = [
        step
        for step in timeline.steps
        if step.process == process
        and step.data_wait_s is not None
        and step.compile_s == 0.0
        and math.isfinite(step.wall_s)
    ]
    if len(steps) < FEWEST:
        return
    waits = [step.data_wait_s or 0.0 for step in steps]
    wall_s = median(step.wall_s for step in steps)
    share = median(waits) / wall_s if wall_s > 0.0 else 0.0
    if share < SHARE:
        return
    register = info("CD307")
    yield Finding(
        rule="CD307",
        slug=register.slug,
        severity=register.severity,
        confidence="exact",
        family=register.family,
        variable=None,
        title=f"{share:.0%} of the usual step is waiting for data",
        location=None,
        ownership="user",
        count=len(steps),
        steps=(),
        cost_s=sum(waits),
        fix=Fix(
            "load batches in other processes (`num_workers`), and move work out of the dataset",
            register.how,
            "each worker holds a copy of the dataset and takes a core",
        ),
        evidence={
            "share": share,
            "usual_wait_s": median(waits),
            "usual_step_s": wall_s,
            "steps": len(steps),
        },
    )


RULES: tuple[Rule, ...] = (find_data_bound_steps,)
