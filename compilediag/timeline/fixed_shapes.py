"""What the `FixedShape`s of a run did."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from compilediag_harness.wire import (
    FixedShapeCompiled,
    FixedShapeUsed,
    FixedShapeWarmed,
    KneeMeasured,
    Location,
    PaddingChecked,
    RowsRun,
)

FixedShapeEvent = (
    FixedShapeUsed | FixedShapeWarmed | FixedShapeCompiled | PaddingChecked | RowsRun | KneeMeasured
)

SIZES_KEPT = 1024
"""Different real sizes of a `FixedShape` that are counted apart: the first."""

ASKED_KEPT = 8192
"""Different sizes of batches as they came: the first."""

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class SizeRun:
    """The calls of one `FixedShape` at one of its sizes."""

    run: tuple[int, ...]
    """One size for each axis."""
    calls: int
    elements: int
    """Real ones: the product of the sizes of the axes, over all calls."""
    graph_calls: int = 0
    """Those of the calls in which a CUDA graph was recorded or replayed."""
    graph_elements: int = 0
    """The real ones of these."""

    @property
    def run_elements(self) -> int:
        """Those that ran, padding included."""
        return self.calls * math.prod(self.run)


@dataclass(frozen=True, slots=True)
class FixedShapeRun:
    """One `FixedShape` of one process."""

    process: int
    number: int
    function: Location
    axes: tuple[str, ...]
    buckets: tuple[tuple[int, ...], ...]
    sizes: tuple[SizeRun, ...]
    """Ascending; calls of a warm-up are not among them."""
    warmed: tuple[FixedShapeWarmed, ...]
    late: tuple[FixedShapeCompiled, ...]
    checks: tuple[PaddingChecked, ...]
    """Of its padding."""
    loops: tuple[RowsRun, ...]
    real: Mapping[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    """How often each real size was called. A size that came after the first `SIZES_KEPT` counts as
    the one it ran at."""
    priced: bool = False
    """The program gave the cost of a call at each size: padding is not what counts."""
    dims: tuple[tuple[str, ...], ...] = ()
    """Of each axis, the dimensions of arguments: "obs:0"; empty in old journals."""
    asked: Mapping[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    """Batches by the size they came with, before padding and splitting."""
    other_batches: int = 0
    """Batches of sizes that came after the first `ASKED_KEPT`."""
    knee: KneeMeasured | None = None
    """What was measured last."""

    @property
    def checked(self) -> PaddingChecked | None:
        """The last check."""
        return self.checks[-1] if self.checks else None

    @property
    def padding_waste(self) -> float | None:
        """Padding as a share of the real elements; None without a call."""
        return self.run_elements / self.elements - 1.0 if self.elements else None

    @property
    def elements(self) -> int:
        """Real ones, over all calls."""
        return sum(item.elements for item in self.sizes)

    @property
    def run_elements(self) -> int:
        """Those that ran, padding included."""
        return sum(item.run_elements for item in self.sizes)

    @property
    def graph_calls(self) -> int:
        """Calls in which a CUDA graph was recorded or replayed."""
        return sum(item.graph_calls for item in self.sizes)

    @property
    def graph_padding(self) -> float | None:
        """Of the elements that ran in those calls, the share that was padding; None without one."""
        run = sum(item.graph_calls * math.prod(item.run) for item in self.sizes)
        return 1.0 - sum(item.graph_elements for item in self.sizes) / run if run else None


def fixed_shapes_of(process: int, events: Iterable[FixedShapeEvent]) -> list[FixedShapeRun]:
    """Each `FixedShape` of one process once, in the order of their first events."""
    by_number: dict[int, list[FixedShapeEvent]] = {}
    for event in events:
        by_number.setdefault(event.number, []).append(event)
    return [_run(process, number, own) for number, own in by_number.items()]


def _run(process: int, number: int, events: Sequence[FixedShapeEvent]) -> FixedShapeRun:
    used = _of(FixedShapeUsed, events)
    calls = [call for batch in used for call in _calls(batch)]
    asked, other_batches = _asked(calls)
    return FixedShapeRun(
        process=process,
        number=number,
        function=events[0].function,
        axes=used[-1].axes if used else (),
        buckets=used[-1].buckets if used else (),
        sizes=_sizes(calls),
        warmed=tuple(_of(FixedShapeWarmed, events)),
        late=tuple(_of(FixedShapeCompiled, events)),
        checks=tuple(_of(PaddingChecked, events)),
        loops=tuple(_of(RowsRun, events)),
        real=_real(calls),
        priced=bool(used) and used[-1].priced,
        dims=used[-1].dims if used else (),
        asked=asked,
        other_batches=other_batches,
        knee=next(reversed(_of(KneeMeasured, events)), None),
    )


def _of(kind: type[Kind], events: Iterable[object]) -> list[Kind]:
    return [event for event in events if isinstance(event, kind)]


class _Calls(NamedTuple):
    """Calls with equal sizes."""

    real: tuple[int, ...]
    run: tuple[int, ...]
    calls: int
    in_graphs: int
    asked: tuple[int, ...]
    """The sizes of the batch they were made for; empty where that is not recorded."""


def _calls(batch: FixedShapeUsed) -> Iterator[_Calls]:
    # Old journals lack the last two.
    in_graphs = itertools.chain(batch.in_graphs, itertools.repeat(0))
    asked = itertools.chain(batch.asked, itertools.repeat(()))
    columns = (batch.sizes, batch.run, batch.counts, in_graphs, asked)
    for real, run, count, graphs, sizes in zip(*columns, strict=False):
        yield _Calls(tuple(real), tuple(run), count, graphs, tuple(sizes))


def _sizes(calls: Iterable[_Calls]) -> tuple[SizeRun, ...]:
    sums: dict[tuple[int, ...], list[int]] = {}
    for call in calls:
        elements = math.prod(call.real)
        added = (call.calls, call.calls * elements, call.in_graphs, call.in_graphs * elements)
        sums[call.run] = [a + b for a, b in zip(sums.get(call.run, [0] * 4), added, strict=True)]
    return tuple(SizeRun(run, *total) for run, total in sorted(sums.items()))


def _real(calls: Iterable[_Calls]) -> dict[tuple[int, ...], int]:
    counts: dict[tuple[int, ...], int] = {}
    for call in calls:
        kept = call.real if call.real in counts or len(counts) < SIZES_KEPT else call.run
        counts[kept] = counts.get(kept, 0) + call.calls
    return counts


def _asked(calls: Iterable[_Calls]) -> tuple[dict[tuple[int, ...], int], int]:
    counts: dict[tuple[int, ...], int] = {}
    others = 0
    for call in calls:
        if not call.asked:
            continue
        if call.asked in counts or len(counts) < ASKED_KEPT:
            counts[call.asked] = counts.get(call.asked, 0) + call.calls
        else:
            others += call.calls
    return counts, others
