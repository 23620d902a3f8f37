"""CD303: a span that claims to be the model's time holds something else, or only the launch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from statistics import median

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.figures.goodput import MAIN_THREAD
from compilediag.diagnosis.figures.span_seconds import spans_of
from compilediag.diagnosis.findings import Finding, Fix, Rule
from compilediag.diagnosis.ownership import ownership_of
from compilediag.diagnosis.rules.syncs import many
from compilediag.timeline.syncs import SyncLine, SyncSample, SyncSite, lines_of
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

FEWEST = 3
"""Steps with device times from which on launch time is told from the model's."""

LAUNCH_RATIO = 2.0
"""Device time over host time from which on the host's is the launch alone."""

_MODEL_NAME = re.compile(
    r"(?:(?:^|.*[^a-z])(?:forward|inference)|model)(?:[^a-z]*(?:pass|time|ms))?", re.IGNORECASE
)


def claims_the_model(name: str) -> bool:
    """Whether a span's name says that its time is the model's: "forward", "lens_forward"."""
    return _MODEL_NAME.fullmatch(name) is not None


def find_reads_in_model_time(timeline: Timeline) -> Iterable[Finding]:
    """CD303: spans of the model's time with many reads of tensors in one sampled step."""
    process = timeline.lead
    samples = [sample for sample in timeline.syncs if sample.process == process]
    if not samples:
        return
    names = {name for s in samples for site in s.sites for name in site.spans}
    for name in sorted(filter(claims_the_model, names)):
        lines = lines_of(samples, lambda site, name=name: name in site.spans)
        most = max(_reads(sample, name) for sample in samples)
        if most >= many(samples):
            yield _holding_reads(timeline, name, lines, most, len(samples))


def _reads(sample: SyncSample, name: str) -> int:
    return sum(site.count for site in sample.sites if _is_in(site, name))


def _is_in(site: SyncSite, name: str) -> bool:
    return name in site.spans


def _holding_reads(
    timeline: Timeline, name: str, lines: tuple[SyncLine, ...], most: int, sampled: int
) -> Finding:
    return _finding(
        timeline,
        name,
        f"the time of `{name}` holds {most} reads of tensors in a step, not only the model",
        lines[0].place,
        sum(line.count for line in lines),
        tuple(sorted({step for line in lines for step in line.steps})),
        "put the span around the call of the model alone, and the bookkeeping in one of its own",
        {
            "span": name,
            "reads_in_a_step": most,
            "sampled_steps": sampled,
            "lines": [
                {"file": line.place.file, "line": line.place.line, "kind": line.kind}
                for line in lines
            ],
        },
    )


def find_launch_times(timeline: Timeline) -> Iterable[Finding]:
    """CD303: the program's span "forward" ends long before the device has done the forward."""
    process = timeline.lead
    if not timeline.device_steps:
        return
    named = {s.step for s in spans_of(timeline, process) if _is_forward(s.name, s.thread)}
    host_s = {
        step.number: step.forward_s
        for step in timeline.steps
        if step.process == process and step.number in named and step.compile_s == 0.0
    }
    ratios = {
        item.number: item.forward_s / host
        for item in timeline.device_steps
        if item.process == process and item.forward_s and (host := host_s.get(item.number))
    }
    if len(ratios) >= FEWEST and median(ratios.values()) >= LAUNCH_RATIO:
        ratio = median(ratios.values())
        yield _finding(
            timeline,
            "forward",
            f"the time of `forward` is launch time: the device works {ratio:.1f} times as long",
            None,
            len(ratios),
            tuple(sorted(ratios)),
            "read the device's time (`steps.device_timing`); to time by hand use "
            "torch.cuda.Event, not a clock of the host",
            {"span": "forward", "device_over_host": ratio, "steps": len(ratios)},
        )


def _is_forward(name: str, thread: int) -> bool:
    return name == "forward" and thread == MAIN_THREAD


def _finding(
    timeline: Timeline,
    name: str,
    title: str,
    place: Location | None,
    count: int,
    steps: tuple[int, ...],
    fix: str,
    evidence: dict[str, object],
) -> Finding:
    register = info("CD303")
    return Finding(
        rule="CD303",
        slug=register.slug,
        severity=register.severity,
        confidence="exact",
        family=register.family,
        variable=name,
        title=title,
        location=place,
        ownership="user" if place is None else ownership_of(place.file, timeline.user_roots),
        count=count,
        steps=steps,
        cost_s=None,
        fix=Fix(fix, register.how),
        evidence=evidence,
    )


RULES: tuple[Rule, ...] = (find_reads_in_model_time, find_launch_times)
