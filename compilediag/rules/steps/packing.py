"""CD306: buffers that every step fills with one value, and then overwrites nearly whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, PackedBuffer

MIN_BYTES = 2**25
"""Of one buffer. A smaller one is made of memory that the process has had before, and filling it
was measured to cost no more than zeroing the tails; glibc asks the system for a larger one anew
each time, and its first touch is then what costs most."""

MIN_SHARE = 0.5
"""Of what was filled, overwritten in the same step. Of a buffer that is mostly padding, the filling
is the work."""

MIN_OF_STEP = 0.01
"""Of a step, spent in the stores: where they do not matter, filling does not either."""

MIN_STEPS = 2


def find_packing_copies(timeline: Timeline) -> Iterable[Finding]:
    """CD306: buffers of the program's that sampled steps of the lead process filled in vain."""
    process = timeline.lead
    samples = [sample for sample in timeline.syncs if sample.process == process]
    if not samples:
        return
    walls = {step.number: step.wall_s for step in timeline.steps if step.process == process}
    found: dict[tuple[str, str, str, int], dict[int, PackedBuffer]] = {}
    for sample in samples:
        for item in sample.packed:
            key = (item.place.file, item.place.function, item.name, item.fill_line)
            found.setdefault(key, {})[sample.step] = item
    for by_step in found.values():
        wasted = {
            step: item
            for step, item in by_step.items()
            if item.buffer_bytes >= MIN_BYTES * item.buffers
            and _share(item) >= MIN_SHARE
            and (item.seconds or 0.0) >= MIN_OF_STEP * (walls.get(step) or math.inf)
        }
        if len(wasted) >= MIN_STEPS and 2 * len(wasted) > len(by_step):
            store = next(iter(by_step.values())).place
            finding = _finding(timeline, store, wasted, len(samples))
            if finding.ownership != "torch":
                yield finding


def _share(item: PackedBuffer) -> float:
    """Of what was filled, overwritten; 0 where that is not known."""
    if item.written_bytes is None or item.buffer_bytes <= 0:
        return 0.0
    return min(1.0, item.written_bytes / item.buffer_bytes)


def _finding(
    timeline: Timeline, store: Location, steps: Mapping[int, PackedBuffer], sampled: int
) -> Finding:
    items = list(steps.values())
    first = items[0]
    filled = median(item.buffer_bytes for item in items)
    share = median(_share(item) for item in items)
    return make_finding(
        timeline,
        "CD306",
        f"{filled / 2**20:.1f} MiB filled by {first.fill}() in a step, {share:.0%} of it "
        "overwritten",
        f"keep one buffer for all steps in place of {first.name}, and zero only what is not "
        "written",
        caveat="the batch of an earlier step is gone; what is not written must be zeroed",
        variable=first.name,
        location=Location(store.file, first.fill_line, store.function),
        count=len(steps),
        steps=steps,
        evidence={
            "filled_bytes": int(filled),
            "buffers": int(median(item.buffers for item in items)),
            "overwritten_share": share,
            "stores_in_a_step": int(median(item.stores for item in items)),
            "store_seconds_in_a_step": median(item.seconds or 0.0 for item in items),
            "store_line": store.line,
            "sampled_steps": sampled,
        },
    )


RULES: tuple[Rule, ...] = (find_packing_copies,)
