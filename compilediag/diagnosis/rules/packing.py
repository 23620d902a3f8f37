"""CD306: buffers that every step fills with one value, and then overwrites nearly whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Finding, Fix, Rule
from compilediag.diagnosis.ownership import ownership_of
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, PackedBuffer

LEAST_BYTES = 2**25
"""Of one buffer. A smaller one is made of memory that the process has had before, and filling it
was measured to cost no more than zeroing the tails; glibc asks the system for a larger one anew
each time, and its first touch is then what costs most."""

LEAST_SHARE = 0.5
"""Of what was filled, overwritten in the same step. Of a buffer that is mostly padding, the filling
is the work."""

LEAST_OF_STEP = 0.01
"""Of a step, spent in the stores: where they do not matter, filling does not either."""

LEAST_STEPS = 2


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
        worth = {
            step: item
            for step, item in by_step.items()
            if _is_worth_it(item) and _share_of_step(item, walls.get(step)) >= LEAST_OF_STEP
        }
        place = next(iter(by_step.values())).place
        if len(worth) < LEAST_STEPS or 2 * len(worth) <= len(by_step):
            continue
        if ownership_of(place.file, timeline.user_roots) != "torch":
            yield _finding(place, worth, len(samples), timeline.user_roots)


def _is_worth_it(item: PackedBuffer) -> bool:
    return item.buffer_bytes >= LEAST_BYTES * item.buffers and _share(item) >= LEAST_SHARE


def _share(item: PackedBuffer) -> float:
    """Of what was filled, overwritten; 0 where that is not known."""
    if item.written_bytes is None or item.buffer_bytes <= 0:
        return 0.0
    return min(1.0, item.written_bytes / item.buffer_bytes)


def _share_of_step(item: PackedBuffer, wall_s: float | None) -> float:
    return (item.seconds or 0.0) / wall_s if wall_s else 0.0


def _finding(
    place: Location, steps: dict[int, PackedBuffer], sampled: int, user_roots: Sequence[str]
) -> Finding:
    register = info("CD306")
    items = list(steps.values())
    name, fill = items[0].name, items[0].fill
    filled = median(item.buffer_bytes for item in items)
    share = median(_share(item) for item in items)
    what = f"{filled / 2**20:.1f} MiB filled by {fill}() in a step, {share:.0%} of it overwritten"
    return Finding(
        rule="CD306",
        slug=register.slug,
        severity=register.severity,
        confidence="exact",
        family=register.family,
        variable=name,
        title=what,
        location=Location(place.file, items[0].fill_line, place.function),
        ownership=ownership_of(place.file, tuple(user_roots)),
        count=len(steps),
        steps=tuple(sorted(steps)),
        cost_s=None,
        fix=Fix(
            f"keep one buffer for all steps in place of {name}, and zero only what is not written",
            register.how,
            "the batch of an earlier step is gone; what is not written must be zeroed",
        ),
        evidence={
            "filled_bytes": int(filled),
            "buffers": int(median(item.buffers for item in items)),
            "overwritten_share": share,
            "stores_in_a_step": int(median(item.stores for item in items)),
            "store_seconds_in_a_step": median(item.seconds or 0.0 for item in items),
            "store_line": place.line,
            "sampled_steps": sampled,
        },
    )


RULES: tuple[Rule, ...] = (find_packing_copies,)
