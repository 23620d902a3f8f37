"""CUDA graphs that torch left out or that were read too late, as torch's texts tell (CD401, CD404).

Without a CUDA device torch leaves out every graph: then nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import cast

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.diagnosis.ownership import ownership_of
from compilediag.diagnosis.rules.cudagraphs import graph_finding
from compilediag.timeline.cudagraphs import skip_reason
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, WarningSeen

_ASKS = ("reduce-overhead", "'triton.cudagraphs': True")
_PLACE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)')
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
)


def cudagraph_skipped(timeline: Timeline) -> Iterable[Finding]:
    """CD401: each reason that torch gave; and a run that asked for graphs and has none."""
    if not _applicable(timeline):
        return
    by_reason: dict[tuple[str, Location | None], list[WarningSeen]] = {}
    for warning in timeline.warnings:
        reason = skip_reason(warning.text)
        if reason is not None:
            by_reason.setdefault((reason, _place(warning.text)), []).append(warning)
    for (reason, place), warnings in by_reason.items():
        fix = next((fix for known, fix in _SKIP_FIXES if known in reason), "remove torch's reason")
        yield graph_finding(
            timeline,
            "CD401",
            f"CUDA graphs were skipped: {reason}",
            fix,
            count=len(warnings),
            steps=(item.step for item in warnings),
            place=place,
            confidence_text=True,
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
    asked = any(word in str(mode) for mode in _modes(timeline) for word in _ASKS)
    ran = [item for item in timeline.cudagraphs if item.lost is None]
    if asked and ran and not any(item.recordings or item.warmups for item in ran):
        yield graph_finding(
            timeline,
            "CD401",
            "CUDA graphs were asked for, none was recorded, and torch gave no reason",
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
                told = cast(dict[str, object], request)
                yield from (told.get("mode"), told.get("options"))


def output_overwritten(timeline: Timeline) -> Iterable[Finding]:
    """CD404: the run ended because an output was read after the next replay had written over it."""
    for process in timeline.processes:
        failure = "" if process.ended is None else process.ended.failure or ""
        if _OVERWRITTEN in failure:
            yield graph_finding(
                timeline,
                "CD404",
                "an output in a CUDA graph's memory was read after a later run had overwritten it",
                "clone the output where it is kept, or call "
                "torch.compiler.cudagraph_mark_step_begin() before each iteration",
                place=_place(failure),
                evidence={"text": failure[:2048]},
                severity="error",
            )


def _applicable(timeline: Timeline) -> bool:
    """A CUDA device is there, or graphs were recorded whatever the environment says."""
    devices = any(process.facts.get("gpus") for process in timeline.processes)
    return devices or any(run.recordings for run in timeline.cudagraphs)


def _place(text: str) -> Location | None:
    """The innermost line of the program that torch names."""
    places = [
        Location(found["file"], int(found["line"]), found["function"].strip())
        for found in _PLACE.finditer(text)
    ]
    own = [place for place in places if ownership_of(place.file, ()) != "torch"]
    return (own or places or [None])[-1]


RULES: tuple[Rule, ...] = (cudagraph_skipped, output_overwritten)
