"""CD303: a span that claims to be the model's time holds something else, or only the launch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from statistics import median

from compilediag.diagnosis.figures.goodput import MAIN_THREAD
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding, pick
from compilediag.rules.steps.syncs import min_reads
from compilediag.timeline.devices import lines_of
from compilediag.timeline.timeline import Timeline, spans_of

MIN_STEPS = 3
"""Steps with device times from which on launch time is distinguished from the model's."""

LAUNCH_RATIO = 2.0
"""Device time over host time from which on the host's is the launch alone."""

_MODEL_NAME = re.compile(
    r"(?:(?:^|.*[^a-z])(?:forward|inference)|model)(?:[^a-z]*(?:pass|time|ms))?", re.IGNORECASE
)


def claims_the_model(name: str) -> bool:
    """Whether a span is named as the model's time: "forward", "lens_forward"."""
    return _MODEL_NAME.fullmatch(name) is not None


def find_reads_in_model_time(timeline: Timeline) -> Iterable[Finding]:
    """CD303: spans of the model's time with many reads of tensors in one sampled step."""
    process = timeline.lead
    samples = [sample for sample in timeline.syncs if sample.process == process]
    names = {name for sample in samples for site in sample.sites for name in site.spans}
    for name in sorted(filter(claims_the_model, names)):
        reads = max(
            sum(site.count for site in sample.sites if name in site.spans) for sample in samples
        )
        if reads < min_reads(samples):
            continue
        lines = lines_of(samples, lambda site, name=name: name in site.spans)
        yield make_finding(
            timeline,
            "CD303",
            f"the time of `{name}` holds {reads} reads of tensors in a step, not only the model",
            "put the span around the call of the model alone, and the bookkeeping in one of its "
            "own",
            variable=name,
            location=lines[0].place,
            count=sum(line.count for line in lines),
            steps=(step for line in lines for step in line.steps),
            evidence={
                "span": name,
                "reads_in_a_step": reads,
                "sampled_steps": len(samples),
                "lines": [
                    {**pick(line.place, "file", "line"), "kind": line.kind} for line in lines
                ],
            },
        )


def find_launch_times(timeline: Timeline) -> Iterable[Finding]:
    """CD303: the program's span "forward" ends long before the device has done the forward."""
    process = timeline.lead
    if not timeline.device_steps:
        return
    spans = spans_of(timeline, process)
    named = {s.step for s in spans if s.name == "forward" and s.thread == MAIN_THREAD}
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
    if len(ratios) >= MIN_STEPS and (ratio := median(ratios.values())) >= LAUNCH_RATIO:
        yield make_finding(
            timeline,
            "CD303",
            f"the time of `forward` is launch time: the device works {ratio:.1f} times as long",
            "read the device's time (`steps.device_timing`); to time by hand use torch.cuda.Event, "
            "not a clock of the host",
            variable="forward",
            count=len(ratios),
            steps=ratios,
            evidence={"span": "forward", "device_over_host": ratio, "steps": len(ratios)},
        )


RULES: tuple[Rule, ...] = (find_reads_in_model_time, find_launch_times)
