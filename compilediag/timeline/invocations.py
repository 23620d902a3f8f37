"""The calls of compiled callables, from the batches in which they were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compilediag_harness.wire import CompiledCallsMade, EagerStanceCalls, Location


@dataclass(frozen=True, slots=True)
class ShapeCount:
    """How often a callable was called with one combination of shapes."""

    shapes: str | None
    """None: not distinguished, because there were too many."""
    count: int
    samples: int | None
    """Leading size of the first tensor, of one call."""
    elements: int | None


@dataclass(frozen=True, slots=True)
class Invocations:
    """The calls of one compiled callable of one process."""

    process: int
    function: Location
    calls: int
    shapes: tuple[ShapeCount, ...]
    """The most frequent first."""
    at: tuple[float, ...]
    """When the calls began that were recorded one by one: all, or the first so many."""
    samples_at: tuple[int | None, ...]
    """The samples of each, parallel to `at`."""
    elements_at: tuple[int | None, ...] = ()
    """The elements of each."""
    tensors: tuple[str, ...] = ()
    """The tensors of its first call, by parameter and key; empty where that is not known."""
    padded: int = 0
    """Calls that a `FixedShape` made, at its own sizes."""


Shape = tuple["str | None", "int | None", "int | None"]
"""Shapes, samples, elements."""

OTHERS = Location("", 0, "other callables")


@dataclass(frozen=True, slots=True)
class StanceCalls:
    """Calls of one callable under a stance that compiles nothing."""

    process: int
    function: Location
    stance: str
    """"force_eager" or "eager_on_recompile"."""
    calls: int
    set_at: Location | None
    """The user's line that set the stance."""


def stance_calls_of(process: int, batches: Iterable[EagerStanceCalls]) -> list[StanceCalls]:
    """The calls of one process, added up by callable, stance and where it was set."""
    sums: dict[tuple[Location, str, Location | None], int] = {}
    for batch in batches:
        columns = (batch.functions, batch.stances, batch.set_at)
        for key, count in zip(zip(*columns, strict=False), batch.counts, strict=False):
            sums[key] = sums.get(key, 0) + count
    return [
        StanceCalls(process, function, stance, calls, set_at)
        for (function, stance, set_at), calls in sums.items()
    ]


@dataclass(slots=True)
class _Sum:
    """The calls of one callable so far."""

    function: Location
    shapes: dict[Shape, int] = field(default_factory=dict[Shape, int])
    at: list[tuple[float, int | None, int | None]] = field(
        default_factory=list[tuple[float, "int | None", "int | None"]]
    )
    tensors: tuple[str, ...] = ()
    padded: int = 0


def invocations_of(process: int, batches: Iterable[CompiledCallsMade]) -> list[Invocations]:
    """Each callable of one process once, in the order they were first called."""
    sums: dict[int, _Sum] = {}
    for batch in batches:
        _add(batch, sums)
    return [_summed(process, item) for item in sums.values()]


def _add(batch: CompiledCallsMade, sums: dict[int, _Sum]) -> None:
    functions = dict(zip(batch.numbers, batch.functions, strict=False))
    tensors = dict(zip(batch.numbers, batch.tensors, strict=False))
    rows = list(_rows(batch))
    for number, shape, count in rows:
        item = sums.setdefault(number, _Sum(functions.get(number, OTHERS)))
        item.tensors = item.tensors or tensors.get(number, ())
        item.shapes[shape] = item.shapes.get(shape, 0) + count
    for number, padded in zip(batch.numbers, batch.padded, strict=False):
        if number in sums:
            sums[number].padded += padded
    for index, at in zip(batch.order, batch.at, strict=False):
        if 0 <= index < len(rows):
            number, (_, samples, elements), _ = rows[index]
            sums[number].at.append((at, samples, elements))


def _rows(batch: CompiledCallsMade) -> Iterator[tuple[int, Shape, int]]:
    kinds = list(zip(batch.shapes, batch.samples, batch.elements, strict=False))
    columns = (batch.callables, batch.shape_places, batch.counts)
    for number, index, count in zip(*columns, strict=False):
        yield number, kinds[index] if 0 <= index < len(kinds) else (None, None, None), count


def _summed(process: int, item: _Sum) -> Invocations:
    counted = sorted(item.shapes.items(), key=lambda pair: -pair[1])
    return Invocations(
        process=process,
        function=item.function,
        calls=sum(item.shapes.values()),
        shapes=tuple(
            ShapeCount(shapes, count, samples, elements)
            for (shapes, samples, elements), count in counted
        ),
        at=tuple(at for at, _, _ in item.at),
        samples_at=tuple(samples for _, samples, _ in item.at),
        elements_at=tuple(elements for _, _, elements in item.at),
        tensors=item.tensors,
        padded=item.padded,
    )
