"""Steps of a process, and the calls of compiled callables in them.

Of steps: times, disabled calls. Of calls: the batches in which they were
recorded, those that a trial timed, what it found in their objects, and the sizes of their tensors
that change from call to call. Sizes that are equal in every call are one: the rows of a batch and
of its mask.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from compilediag.receipt.schema.invocations import VaryingSizesRecord
from compilediag.timeline.process import ProcessEvents
from compilediag_harness import wire


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step; seconds, None for a phase that was not measured."""

    process: int
    number: int
    end: float
    wall_s: float
    data_wait_s: float | None
    optimizer_s: float | None
    spans_s: float | None
    compile_s: float
    forward_s: float | None = None
    backward_s: float | None = None
    unsampled: bool = False
    """Only its end is known, and its waits for data and spans; nothing of its calls."""
    measuring_s: float = 0.0
    """Seconds of our own work in it, where that was much."""
    source: str = ""
    """What marked it: "step()", "optimizer", "call"."""


@dataclass(frozen=True, slots=True)
class CallsOutside:
    """The calls of one function behind `torch.compiler.disable` in one phase of the steps."""

    process: int
    function: wire.Location
    phase: str
    count: int
    total_s: float
    longest_s: float


def collect_steps(part: ProcessEvents) -> list[Step]:
    """Collect every step that ended, with the seconds that compiles took in it."""
    compile_s = defaultdict[int, float](float)
    for row in part.get_all(wire.Compiled):
        compile_s[row.step] += row.seconds
    made: list[Step] = []
    for batch in part.get_all(wire.StepsEnded):
        for offset, (end, wall_s) in enumerate(zip(batch.ends, batch.list_walls(), strict=False)):
            number = batch.first + offset
            phases = (batch.data_wait, batch.optimizer, batch.spans, batch.forward, batch.backward)
            # None where the phase was not measured: an empty tuple is not zero seconds.
            wait_s, optimizer_s, spans_s, forward_s, backward_s = (
                values[offset] if offset < len(values) else None for values in phases
            )
            made.append(
                Step(
                    *(part.index, number, end, wall_s),
                    *(wait_s, optimizer_s, spans_s, compile_s[number], forward_s, backward_s),
                    unsampled=batch.noted,
                    measuring_s=0.0 if offset else batch.measuring_s,
                    source=batch.source,
                )
            )
    return made


def collect_disabled_calls(
    process: int, batches: Iterable[wire.DisabledCallsEnded]
) -> list[CallsOutside]:
    """Collect each function once a phase, its batches added up."""
    sums: dict[tuple[wire.Location, str], CallsOutside] = {}
    for batch in batches:
        columns = (batch.functions, batch.phases, batch.counts, batch.total_s, batch.longest_s)
        for function, phase, count, total_s, longest_s in zip(*columns, strict=False):
            key = (function, phase)
            known = sums.get(key) or CallsOutside(process, function, phase, 0, 0.0, 0.0)
            sums[key] = replace(
                known,
                count=known.count + count,
                total_s=known.total_s + total_s,
                longest_s=max(known.longest_s, longest_s),
            )
    return list(sums.values())


_TENSOR = re.compile(r"(?:(?P<path>[^\[\]]+)=)?\[(?P<sizes>[^\[\]]*)\](?:, |$)")
"""One tensor of a call, as the harness writes it: "[8, 16]" by position, "mask=[8]" by name."""


def find_varying_sizes(
    shapes: Iterable[tuple[str | None, int]], names: Sequence[str] = ()
) -> VaryingSizesRecord | None:
    """Find the changing sizes of one callable, if any. `shapes` are those of calls as the harness
    writes them, with how often; `names` the tensors by argument."""
    # Only calls that have the same tensors, in number, name and rank, can be compared.
    kinds: dict[tuple[tuple[str, int], ...], Counter[tuple[tuple[int, ...], ...]]] = {}
    all_calls = 0
    for text, count in shapes:
        all_calls += count
        tensors = None if text is None else _parse_tensors(text)
        if tensors is not None:
            ranks = tuple((path, len(sizes)) for path, sizes in tensors)
            of_kind = kinds.setdefault(ranks, Counter())
            of_kind[tuple(sizes for _, sizes in tensors)] += count
    kind = max(kinds, key=lambda candidate: kinds[candidate].total(), default=())
    calls = kinds.get(kind, Counter[tuple[tuple[int, ...], ...]]())
    if len(calls) < 2:
        return None
    # By argument where that is known, else the name it was given by, else its index.
    labels = [path or str(index) for index, (path, _) in enumerate(kind)]
    if len(names) == len(kind) == len(set(names)):
        labels = list(names)
    columns: dict[tuple[int, ...], list[str]] = {}
    for index, label in enumerate(labels):
        for dim in range(kind[index][1]):
            column = tuple(sizes[index][dim] for sizes in calls)
            if len(set(column)) > 1:
                columns.setdefault(column, []).append(f"{label}:{dim}")
    counts = Counter[tuple[int, ...]]()
    for changing, count in zip(zip(*columns, strict=True), calls.values(), strict=True):
        counts[changing] += count
    sizes, of_sizes = zip(*sorted(counts.items()), strict=True)
    dims = tuple(map(tuple, columns.values()))
    other = all_calls - sum(calls.values())
    return VaryingSizesRecord(dims=dims, sizes=sizes, counts=of_sizes, other_calls=other)


