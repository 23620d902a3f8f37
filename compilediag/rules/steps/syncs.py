"""CD301: reads of tensors, one by one in a loop, that each make the host wait for the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding, pick
from compilediag.timeline.devices import SyncLine, lines_of
from compilediag.timeline.timeline import SampledStep, Timeline
from compilediag_harness.wire import Location

MIN_READS = 16
"""Reads in one step and one loop from which on they are a finding. A loss and a few metrics in each
step are what everybody reads."""

MIN_READS_ON_HOST = 64
"""The same where no tensor is on a device: nobody knows which of them would be, and a batch is
often put together on the host."""

AS_WRITTEN = {
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


def find_sync_loops(timeline: Timeline) -> Iterable[Finding]:
    """CD301: loops with many reads in one of the sampled steps of the lead process."""
    process = timeline.lead
    samples = [sample for sample in timeline.syncs if sample.process == process]
    loops: dict[Location, list[SyncLine]] = {}
    for line in lines_of(samples):
        loops.setdefault(_head(line.place, line.loop), []).append(line)
    for head, lines in loops.items():
        reads = max(
            sum(site.count for site in sample.sites if _head(site.place, site.loop) == head)
            for sample in samples
        )
        if reads >= min_reads(samples):
            finding = _finding(timeline, head, lines, reads, samples)
            if finding.ownership != "torch":
                yield finding


def min_reads(samples: Sequence[SampledStep]) -> int:
    """Reads in one step from which on they are a finding."""
    return MIN_READS if any(sample.on_device for sample in samples) else MIN_READS_ON_HOST


def _head(line: Location, loop: int | None) -> Location:
    """The head of the loop that a line is in; the line itself, where no loop is known."""
    return Location(line.file, loop or line.line, line.function)


def _finding(
    timeline: Timeline,
    head: Location,
    lines: Sequence[SyncLine],
    reads: int,
    samples: Sequence[SampledStep],
) -> Finding:
    on_device = any(sample.on_device for sample in samples)
    looped = any(line.loop is not None for line in lines)
    what = " and ".join(dict.fromkeys(AS_WRITTEN.get(line.kind, line.kind) for line in lines))
    title = f"{reads} synchronisations in a step{' in a loop' if looped else ''}: {what}"
    return make_finding(
        timeline,
        "CD301",
        title if on_device else f"{title}; each would wait for a GPU",
        "read all values at once before the loop (`.tolist()`, `.cpu()`), or stay in tensor "
        "operations",
        caveat=None
        if on_device
        else "costs nothing on a CPU: tensors that stay there need no change",
        location=head,
        count=sum(line.count for line in lines),
        steps=(step for line in lines for step in line.steps),
        evidence={
            "most_in_a_step": reads,
            "sampled_steps": len(samples),
            "on_device": on_device,
            "complete": all(sample.complete for sample in samples),
            "lines": [
                {**asdict(line.place), **pick(line, "kind", "count", "seconds")} for line in lines
            ],
        },
    )


RULES: tuple[Rule, ...] = (find_sync_loops,)
