"""CUDA graphs that are recorded again and again (CD402, CD403, CD405).

Recordings are those that the harness counted, never torch's log lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Finding, Fix, Rule, Severity
from compilediag.diagnosis.ownership import ownership_of
from compilediag.diagnosis.rules.sizes import Padded, called_sizes, padded_to
from compilediag.timeline.compiles import frame_id_of
from compilediag.timeline.cudagraphs import CudagraphRun, frame_of
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import CudagraphRecorded, Location

MOST_SIZES = 4
"""Sizes of one frame that are recorded without a finding."""

CHURN = 3
"""Recordings for new addresses of the same inputs from which on they are said to keep moving."""

_SHOWN = 8
_AGAIN = frozenset({"graph_output_address", "outputs_alive", "order", "thread", "unknown"})

_AGAIN_TOLD = {
    "graph_output_address": "an output of another graph came at another address",
    "outputs_alive": "other outputs of earlier graphs were still in use",
    "order": "it ran after another graph than before",
    "thread": "another thread ran it",
    "unknown": "torch did not say why",
}
_AGAIN_FIX = {
    "thread": "call the compiled function from one thread: each thread has graphs of its own",
    "unknown": "run with TORCH_LOGS=cudagraphs",
}
_KEEP = "call compiled functions in the same order, and clone outputs that are kept over iterations"


def cudagraph_rerecorded(timeline: Timeline) -> Iterable[Finding]:
    """CD402: by frame and reason; new addresses of static inputs are CD405 where they go on."""
    for run in timeline.cudagraphs:
        for (_, reason), items in _grouped(run, lambda item: item.reason).items():
            if reason in _AGAIN:
                told = _AGAIN_TOLD[reason]
            elif reason == "static_address" and len(items) < CHURN:
                told = f"{_inputs(items)} moved to another address"
            else:
                continue
            yield _of_recordings(
                timeline,
                run,
                "CD402",
                items,
                f"a CUDA graph was recorded again: {told}",
                _AGAIN_FIX.get(reason, _STATIC_FIX if reason == "static_address" else _KEEP),
            )


_STATIC_FIX = (
    "copy new values into the tensor (t.copy_(new)) where it is given another one: parameters, "
    "buffers and tensors marked static must keep their address"
)


def too_many_sizes(timeline: Timeline) -> Iterable[Finding]:
    """CD403: every size of a frame is a graph of its own, whether it was compiled anew or not."""
    for run in timeline.cudagraphs:
        for items in _grouped(run, lambda item: item.mode).values():
            number = _number_of_sizes(items)
            if number <= MOST_SIZES:
                continue
            sizes = dict.fromkeys(item.sizes for item in items if item.reason in ("first", "size"))
            padded = _padded(timeline, run, items[0])
            yield _of_recordings(
                timeline,
                run,
                "CD403",
                items,
                f"{number} sizes, and CUDA graphs for each",
                f"pad to {'a few sizes' if padded is None else padded.buckets} with "
                "compilediag.FixedShape: compilediag plan",
                caveat="every size costs a warm-up, a recording and memory of its own",
                more={
                    "graph_sizes": [" ".join(size) for size in list(sizes)[:_SHOWN]],
                    **({} if padded is None else padded.evidence),
                },
            )


def _padded(timeline: Timeline, run: CudagraphRun, item: CudagraphRecorded) -> Padded | None:
    """Buckets for what the function was called with, where the ledger of calls tells it."""
    place = _frame(timeline, run, item)
    if place is None:
        return None
    sizes = called_sizes(timeline, {(run.process, place.file, place.line)})
    return None if sizes is None else padded_to(sizes)


def _number_of_sizes(items: Sequence[CudagraphRecorded]) -> int:
    """How many sizes the graphs of one frame are of. Several graphs that are the first of one
    compile are its partitions: they take tensors of different sizes, at one size of the call."""
    by_compile: dict[str, tuple[set[tuple[str, ...]], set[tuple[str, ...]]]] = {}
    partitions: dict[str, int] = {}
    for item in items:
        first, more = by_compile.setdefault(item.compile_id, (set(), set()))
        if item.reason == "first":
            first.add(item.sizes)
            partitions[item.compile_id] = partitions.get(item.compile_id, 0) + 1
        elif item.reason == "size":
            more.add(item.sizes)
    compiled = {frozenset(first) for first, _ in by_compile.values()}
    # Rounded up: a partition need not take a tensor that changes.
    again = (
        -(-len(more) // max(partitions.get(compile_id, 1), 1))
        for compile_id, (_, more) in by_compile.items()
    )
    return len(compiled) + sum(again)


def static_address_churn(timeline: Timeline) -> Iterable[Finding]:
    """CD405: torch 2.13 records again at each change, without a limit and without a word."""
    for run in timeline.cudagraphs:
        for (_, reason), items in _grouped(run, lambda item: item.reason).items():
            if reason == "static_address" and len(items) >= CHURN:
                yield _of_recordings(
                    timeline,
                    run,
                    "CD405",
                    items,
                    f"{_inputs(items)} keeps moving: {len(items)} recordings for new addresses",
                    _STATIC_FIX,
                    severity="error",
                )


# --- in common ----------------------------------------------------------------------------------


def _grouped(
    run: CudagraphRun, key: Callable[[CudagraphRecorded], str]
) -> dict[tuple[tuple[int, str], str], list[CudagraphRecorded]]:
    """The recordings of each frame, taken apart."""
    found: dict[tuple[tuple[int, str], str], list[CudagraphRecorded]] = {}
    for item in run.recorded:
        found.setdefault((frame_of(item), key(item)), []).append(item)
    return found


def _inputs(items: Sequence[CudagraphRecorded]) -> str:
    names = dict.fromkeys(name for item in items for name in item.moved)
    told = ", ".join(list(names)[:3]) or "a static input"
    return f"{told} and {len(names) - 3} more" if len(names) > 3 else told


def _of_recordings(
    timeline: Timeline,
    run: CudagraphRun,
    code: str,
    items: Sequence[CudagraphRecorded],
    title: str,
    fix: str,
    *,
    caveat: str | None = None,
    severity: Severity | None = None,
    more: dict[str, object] | None = None,
) -> Finding:
    moved_at = next((place for item in items for place in item.moved_at if place), None)
    ids = list(dict.fromkeys(item.compile_id for item in items))
    return graph_finding(
        timeline,
        code,
        title,
        fix,
        count=len(items),
        steps=(item.step for item in items),
        place=moved_at or _frame(timeline, run, items[0]),
        caveat=caveat,
        severity=severity,
        cost_s=sum(item.seconds for item in items),
        variable=items[0].moved[0] if items[0].moved else None,
        evidence={
            "compile_ids": ids[:_SHOWN],
            "mode": items[0].mode,
            "recordings": len(items),
            "replays": sum(run.counts[item].replays for item in ids if item in run.counts),
            "threads": len({item.thread for item in items}),
            **(more or {}),
        },
    )


def _frame(timeline: Timeline, run: CudagraphRun, item: CudagraphRecorded) -> Location | None:
    """The compiled function, where its compile was seen."""
    epoch, frame = frame_of(item)
    return next(
        (
            made.frame
            for made in timeline.compiles
            if (made.process, made.epoch) == (run.process, epoch)
            and frame_id_of(made.compile_id) == frame
        ),
        None,
    )


def graph_finding(
    timeline: Timeline,
    code: str,
    title: str,
    fix: str,
    *,
    count: int = 1,
    steps: Iterable[int] = (),
    place: Location | None = None,
    caveat: str | None = None,
    severity: Severity | None = None,
    confidence_text: bool = False,
    cost_s: float | None = None,
    variable: str | None = None,
    evidence: dict[str, object],
) -> Finding:
    """A finding about CUDA graphs, with what the register says of its code."""
    register = info(code)
    return Finding(
        rule=code,
        slug=register.slug,
        severity=severity or register.severity,
        confidence="text" if confidence_text else "exact",
        family=register.family,
        variable=variable,
        title=title,
        location=place,
        ownership="user" if place is None else ownership_of(place.file, timeline.user_roots),
        count=count,
        steps=tuple(sorted(set(steps))),
        cost_s=cost_s,
        fix=Fix(fix, register.how, caveat),
        evidence=evidence,
    )


RULES: tuple[Rule, ...] = (
    cudagraph_rerecorded,
    too_many_sizes,
    static_address_churn,
)
