"""CD301: reads of tensors, one by one in a loop, that each make the host wait for the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Finding, Fix, Rule
from compilediag.diagnosis.ownership import ownership_of
from compilediag.timeline.syncs import SyncLine, lines_of
from compilediag.timeline.timeline import SyncSample, Timeline
from compilediag_harness.wire import Location

MANY = 16
"""Reads in one step and one loop from which on they are a finding. A loss and a few metrics in each
step are what everybody reads."""

MANY_ON_HOST = 64
"""The same where no tensor is on a device: nobody knows which of them would be, and a batch is
often put together on the host."""

SPELLED = {
    "item": ".item()",
    "tolist": ".tolist()",
    "bool": "bool()",
    "float": "float()",
    "int": "int()",
    "index": "use as an index",
    "cpu": ".cpu()",
    "to_cpu": '.to("cpu")',
    "nonzero": ".nonzero()",
}
"""Kinds of reads as the user writes them."""


@dataclass(frozen=True, slots=True)
class _Loop:
    """The lines of one loop; of one line alone, where no loop is known."""

    lines: tuple[SyncLine, ...]
    place: Location
    most: int
    """Reads in the step that held most."""


def find_sync_loops(timeline: Timeline) -> Iterable[Finding]:
    """CD301: loops with many reads in one of the sampled steps of the lead process."""
    process = timeline.lead
    samples = [sample for sample in timeline.syncs if sample.process == process]
    if not samples:
        return
    for loop in _loops(samples):
        owner = ownership_of(loop.place.file, timeline.user_roots)
        if loop.most >= many(samples) and owner != "torch":
            yield _finding(loop, samples, timeline.user_roots)


def many(samples: Sequence[SyncSample]) -> int:
    """Reads in one step from which on they are a finding."""
    return MANY if any(sample.on_device for sample in samples) else MANY_ON_HOST


def _loops(samples: Sequence[SyncSample]) -> Iterable[_Loop]:
    grouped: dict[Location, list[SyncLine]] = {}
    for line in lines_of(samples):
        head = line.place.line if line.loop is None else line.loop
        place = Location(line.place.file, head, line.place.function)
        grouped.setdefault(place, []).append(line)
    for place, lines in grouped.items():
        yield _Loop(tuple(lines), place, _most(place, samples))


def _most(place: Location, samples: Sequence[SyncSample]) -> int:
    return max(
        sum(
            site.count
            for site in sample.sites
            if (site.place.file, site.loop or site.place.line, site.place.function)
            == (place.file, place.line, place.function)
        )
        for sample in samples
    )


def _finding(loop: _Loop, samples: Sequence[SyncSample], user_roots: tuple[str, ...]) -> Finding:
    register = info("CD301")
    on_device = any(sample.on_device for sample in samples)
    looped = any(line.loop is not None for line in loop.lines)
    what = " and ".join(dict.fromkeys(SPELLED.get(line.kind, line.kind) for line in loop.lines))
    title = f"{loop.most} synchronisations in a step{' in a loop' if looped else ''}: {what}"
    if not on_device:
        title += "; each would wait for a GPU"
    return Finding(
        rule="CD301",
        slug=register.slug,
        severity=register.severity,
        confidence="exact",
        family=register.family,
        variable=None,
        title=title,
        location=loop.place,
        ownership=ownership_of(loop.place.file, user_roots),
        count=sum(line.count for line in loop.lines),
        steps=tuple(sorted({step for line in loop.lines for step in line.steps})),
        cost_s=None,
        fix=Fix(
            "read all values at once before the loop (`.tolist()`, `.cpu()`), or stay in tensor "
            "operations",
            register.how,
            None if on_device else "costs nothing on a CPU: tensors that stay there need no change",
        ),
        evidence={
            "most_in_a_step": loop.most,
            "sampled_steps": len(samples),
            "on_device": on_device,
            "complete": all(sample.complete for sample in samples),
            "lines": [
                {
                    "file": line.place.file,
                    "line": line.place.line,
                    "function": line.place.function,
                    "kind": line.kind,
                    "count": line.count,
                    "seconds": line.seconds,
                }
                for line in loop.lines
            ],
        },
    )


RULES: tuple[Rule, ...] = (find_sync_loops,)
