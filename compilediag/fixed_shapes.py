"""What the `FixedShape`s of a run did, from the records in which it was told.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from compilediag_harness.wire import (
    FixedShapeCompiled,
    FixedShapeUsed,
    FixedShapeWarmed,
    Location,
    PaddingChecked,
    RowsRun,
)

FixedShapeEvent = FixedShapeUsed | FixedShapeWarmed | FixedShapeCompiled | PaddingChecked | RowsRun

FIXED_SHAPE_EVENTS = (FixedShapeUsed, FixedShapeWarmed, FixedShapeCompiled, PaddingChecked, RowsRun)


@dataclass(frozen=True, slots=True)
class SizeRun:
    """The calls of one `FixedShape` at one of its sizes."""

    run: tuple[int, ...]
    """One size for each axis."""
    calls: int
    elements: int
    """Real ones: the product of the sizes of the axes, over all calls."""

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

    @property
    def padding_waste(self) -> float | None:
        """Padding as a share of the real elements; None without a call."""
        real = sum(item.elements for item in self.sizes)
        return sum(item.run_elements for item in self.sizes) / real - 1.0 if real else None


@dataclass(slots=True)
class _Sum:
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

    def take(self, event: FixedShapeEvent) -> None:
        match event:
            case FixedShapeUsed():
                self.axes, self.buckets = event.axes, event.buckets
                for sizes, run, count in zip(event.sizes, event.run, event.counts, strict=False):
                    known = self.calls.setdefault(tuple(run), [0, 0])
                    known[0] += count
                    known[1] += count * math.prod(sizes)
            case FixedShapeWarmed():
                self.warmed.append(event)
            case FixedShapeCompiled():
                self.late.append(event)
            case PaddingChecked():
                self.checked = event
            case RowsRun():
                self.loops.append(event)


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
        )
        for number, item in sums.items()
    ]
