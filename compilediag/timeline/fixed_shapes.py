"""The `FixedShape`s of a run: calls by size, padding, warm-ups, checks and batches that came."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from compilediag_harness import wire

FixedShapeEvent = (
    wire.FixedShapeUsed
    | wire.FixedShapeWarmed
    | wire.FixedShapeCompiled
    | wire.PaddingChecked
    | wire.RowsRun
    | wire.KneeMeasured
)

MAX_REAL_SIZES = 1024
"""Different real sizes of a `FixedShape` that are counted apart: the first."""

MAX_REQUESTED_SIZES = 8192
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
    function: wire.Location
    axes: tuple[str, ...]
    buckets: tuple[tuple[int, ...], ...]
    sizes: tuple[SizeRun, ...]
    """Ascending; calls of a warm-up are not among them."""
    warmed: tuple[wire.FixedShapeWarmed, ...]
    late: tuple[wire.FixedShapeCompiled, ...]
    checks: tuple[wire.PaddingChecked, ...]
    """Of its padding."""
    loops: tuple[wire.RowsRun, ...]
    real: Mapping[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    """How often each real size was called; beyond `MAX_REAL_SIZES` the size it ran at."""
    priced: bool = False
    """The program gave the cost of a call at each size: padding is not what counts."""
    dims: tuple[tuple[str, ...], ...] = ()
    """Of each axis, the dimensions of arguments: "obs:0"; empty in old journals."""
    requested: Mapping[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    """Batches by the size they came with, before padding and splitting."""
    other_batches: int = 0
    """Batches of sizes that came after the first `MAX_REQUESTED_SIZES`."""
    knee: wire.KneeMeasured | None = None

    @property
    def checked(self) -> wire.PaddingChecked | None:
        """The last check."""
        return self.checks[-1] if self.checks else None

    @property
    def padding_waste(self) -> float | None:
        """Padding as a share of the real elements; None without a call."""
        return self.run_elements / self.elements - 1.0 if self.elements else None

    @property
    def elements(self) -> int:
        """Real ones, over all calls."""
        return sum(size.elements for size in self.sizes)

    @property
    def run_elements(self) -> int:
        """Those that ran, padding included."""
        return sum(size.run_elements for size in self.sizes)

    @property
    def graph_calls(self) -> int:
        """Calls in which a CUDA graph was recorded or replayed."""
        return sum(size.graph_calls for size in self.sizes)

    @property
    def graph_padding(self) -> float | None:
        """The share of padding in the elements that ran in those calls; None without one."""
        run = sum(size.graph_calls * math.prod(size.run) for size in self.sizes)
        return 1.0 - sum(size.graph_elements for size in self.sizes) / run if run else None


def collect_fixed_shapes(process: int, events: Iterable[FixedShapeEvent]) -> list[FixedShapeRun]:
    """Collect each `FixedShape` of one process once, in the order of their first events."""
    by_number: dict[int, list[FixedShapeEvent]] = {}
    for event in events:
        by_number.setdefault(event.number, []).append(event)
    return [_make_run(process, number, own) for number, own in by_number.items()]


def _make_run(process: int, number: int, events: Sequence[FixedShapeEvent]) -> FixedShapeRun:
    used = _select(wire.FixedShapeUsed, events)
    sums: dict[tuple[int, ...], list[int]] = {}
    real: dict[tuple[int, ...], int] = {}
    requested: dict[tuple[int, ...], int] = {}
    other_batches = 0
    for batch in used:
        # Old journals lack the last two.
        in_graphs = itertools.chain(batch.in_graphs, itertools.repeat(0))
        batches = itertools.chain(batch.asked, itertools.repeat(()))
        columns = (batch.sizes, batch.run, batch.counts, in_graphs, batches)
        for sizes, run_sizes, calls, graphs, batch_sizes in zip(*columns, strict=False):
            size, run, came = tuple(sizes), tuple(run_sizes), tuple(batch_sizes)
            elements = math.prod(size)
            added = (calls, calls * elements, graphs, graphs * elements)
            sums[run] = [a + b for a, b in zip(sums.get(run, [0] * 4), added, strict=True)]
            counted = size if size in real or len(real) < MAX_REAL_SIZES else run
            real[counted] = real.get(counted, 0) + calls
            if came in requested or (came and len(requested) < MAX_REQUESTED_SIZES):
                requested[came] = requested.get(came, 0) + calls
            elif came:
                other_batches += calls
    return FixedShapeRun(
        process=process,
        number=number,
        function=events[0].function,
        axes=used[-1].axes if used else (),
        buckets=used[-1].buckets if used else (),
        sizes=tuple(SizeRun(run, *total) for run, total in sorted(sums.items())),
        warmed=tuple(_select(wire.FixedShapeWarmed, events)),
        late=tuple(_select(wire.FixedShapeCompiled, events)),
        checks=tuple(_select(wire.PaddingChecked, events)),
        loops=tuple(_select(wire.RowsRun, events)),
        real=real,
        priced=bool(used) and used[-1].priced,
        dims=used[-1].dims if used else (),
        requested=requested,
        other_batches=other_batches,
        knee=next(reversed(_select(wire.KneeMeasured, events)), None),
    )


def _select(kind: type[Kind], events: Iterable[object]) -> list[Kind]:
    return [event for event in events if isinstance(event, kind)]
