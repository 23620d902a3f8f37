"""Rule CD306: large buffers that a step of the lead process fills and then overwrites."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, PackedBuffer

MIN_BYTES = 2**25
"""Of one buffer. A smaller one is made of memory that the process has had before, and filling it
was measured to cost no more than zeroing the tails; glibc asks the system for a larger one anew
each time, and its first touch is then what costs most."""

OVERWRITTEN = 0.5
"""Of what was filled, overwritten in the same step. Where most is padding, filling is the work."""

MIN_OF_STEP = 0.01
"""Of a step, spent in the stores: where they do not matter, filling does not either."""

MIN_FILLED = 2
"""Steps that filled it in vain."""


def find_packing_copies(timeline: Timeline) -> Iterable[Finding]:
    """Find CD306: buffers of the program's that sampled steps filled in vain."""
    samples = [sample for sample in timeline.syncs if sample.process == timeline.lead]
    walls = {step.number: step.wall_s for step in timeline.steps if step.process == timeline.lead}
    fills: dict[tuple[str, str, str, int], dict[int, PackedBuffer]] = {}
    for sample in samples:
        for buffer in sample.packed:
            key = (buffer.place.file, buffer.place.function, buffer.name, buffer.fill_line)
            fills.setdefault(key, {})[sample.step] = buffer
    for by_step in fills.values():
        wasted = {
            step: buffer
            for step, buffer in by_step.items()
            if buffer.buffer_bytes >= MIN_BYTES * buffer.buffers
            and _compute_overwritten(buffer) >= OVERWRITTEN
            and (buffer.seconds or 0.0) >= MIN_OF_STEP * (walls.get(step) or math.inf)
        }
        if len(wasted) < MIN_FILLED or 2 * len(wasted) <= len(by_step):
            continue
        store = next(iter(by_step.values())).place
        buffers = list(wasted.values())
        filled = median(buffer.buffer_bytes for buffer in buffers)
        share = median(map(_compute_overwritten, buffers))
        finding = make_finding(
            timeline,
            "CD306",
            f"{filled / 2**20:.1f} MiB filled by {buffers[0].fill}() in a step, {share:.0%} of it "
            "overwritten",
            f"keep one buffer for all steps in place of {buffers[0].name}, and zero only what is "
            "not written",
            caveat="the batch of an earlier step is gone; what is not written must be zeroed",
            variable=buffers[0].name,
            location=Location(store.file, buffers[0].fill_line, store.function),
            count=len(buffers),
            steps=wasted,
            evidence={
                "filled_bytes": int(filled),
                "buffers": int(median(buffer.buffers for buffer in buffers)),
                "overwritten_share": share,
                "stores_in_a_step": int(median(buffer.stores for buffer in buffers)),
                "store_seconds_in_a_step": median(buffer.seconds or 0.0 for buffer in buffers),
                "store_line": store.line,
                "sampled_steps": len(samples),
            },
        )
        if finding.ownership != "torch":
            yield finding


def _compute_overwritten(buffer: PackedBuffer) -> float:
    """Compute the overwritten share of what was filled, 0 to 1; 0 where it is not known."""
    if buffer.written_bytes is None or buffer.buffer_bytes <= 0:
        return 0.0
    return min(1.0, buffer.written_bytes / buffer.buffer_bytes)


RULES: tuple[Rule, ...] = (find_packing_copies,)
