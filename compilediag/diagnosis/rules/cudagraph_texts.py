"""CUDA graphs that torch left out or that were read too late, from torch's messages (CD401, CD404).

Without a CUDA device torch leaves out every graph: then nothing is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import cast

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.diagnosis.rules.make_finding import make_finding
from compilediag.timeline.devices import skip_reason
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, WarningSeen

_REQUESTS = ("reduce-overhead", "'triton.cudagraphs': True")
_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)')
_OVERWRITTEN = "accessing tensor output of CUDAGraphs that has been overwritten"

_SKIP_FIXES = (
    ("mutated inputs", "write into a buffer or parameter of the module, or return the new value"),
    ("cpu device", "move that tensor to the device before the compiled call"),
    ("multiple devices", "keep one compiled function on one device"),
    ("symbolic shapes", "pad to a few sizes (compilediag plan), and compile with dynamic=False"),
    ("incompatible op", "take the operator out of the compiled function, or use graph partition"),
    ("non-Tensor inputs", "pass tensors only"),
    ("storage mutation", "do not exchange the storage of an input: copy into it"),
    ("caching allocator", "use torch's caching allocator: graphs keep their memory in its pools"),
    ("re-recording limit", "give its inputs fixed addresses: see CD402 and CD405 of this function"),
    ("", "remove torch's reason"),
)
"""What torch's reason contains, and the fix for it; the first that fits."""


def cudagraph_skipped(timeline: Timeline) -> Iterable[Finding]:
    """CD401: each reason that torch gave; and a run that requested graphs and has none."""
    if not _applicable(timeline):
        return
    by_reason: dict[tuple[str, Location | None], list[WarningSeen]] = {}
    for warning in timeline.warnings:
        reason = skip_reason(warning.text)
        if reason is not None:
            by_reason.setdefault((reason, _named_line(warning.text)), []).append(warning)
    for (reason, location), warnings in by_reason.items():
        yield make_finding(
            timeline,
            "CD401",
            f"CUDA graphs were skipped: {reason}",
            next(fix for known, fix in _SKIP_FIXES if known in reason),
            location=location,
            confidence="text",
            count=len(warnings),
            steps=(item.step for item in warnings),
            evidence={
                "reason": reason,
                "text": warnings[0].text[:2048],
                "compile_ids": sorted({item.compile_id for item in warnings if item.compile_id}),
            },
        )
    if not by_reason:
        yield from _silently_none(timeline)


def _silently_none(timeline: Timeline) -> Iterator[Finding]:
    """Zero skips prove nothing: a run can have no graph, no counted skip and no message."""
    requested = any(word in str(mode) for mode in _modes(timeline) for word in _REQUESTS)
    ran = [item for item in timeline.cudagraphs if item.lost is None]
    if requested and ran and not any(item.recordings or item.warmups for item in ran):
        yield make_finding(
            timeline,
            "CD401",
            "CUDA graphs were requested, but none was recorded, and torch gave no reason",
            "check cudagraph_policy, cudagraph_capture_sizes and whether anything of the graph is "
            "on the device",
            evidence={"skips": sum(item.skips or 0 for item in ran)},
        )


def _modes(timeline: Timeline) -> Iterator[object]:
    """The modes and options that `torch.compile` was called with."""
    for process in timeline.processes:
        requests = process.facts.get("compile_requests")
        for request in cast(list[object], requests) if isinstance(requests, list) else ():
            if isinstance(request, dict):
                options = cast(dict[str, object], request)
                yield from (options.get("mode"), options.get("options"))


def output_overwritten(timeline: Timeline) -> Iterable[Finding]:
    """CD404: the run ended because an output was read after the next replay had written over it."""
    for process in timeline.processes:
        failure = "" if process.ended is None else process.ended.failure or ""
        if _OVERWRITTEN in failure:
            yield make_finding(
                timeline,
                "CD404",
                "an output in a CUDA graph's memory was read after a later run had overwritten it",
                "clone the output where it is kept, or call "
                "torch.compiler.cudagraph_mark_step_begin() before each iteration",
                location=_named_line(failure),
                severity="error",
                evidence={"text": failure[:2048]},
            )


def _applicable(timeline: Timeline) -> bool:
    """A CUDA device is there, or graphs were recorded whatever the environment facts are."""
    devices = any(process.facts.get("gpus") for process in timeline.processes)
    return devices or any(run.recordings for run in timeline.cudagraphs)


def _named_line(text: str) -> Location | None:
    """The innermost line of the program that torch names."""
    lines = [
        Location(found["file"], int(found["line"]), found["function"].strip())
        for found in _LINE.finditer(text)
    ]
    own = [line for line in lines if ownership_of(line.file, ()) != "torch"]
    return (own or lines or [None])[-1]


RULES: tuple[Rule, ...] = (cudagraph_skipped, output_overwritten)