def _parse_tensors(text: str) -> list[tuple[str, tuple[int, ...]]] | None:
    """Parse the tensors of a call, each a name and its sizes; None where a shape has no plain
    sizes: symbolic, nested, of a subclass, or cut off."""
    tensors: list[tuple[str, tuple[int, ...]]] = []
    end = 0
    while end < len(text):
        match = _TENSOR.match(text, end)
        if match is None:
            return None
        sizes = match["sizes"].split(", ") if match["sizes"] else []
        if not all(size.isdecimal() for size in sizes):
            return None
        tensors.append((match["path"] or "", tuple(int(size) for size in sizes)))
        end = match.end()
    return tensors


@dataclass(frozen=True, slots=True)
class ShapeCount:
    """The count of calls of a callable with one combination of shapes."""

    shapes: str | None
    """None: not distinguished, because there were too many."""
    count: int
    samples: int | None
    """Leading size of the first tensor, of one call."""
    elements: int | None


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one compiled callable of one process."""

    process: int
    function: wire.Location
    calls: int
    shapes: tuple[ShapeCount, ...]
    """The most frequent first."""
    at: tuple[float, ...]
    """When the calls began that were recorded one by one: all, or the first so many."""
    samples_at: tuple[int | None, ...]
    """The samples of each, parallel to `at`."""
    elements_at: tuple[int | None, ...] = ()
    tensors: tuple[str, ...] = ()
    """The tensors of its first call, by parameter and key; empty where that is not known."""
    padded: int = 0
    """Calls that a `FixedShape` made, at its own sizes."""


Shape = tuple["str | None", "int | None", "int | None"]
"""Shapes, samples, elements."""

OTHERS = wire.Location("", 0, "other callables")


@dataclass(frozen=True, slots=True)
class StanceCalls:
    """Calls of one callable under a stance that compiles nothing."""

    process: int
    function: wire.Location
    stance: str
    """"force_eager" or "eager_on_recompile"."""
    calls: int
    set_at: wire.Location | None
    """The user's line that set the stance."""


def collect_stance_calls(
    process: int, batches: Iterable[wire.EagerStanceCalls]
) -> list[StanceCalls]:
    """Collect the calls of one process, added up by callable, stance and where it was set."""
    sums = Counter[tuple[wire.Location, str, "wire.Location | None"]]()
    for batch in batches:
        columns = (batch.functions, batch.stances, batch.set_at)
        for key, count in zip(zip(*columns, strict=False), batch.counts, strict=False):
            sums[key] += count
    return [
        StanceCalls(process, function, stance, calls, set_at)
        for (function, stance, set_at), calls in sums.items()
    ]


def collect_invocations(process: int, batches: Iterable[wire.CompiledCallsMade]) -> list[Calls]:
    """Collect each callable of one process once, in the order they were first called."""
    functions: dict[int, wire.Location] = {}
    tensors: dict[int, tuple[str, ...]] = {}
    counts: dict[int, Counter[Shape]] = {}
    padded = Counter[int]()
    begun: dict[int, list[tuple[float, int | None, int | None]]] = {}
    for batch in batches:
        named = dict(zip(batch.numbers, batch.functions, strict=False))
        seen = dict(zip(batch.numbers, batch.tensors, strict=False))
        kinds = list(zip(batch.shapes, batch.samples, batch.elements, strict=False))
        rows: list[tuple[int, Shape]] = []
        columns = (batch.callables, batch.shape_places, batch.counts)
        for number, index, count in zip(*columns, strict=False):
            shape = kinds[index] if 0 <= index < len(kinds) else (None, None, None)
            rows.append((number, shape))
            functions.setdefault(number, named.get(number, OTHERS))
            tensors[number] = tensors.get(number) or seen.get(number, ())
            counts.setdefault(number, Counter())[shape] += count
        for number, count in zip(batch.numbers, batch.padded, strict=False):
            padded[number] += count if number in functions else 0
        for index, at in zip(batch.order, batch.at, strict=False):
            if 0 <= index < len(rows):
                number, (_, samples, elements) = rows[index]
                begun.setdefault(number, []).append((at, samples, elements))
    return [
        Calls(
            process=process,
            function=function,
            calls=counts[number].total(),
            shapes=tuple(
                ShapeCount(shapes, count, samples, elements)
                for (shapes, samples, elements), count in counts[number].most_common()
            ),
            at=tuple(at for at, _, _ in begun.get(number, ())),
            samples_at=tuple(samples for _, samples, _ in begun.get(number, ())),
            elements_at=tuple(elements for _, _, elements in begun.get(number, ())),
            tensors=tensors[number],
            padded=padded[number],
        )
        for number, function in functions.items()
    ]


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """The outermost calls of one compiled callable in one step."""

    process: int
    function: wire.Location
    step: int
    count: int
    seconds: float
    """On the host, of all of them."""
    on_device: bool
    """A CUDA device was in use: the calls may have returned before their work was done."""


def collect_timed_calls(process: int, events: Iterable[wire.CallsTimed]) -> list[TimedCalls]:
    """Collect the timed calls of one process, by callable and step."""
    return [
        TimedCalls(process, event.functions[index], step, count, seconds, event.on_device)
        for event in events
        for index, step, count, seconds in zip(
            event.callables, event.steps, event.counts, event.seconds, strict=False
        )
        if 0 <= index < len(event.functions)
    ]


def collect_held_states(_: int, events: Iterable[wire.StateRead]) -> Iterable[wire.StateRead]:
    """Collect what the objects that compiled functions reach held; records of one are merged."""
    states: dict[tuple[str, int], wire.StateRead] = {}
    for event in events:
        key = event.module, event.instance
        first = states.get(key, event)
        answers = () if first is event else first.answers
        states[key] = replace(first, answers=answers + event.answers)
    return states.values()
