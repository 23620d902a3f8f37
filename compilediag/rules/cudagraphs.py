"""CUDA graphs that torch left out or that were read too late, from its messages (CD401, CD404), and
those that are recorded again and again (CD402, CD403, CD405), as the harness counted them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from compilediag.diagnosis.codes import Severity
from compilediag.diagnosis.findings import Finding
from compilediag.rules.make_finding import make_finding
from compilediag.rules.sizes.advice import choose_buckets, find_called_sizes
from compilediag.timeline.compiles import FrameId, get_compile_id
from compilediag.timeline.devices import CudagraphRun, parse_skip_reason
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import CudagraphRecorded, Location, WarningSeen

MAX_SIZES = 4
"""Sizes of one frame that are recorded without a finding."""

CHURN = 3
"""Recordings for new addresses of the same inputs from which on they count as moving."""

_SHOWN = 8

_KEEP = (
    "call compiled functions in the same order, from one thread, and clone outputs that are kept "
    "over iterations"
)
_AGAIN = {
    "graph_output_address": "an output of another graph came at another address",
    "outputs_alive": "other outputs of earlier graphs were still in use",
    "order": "it ran after another graph than before",
    "thread": "another thread ran it",
    "unknown": "torch did not say why",
}
"""Reasons for recording again."""

_STATIC_FIX = (
    "copy new values into the tensor (t.copy_(new)) where it is given another one: parameters, "
    "buffers and tensors marked static must keep their address"
)


def find_rerecordings(timeline: Timeline) -> Iterable[Finding]:
    """CD402: repeated recordings by frame and reason; CD405 for new addresses of static inputs that
    go on: torch 2.13 records again at each change, without a limit and without a word."""
    for run in timeline.cudagraphs:
        for reason, recordings in _group_recordings(run, lambda recording: recording.reason):
            moved = reason == "static_address"
            again = "a static input moved to another address" if moved else _AGAIN.get(reason)
            fix = _STATIC_FIX if moved else _KEEP
            if moved and len(recordings) >= CHURN:
                title = f"a static input keeps moving: {len(recordings)} graphs for its addresses"
                yield _make_graph_finding(
                    timeline, run, "CD405", recordings, title, fix, severity="error"
                )
            elif again is not None:
                title = f"a CUDA graph was recorded again: {again}"
                yield _make_graph_finding(timeline, run, "CD402", recordings, title, fix)


def find_many_sizes(timeline: Timeline) -> Iterable[Finding]:
    """CD403: every size of a frame is a graph of its own, whether it was compiled anew or not."""
    for run in timeline.cudagraphs:
        for _, recordings in _group_recordings(run, lambda recording: recording.mode):
            count = _count_sizes(recordings)
            if count <= MAX_SIZES:
                continue
            sizes = dict.fromkeys(
                recording.sizes for recording in recordings if recording.reason in ("first", "size")
            )
            # Buckets for what the function was called with, where its calls were recorded.
            at = _find_frame(timeline, recordings[0])
            called = at and find_called_sizes(timeline, {(run.process, at.file, at.line)})
            padded = choose_buckets(called) if called is not None else None
            yield _make_graph_finding(
                timeline,
                run,
                "CD403",
                recordings,
                f"{count} sizes, and CUDA graphs for each",
                f"pad to {'a few sizes' if padded is None else padded.named} with "
                "compilediag.FixedShape: compilediag plan",
                caveat="every size costs a warm-up, a recording and memory of its own",
                more={
                    "graph_sizes": [" ".join(size) for size in list(sizes)[:_SHOWN]],
                    **({} if padded is None else padded.evidence),
                },
            )


def _count_sizes(recordings: Sequence[CudagraphRecorded]) -> int:
    """Count the sizes that the graphs of one frame are of. Several graphs that are the first of one
    compile are its partitions: they take tensors of different sizes, at one size of the call."""
    firsts: dict[str, list[tuple[str, ...]]] = {}
    more: dict[str, set[tuple[str, ...]]] = {}
    for recording in recordings:
        first = firsts.setdefault(recording.compile_id, [])
        if recording.reason == "first":
            first.append(recording.sizes)
        elif recording.reason == "size":
            more.setdefault(recording.compile_id, set()).add(recording.sizes)
    compiled = {frozenset(sizes) for sizes in firsts.values()}
    # Rounded up: a partition need not take a tensor that changes.
    again = (-(-len(sizes) // max(len(firsts[key]), 1)) for key, sizes in more.items())
    return len(compiled) + sum(again)


def _group_recordings(
    run: CudagraphRun, key: Callable[[CudagraphRecorded], str]
) -> Iterable[tuple[str, list[CudagraphRecorded]]]:
    """Group the recordings of each frame by key."""
    groups: dict[tuple[FrameId, str], list[CudagraphRecorded]] = {}
    for recording in run.recorded:
        group = get_compile_id(recording).frame, key(recording)
        groups.setdefault(group, []).append(recording)
    return ((by, recordings) for (_, by), recordings in groups.items())


def _make_graph_finding(
    timeline: Timeline,
    run: CudagraphRun,
    code: str,
    recordings: Sequence[CudagraphRecorded],
    title: str,
    fix: str,
    *,
    caveat: str | None = None,
    severity: Severity | None = None,
    more: dict[str, object] | None = None,
) -> Finding:
    moved_at = next((line for recording in recordings for line in recording.moved_at if line), None)
    moved = list(dict.fromkeys(name for recording in recordings for name in recording.moved))
    ids = list(dict.fromkeys(recording.compile_id for recording in recordings))
    return make_finding(
        timeline,
        code,
        title,
        fix,
        caveat=caveat,
        location=moved_at or _find_frame(timeline, recordings[0]),
        variable=next(iter(moved), None),
        severity=severity,
        count=len(recordings),
        steps=(recording.step for recording in recordings),
        cost_s=sum(recording.seconds for recording in recordings),
        evidence={
            "compile_ids": ids[:_SHOWN],
            "mode": recordings[0].mode,
            "recordings": len(recordings),
            "replays": sum(
                run.counts[compile_id].replays for compile_id in ids if compile_id in run.counts
            ),
            "threads": len({recording.thread for recording in recordings}),
            **({"together": moved[1:]} if moved[1:] else {}),
            **(more or {}),
        },
        called_from=recordings[0],
    )


def _find_frame(timeline: Timeline, event: CudagraphRecorded) -> Location | None:
    """Find the compiled function; None where its compile was not seen."""
    key = get_compile_id(event).frame
    return next((made.frame for made in timeline.compiles if made.key == key), None)


_REQUESTS = ("reduce-overhead", "'triton.cudagraphs': True")
_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)')
_OVERWRITTEN = "accessing tensor output of CUDAGraphs that has been overwritten"
_SKIP_FIX = "remove torch's reason from the compiled function: the page has the usual ones"


def find_skipped_cudagraphs(timeline: Timeline) -> Iterable[Finding]:
    """CD401: each reason that torch gave; and a run that requested graphs and has none."""
    devices = any(process.facts.get("gpus") for process in timeline.processes)
    if not devices and not any(run.recordings for run in timeline.cudagraphs):
        return
    by_reason: dict[tuple[str, Location | None], list[WarningSeen]] = {}
    for warning in timeline.warnings:
        reason = parse_skip_reason(warning.text)
        if reason is not None:
            by_reason.setdefault((reason, _find_named_line(warning.text)), []).append(warning)
    for (reason, location), warnings in by_reason.items():
        yield make_finding(
            timeline,
            "CD401",
            f"CUDA graphs were skipped: {reason}",
            _SKIP_FIX,
            location=location,
            confidence="text",
            count=len(warnings),
            steps=(warning.step for warning in warnings),
            evidence={
                "reason": reason,
                "text": warnings[0].text[:2048],
                "compile_ids": sorted(
                    {warning.compile_id for warning in warnings if warning.compile_id}
                ),
            },
        )
    # Zero skips prove nothing: a run can have no graph, no counted skip and no message.
    ran = [run for run in timeline.cudagraphs if run.lost is None]
    if by_reason or not ran or any(run.recordings or run.warmups for run in ran):
        return
    if any(word in mode for mode in _iterate_modes(timeline) for word in _REQUESTS):
        yield make_finding(
            timeline,
            "CD401",
            "CUDA graphs were requested, but none was recorded, and torch gave no reason",
            "check cudagraph_policy, cudagraph_capture_sizes and whether anything of the graph is "
            "on the device",
            evidence={"skips": sum(run.skips or 0 for run in ran)},
        )


def _iterate_modes(timeline: Timeline) -> Iterator[str]:
    """Iterate the modes and options that `torch.compile` was called with, as one text each."""
    for process in timeline.processes:
        requests = process.facts.get("compile_requests")
        for request in cast(list[object], requests) if isinstance(requests, list) else ():
            if isinstance(request, dict):
                options = cast(dict[str, object], request)
                yield f"{options.get('mode')} {options.get('options')}"


def find_overwritten_outputs(timeline: Timeline) -> Iterable[Finding]:
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
                location=_find_named_line(failure),
                severity="error",
                evidence={"text": failure[:2048]},
            )


def _find_named_line(text: str) -> Location | None:
    """Find the innermost line of the program that torch names; else the innermost line."""
    lines = [
        Location(match["file"], int(match["line"]), match["function"].strip())
        for match in _LINE.finditer(text)
    ]
    own = [line for line in lines if classify_ownership(line.file, ()) != "torch"]
    return (own or lines or [None])[-1]
