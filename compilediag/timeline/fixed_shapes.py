"""What the `FixedShape`s of a run did, from the records in which it was told.

Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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

FIXED_SHAPE_EVENTS = (
    *(FixedShapeUsed, FixedShapeWarmed, FixedShapeCompiled, PaddingChecked, RowsRun, KneeMeasured),
)


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
    checked: PaddingChecked | None
    """The last check."""
    loops: tuple[RowsRun, ...]
    real: Mapping[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    """How often each real size was called. A size that came after the first `SIZES_KEPT` counts as
    the one it ran at."""
    priced: bool = False
    """The program said what a call at a size costs: padding is not what counts."""
    dims: tuple[tuple[str, ...], ...] = ()
    """Of each axis, the dimensions of arguments: "obs:0"; empty in old journals."""
    asked: Mapping[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    """Batches by the size they came with, before padding and splitting."""
    other_batches: int = 0
    """Batches of sizes that came after the first `ASKED_KEPT`."""
    knee: KneeMeasured | None = None
    """What was measured last."""

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


@dataclass(slots=True)
class _Sum:
    """What is known so far of one `FixedShape`."""

    function: Location
    axes: tuple[str, ...] = ()
    buckets: tuple[tuple[int, ...], ...] = ()
    calls: dict[tuple[int, ...], list[int]] = field(
        default_factory=dict[tuple[int, ...], list[int]]
    )
    warmed: list[FixedShapeWarmed] = field(default_factory=list[FixedShapeWarmed])
    late: list[FixedShapeCompiled] = field(default_factory=list[FixedShapeCompiled])
    checked: PaddingChecked | None = None
    loops: list[RowsRun] = field(default_factory=list[RowsRun])
    real: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    priced: bool = False
    dims: tuple[tuple[str, ...], ...] = ()
    asked: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    other_batches: int = 0
    knee: KneeMeasured | None = None

    def take(self, event: FixedShapeEvent) -> None:
        match event:
            case FixedShapeUsed():
                self.use(event)
            case FixedShapeWarmed():
                self.warmed.append(event)
            case FixedShapeCompiled():
                self.late.append(event)
            case PaddingChecked():
                self.checked = event
            case RowsRun():
                self.loops.append(event)
            case KneeMeasured():
                self.knee = event

    def use(self, event: FixedShapeUsed) -> None:
        """Calls, and the batches that they were made for."""
        self.axes, self.buckets, self.priced = event.axes, event.buckets, event.priced
        self.dims = event.dims
        # Old journals lack what is told since.
        in_graphs = itertools.chain(event.in_graphs, itertools.repeat(0))
        asked = itertools.chain(event.asked, itertools.repeat(()))
        columns = (event.sizes, event.run, event.counts, in_graphs, asked)
        for sizes, run, count, graphs, batch in zip(*columns, strict=False):
            self.count(tuple(sizes), tuple(run), count, graphs)
            if batch:
                self.came(tuple(batch), count)

    def came(self, asked: tuple[int, ...], count: int) -> None:
        """Batches of one size."""
        if asked in self.asked or len(self.asked) < ASKED_KEPT:
            self.asked[asked] = self.asked.get(asked, 0) + count
        else:
            self.other_batches += count

    def count(
        self, sizes: tuple[int, ...], run: tuple[int, ...], count: int, in_graphs: int
    ) -> None:
        """Calls with so many real ones that ran at `run`."""
        known = self.calls.setdefault(run, [0, 0, 0, 0])
        for place, calls in ((0, count), (2, in_graphs)):
            known[place] += calls
            known[place + 1] += calls * math.prod(sizes)
        kept = sizes if sizes in self.real or len(self.real) < SIZES_KEPT else run
        self.real[kept] = self.real.get(kept, 0) + count


def fixed_shapes_of(process: int, events: Iterable[FixedShapeEvent]) -> list[FixedShapeRun]:
    """Each `FixedShape` of one process once, in the order they were first told of."""
    sums: dict[int, _Sum] = {}
    for event in events:
        sums.setdefault(event.number, _Sum(event.function)).take(event)
    return [
        FixedShapeRun(
            process,
            number,
            item.function,
            item.axes,
            item.buckets,
            tuple(SizeRun(run, *calls) for run, calls in sorted(item.calls.items())),
            tuple(item.warmed),
            tuple(item.late),
            item.checked,
            tuple(item.loops),
            item.real,
            item.priced,
            item.dims,
            item.asked,
            item.other_batches,
            item.knee,
        )
        for number, item in sums.items()
    ]
