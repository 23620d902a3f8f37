"""The sizes that a compiled frame serves in calls like the one it was compiled for last, from the
guards that torch built, with the condition that refuses others. What does not follow from the
recorded guards is not listed."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple

from compilediag.diagnosis.guards.size_limits import (
    find_excluding_guard,
    find_fixing_guard,
    holds,
    locate_size_limit,
    simplify_source,
)
from compilediag.receipt.schema.compiles import AcceptedSizes, RefusedSize
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.compiles import Compile, CompileId, FrameId, get_compile_id
from compilediag.timeline.frames import is_compile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import (
    EntryDiff,
    InputsGuarded,
    Location,
    SizeGuard,
    TensorGuard,
)

MAX_FRAMES, MAX_GROUPS = 40, 2
"""Frames, those that were compiled most often, and groups of dimensions of one; each group takes
about 5 ms."""

LARGEST, SMALL = 1 << 16, 128
"""The largest size that is tried, and the one up to which each is."""

_SIZE = re.compile(r"(L(?:\[[^\[\]]+\])+)\.(size|stride)\(\)\[(\d+)\]")
_NUMBER = re.compile(r"(?<![\w\['.])\d{1,9}(?![\w.'])")


class _Unknown(Exception):
    """It does not follow from what was recorded."""


class _Group(NamedTuple):
    """Dimensions that had the same sizes in each compile, and are varied together."""

    size: int
    members: list[tuple[TensorGuard, int]]
    """Tensors as they are in the call, and the dimension."""

    def is_in(self, text: str) -> bool:
        """True if a guard is about one of its tensors."""
        return any(tensor.source in text for tensor, _ in self.members)

    def resize(self, size: int) -> dict[str, TensorGuard]:
        """Get its tensors, by source, where these dimensions have another size."""
        tensors = {tensor.source: tensor for tensor, _ in self.members}
        for tensor, dim in self.members:
            tensors[tensor.source] = _resize(tensors[tensor.source], dim, size)
        return tensors


class _Graph(NamedTuple):
    """A cache entry: whether its guards accept a size of a group, and its conditions."""

    accepts: Callable[[int], bool]
    conditions: Sequence[SizeGuard]


def list_accepted_sizes(timeline: Timeline) -> tuple[AcceptedSizes, ...]:
    """List what each frame serves, as far as sizes varied or are not fixed."""
    known = {get_compile_id(event): event for event in timeline.guarded_inputs}
    used = {get_compile_id(event) for event in timeline.served if event.again}
    looks = {(look.process, look.frame): look for look in timeline.risk_checks}
    frames: dict[FrameId, list[Compile]] = {}
    # Where torch gave up a recompile, it asks no graph any more.
    gone = {its.key for its in timeline.frames if its.ran_eager and its.limit_hit_step is None}
    for attempt in timeline.compiles if known else ():
        if is_compile(attempt) and attempt.key not in gone:
            frames.setdefault(attempt.key, []).append(attempt)
    last: dict[tuple[int, Location], list[AcceptedSizes]] = {}
    for compiles in sorted(frames.values(), key=len, reverse=True)[:MAX_FRAMES]:
        call = compiles[-1]
        look = looks.get((call.process, call.frame))
        held = look is not None and not (look.guards or look.skipped) and look.step >= call.step
        # Else the call may have changed what its own graph is guarded on.
        if held or call.id in used:
            last[call.process, call.frame] = list(_iterate_sizes(compiles, known, timeline))
    return tuple(chain.from_iterable(last.values()))


def _iterate_sizes(
    compiles: Sequence[Compile], known: Mapping[CompileId, InputsGuarded], timeline: Timeline
) -> Iterator[AcceptedSizes]:
    """Iterate over the groups of dimensions of the last call that a frame was compiled for, with
    the sizes of them that are served."""
    call = compiles[-1]
    base, again = known.get(call.id), call.recompile
    if base is None or (again is not None and (again.problem or again.entries_left_out)):
        return
    diffs = [EntryDiff(call.compile_id, ()), *(again.entries if again is not None else ())]
    entries = {call.id._replace(compile_id=diff.compile_id): diff for diff in diffs}
    seen = [known[attempt.id] for attempt in compiles if attempt.id in known]
    size_guards = timeline.size_guards
    for group in _group_dimensions(base, seen)[:MAX_GROUPS]:
        try:
            graphs = [
                _Graph(_make_check(diff, known.get(key), base, group), size_guards.get(key, ()))
                for key, diff in entries.items()
            ]
            parts, largest = _find_parts(graphs, group, filter(None, map(known.get, entries)))
        except _Unknown:
            continue
        spans = _join_parts(parts)
        own = next((span for span in spans if span[0] <= group.size <= span[1]), None)
        if own is None:
            continue
        names = tuple(f"{simplify_source(its.source)}.shape[{dim}]" for its, dim in group.members)
        explain = functools.partial(_explain_end, graphs, names, timeline.user_roots)
        # Above, unless nothing is refused there: what is said belongs to one side alone.
        end = (own[1], own[1] + 1) if own[1] < largest else (own[0], own[0] - 1)
        splits = _find_splits([part for part in parts if own[0] <= part[0] <= own[1]], graphs)
        yield make_record(
            AcceptedSizes,
            call,
            dimensions=names,
            size=group.size,
            spans=tuple(spans),
            largest=largest,
            refused=explain(*end),
            splits=tuple((size, explain(size - 1, size)) for size in splits),
        )


_History = tuple[int | None, ...]
"""The sizes of a dimension in each compile; None where the call had no such tensor."""


def _group_dimensions(base: InputsGuarded, seen: Sequence[InputsGuarded]) -> list[_Group]:
    """Group the dimensions that varied, or whose size is not fixed, by their sizes in each compile
    that had both; those that varied first."""
    groups: list[tuple[_History, int, _Group]] = []
    for tensor in base.tensors:
        shapes = [_find_shape(event, tensor) for event in seen]
        histories: list[_History] = []
        for dim, size in enumerate(tensor.shape):
            history = tuple(None if shape is None else shape[dim] for shape in shapes)
            varied = len({*history} - {None}) > 1
            # A tensor has the same size twice: only the first of them is the batch, unless both
            # varied together, as of a matrix for each pair of nodes.
            nth = dim if size < 2 else 0 if varied else histories.count(history)
            histories.append(history)
            fixed = f"{tensor.source}.size()[{dim}] == {size}" in base.conditions
            if varied or not fixed:
                _add_dimension(groups, history, nth, _Group(size, [(tensor, dim)]))
    return [its for _, _, its in sorted(groups, key=lambda row: len({*row[0]} - {None}) == 1)]


def _find_shape(event: InputsGuarded, tensor: TensorGuard) -> tuple[int, ...] | None:
    """Find the shape that a tensor had in a compile; None where it had none of as many sizes."""
    shapes = (its.shape for its in event.tensors if its.source == tensor.source)
    return next((shape for shape in shapes if len(shape) == len(tensor.shape)), None)


def _add_dimension(
    groups: list[tuple[_History, int, _Group]], history: _History, nth: int, new: _Group
) -> None:
    for at, (known, place, group) in enumerate(groups):
        pairs = list(zip(known, history, strict=True))
        if place == nth and all(a == b for a, b in pairs if None not in (a, b)):
            group.members.extend(new.members)
            groups[at] = tuple(b if a is None else a for a, b in pairs), place, group
            return
    groups.append((history, nth, new))


def _resize(tensor: TensorGuard, dim: int, size: int) -> TensorGuard:
    """Get the tensor with another size of a dimension. With gaps, as of a slice, the strides are
    known for the outermost one, and for one that was expanded."""
    shape = (*tensor.shape[:dim], size, *tensor.shape[dim + 1 :])
    if _change_shape(tensor, tensor.shape) == tensor:
        return _change_shape(tensor, shape)
    if tensor.strides[dim] not in (0, max(tensor.strides)):
        raise _Unknown
    return TensorGuard(tensor.source, tensor.required, shape, tensor.strides)


def _change_shape(tensor: TensorGuard, shape: Sequence[int]) -> TensorGuard:
    """Get the tensor with another shape, in the same order of dimensions and without gaps."""
    strides, step = [0] * len(shape), 1
    # From the innermost dimension on; of those of one stride, the last is the one with elements.
    dims = sorted(range(len(shape)), key=lambda dim: (tensor.strides[dim], tensor.shape[dim], -dim))
    for dim in dims:
        strides[dim], step = step, step * max(shape[dim], 1)
    return TensorGuard(tensor.source, tensor.required, tuple(shape), tuple(strides))


def _make_check(
    diff: EntryDiff, guarded: InputsGuarded | None, base: InputsGuarded, group: _Group
) -> Callable[[int], bool]:
    """Make the test of an entry for other sizes of a group; `_Unknown` where a guard that was not
    recorded may refuse them."""
    given = {tensor.source: tensor for tensor, _ in group.members}
    of_sizes = {"TENSOR_MATCH", "SHAPE"}
    others = [its for its in diff.guards if not (its.leaf in of_sizes and group.is_in(its.text))]
    pairs = [(its, given.get(its.source, its)) for its in (guarded.tensors if guarded else ())]
    alike = all(a.required == b.required and len(a.shape) == len(b.shape) for a, b in pairs)
    if others or not alike:
        return lambda _: False
    # An entry that is not the call's own, and has no false guard, refused by what has no text.
    if guarded is None or diff.left_out or diff.unevaluated or not (diff.guards or guarded is base):
        raise _Unknown
    layouts = {tensor.source: tensor for tensor in base.tensors}
    texts = [text for text in guarded.conditions if group.is_in(text)]
    resize = functools.cache(group.resize)
    return lambda size: all(_is_true(text, {**layouts, **resize(size)}) for text in texts)


def _is_true(condition: str, tensors: Mapping[str, TensorGuard]) -> bool:
    expression, sizes = _name_sizes(condition)
    values: dict[str, int] = {}
    for name, (source, kind, dim) in sizes.items():
        tensor = tensors.get(source)
        values |= {} if tensor is None else {name: (tensor.shape, tensor.strides)[kind][dim]}
    answer = holds(expression, values)
    if answer is None:
        raise _Unknown
    return answer


@functools.lru_cache(1024)
def _name_sizes(condition: str) -> tuple[str, dict[str, tuple[str, bool, int]]]:
    """Put a name for each size and stride of a tensor; by name its source, if it is a stride, and
    the dimension."""
    found = list(dict.fromkeys(_SIZE.findall(condition)))
    names = {f"{source}.{kind}()[{dim}]": f"v{at}" for at, (source, kind, dim) in enumerate(found)}
    expression = _SIZE.sub(lambda match: names[match[0]], condition)
    sizes = {f"v{at}": (s, kind == "stride", int(dim)) for at, (s, kind, dim) in enumerate(found)}
    return expression, sizes


def _find_parts(
    graphs: Sequence[_Graph], group: _Group, guarded: Iterable[InputsGuarded]
) -> tuple[list[tuple[int, int]], int]:
    """Find the sizes of a group that some graph serves, those of each apart where one takes over
    from another, and the largest size that was tried."""
    conditions = chain.from_iterable(its.conditions for its in guarded)
    texts = "; ".join(text for text in conditions if group.is_in(text))
    points = {*range(SMALL + 1), *(1 << power for power in range(LARGEST.bit_length()))}
    points |= {int(number) + by for number in _NUMBER.findall(texts) for by in (-1, 0, 1)}
    # Multiples of a number go on and on: of those, and of remainders, the small ones are found.
    largest = SMALL if re.search(r"%|//|Mod", texts) else LARGEST

    @functools.cache
    def find_graph(size: int) -> int | None:
        return next((at for at, graph in enumerate(graphs) if graph.accepts(size)), None)

    parts: list[tuple[int, int]] = []
    before = 0
    for at in sorted(point for point in {*points, largest} if 0 <= point <= largest):
        low, high = before, at
        is_same = find_graph(before) == find_graph(at)
        while not is_same and high - low > 1:
            middle = (low + high) // 2
            same = find_graph(middle) == find_graph(before)
            low, high = (middle, high) if same else (low, middle)
        if find_graph(before) is not None and parts:
            parts[-1] = parts[-1][0], at if is_same else low
        if find_graph(at) is not None and not (is_same and parts):
            parts.append((high, at))
        before = at
    return parts, largest


def _join_parts(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for first, last in parts:
        start = spans.pop()[0] if spans and spans[-1][1] + 1 == first else first
        spans.append((start, last))
    return spans


def _find_splits(parts: Sequence[tuple[int, int]], graphs: Iterable[_Graph]) -> list[int]:
    """Find the sizes from which another graph serves, of as few as serve all parts of a span."""
    splits: list[int] = []
    with contextlib.suppress(_Unknown):
        while parts:
            served = [[all(map(graph.accepts, part)) for part in parts] for graph in graphs]
            parts = parts[max([*its, False].index(False) for its in served) :]
            splits += [first for first, _ in parts[:1]]
        return splits
    return []


def _explain_end(
    graphs: Sequence[_Graph], names: Sequence[str], roots: Sequence[str], inside: int, outside: int
) -> RefusedSize | None:
    """Explain by a condition on one size alone why a graph that serves a size refuses the next;
    None without one."""
    for (accepts, guards), name in product(graphs, names):
        source = name.replace(".shape[", ".size()[")
        guard = find_fixing_guard(guards, source) or find_excluding_guard(guards, source, outside)
        with contextlib.suppress(_Unknown):
            if guard is not None and accepts(inside):
                limit = locate_size_limit(guard, roots)
                needed_by = guard.torch_calls[0] if limit.how == "operation" else None
                return make_record(RefusedSize, limit, needed_by=needed_by)
    return None
