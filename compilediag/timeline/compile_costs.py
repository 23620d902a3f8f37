"""Guards, warm calls and memory of compiles, from the records beside the compiles themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compilediag.receipt.schema.compile_costs import CompileMemory
from compilediag.timeline.compiles import CompileId
from compilediag_harness.wire import (
    CompileMemoryRead,
    GuardsEvaluated,
    Location,
    WarmCallsTimed,
)


@dataclass(frozen=True, slots=True)
class GuardSet:
    """The guards of one compile."""

    id: CompileId
    eval_us: float | None
    """Microseconds of one evaluation that follows others; None where it was not measured."""
    evaluated: int | None
    kinds: tuple[tuple[str, int], ...]
    lines: tuple[tuple[Location, int], ...]
    """The lines that most are for."""
    in_python: int | None
    python_texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WarmCalls:
    """Calls of one callable in which nothing compiled."""

    process: int
    function: Location
    calls: int
    before_graph_us: float | None
    """Median; None where code that is not compiled runs before the first graph."""
    runs: tuple[tuple[Location, int], ...]
    """How often the graph of each frame ran in all of them."""


def guard_sets_of(process: int, events: Iterable[GuardsEvaluated]) -> list[GuardSet]:
    """One for each record."""
    return [
        GuardSet(
            id=CompileId(process, event.epoch, event.compile_id),
            eval_us=event.eval_us,
            evaluated=event.evaluated,
            kinds=tuple(zip(event.kinds, event.counts, strict=False)),
            lines=tuple(zip(event.lines, event.line_counts, strict=False)),
            in_python=event.in_python,
            python_texts=event.python_texts,
        )
        for event in events
    ]


def warm_calls_of(process: int, records: Sequence[WarmCallsTimed]) -> list[WarmCalls]:
    """The newest record has all."""
    newest = records[-1]
    runs: dict[int, list[tuple[Location, int]]] = {}
    for caller, frame, count in zip(newest.callers, newest.frames, newest.runs, strict=False):
        runs.setdefault(caller, []).append((frame, count))
    columns = zip(newest.functions, newest.calls, newest.before_graph_us, strict=False)
    return [
        WarmCalls(process, function, calls, before_us, tuple(runs.get(index, ())))
        for index, (function, calls, before_us) in enumerate(columns)
    ]


def compile_memory_of(process: int, reads: Iterable[CompileMemoryRead]) -> list[CompileMemory]:
    """One for each record."""
    return [
        CompileMemory(
            compile_id=read.compile_id,
            epoch=read.epoch,
            process=process,
            forward=read.forward,
            grown_bytes=read.after - read.before,
            peak_bytes=read.peak_after if read.peak_after > read.peak_before else None,
        )
        for read in reads
    ]
