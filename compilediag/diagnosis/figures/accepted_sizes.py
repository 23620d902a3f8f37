"""The sizes that a compiled frame serves, from the guards that torch built, with the condition that
refuses others.

They are those of calls that are like the one it was compiled for last, in all but these sizes: how
each older cache entry stood to that call was recorded when torch asked it. What does not follow
from the recorded guards is not listed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
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
from compilediag.timeline.compiles import Compile, CompileId, FrameId
from compilediag.timeline.frames import is_compile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import (
    EntryServed,
    FalseGuard,
    InputsGuarded,
    Location,
    SizeGuard,
    TensorGuard,
)

MAX_LISTED, MAX_GROUPS = 200, 2
"""Groups of dimensions listed, and groups of dimensions of one frame."""

LARGEST, SMALL, AROUND, MOST = 1 << 16, 128, 16, 4096
"""The largest size that is tried; every one up to `SMALL` is, and so many around the present one;
up to `MOST` every one where the sizes served may be multiples."""

_SIZE = re.compile(r"(L(?:\[[^\[\]]+\])+)\.(size|stride)\(\)\[(\d+)\]")
_NUMBER = re.compile(r"(?<![\w\['.])\d{1,9}(?![\w.'])")

_Layout = tuple[Sequence[int], Sequence[int]]
"""Shape and strides."""


class _Unknown(Exception):
    """It does not follow from what was recorded."""


class _Entry(NamedTuple):
    """A cache entry, as it stood to the call that the frame was compiled for last."""

    guarded: InputsGuarded | None
    false: tuple[FalseGuard, ...]
    complete: bool
    """All of its guards could be evaluated."""


class _Group(NamedTuple):
    """Dimensions that had the same sizes in each compile, and are varied together."""

    size: int
    members: list[tuple[TensorGuard, int]]
    """Tensors as they are in the call, and the dimension."""

    def resize(self, size: int) -> dict[str, _Layout]:
        """Get the layout of its tensors, by source, where its dimensions have another size."""
        shapes = {tensor.source: list(tensor.shape) for tensor, _ in self.members}
        for tensor, dim in self.members:
            shapes[tensor.source][dim] = size
        return {
            tensor.source: (shapes[tensor.source], _compute_strides(tensor, shapes[tensor.source]))
            for tensor, _ in self.members
        }


def list_accepted_sizes(timeline: Timeline) -> tuple[AcceptedSizes, ...]:
    """List what each frame serves, as far as sizes varied or are not fixed."""
    known = {_get_id(event): event for event in timeline.guarded_inputs}
    used = {_get_id(event) for event in timeline.served if event.again}
    looks = {(look.process, look.frame): look for look in timeline.risk_checks}
    frames: dict[FrameId, list[Compile]] = {}
    for attempt in timeline.compiles if known else ():
        if is_compile(attempt):
            frames.setdefault(attempt.key, []).append(attempt)
    last: dict[tuple[int, Location], list[AcceptedSizes]] = {}
    for compiles in frames.values():
        call = compiles[-1]
        look = looks.get((call.process, call.frame))
        held = look is not None and not (look.guards or look.skipped) and look.step >= call.step
        # Else the call may have changed what its own graph is guarded on.
        if held or call.id in used:
            last[call.process, call.frame] = list(_iterate_sizes(compiles, known, timeline))
    return tuple(chain.from_iterable(last.values()))[:MAX_LISTED]


def _get_id(event: InputsGuarded | EntryServed) -> CompileId:
    return CompileId(event.process, event.epoch, event.compile_id)


def _iterate_sizes(
    compiles: Sequence[Compile], known: Mapping[CompileId, InputsGuarded], timeline: Timeline
) -> Iterator[AcceptedSizes]:
    """Iterate over the groups of dimensions of the last call that a frame was compiled for, with
    the sizes of them that are served."""
    call = compiles[-1]
    base, again = known.get(call.id), call.recompile
    if base is None or (again is not None and (again.problem or again.entries_left_out)):
        return
    entries = [_Entry(base, (), complete=True)]
    for diff in again.entries if again is not None else ():
        guarded = known.get(call.id._replace(compile_id=diff.compile_id))
        complete = not (diff.left_out or diff.unevaluated)
        entries.append(_Entry(guarded, diff.guards, complete))
    seen = [known[attempt.id] for attempt in compiles if attempt.id in known]
    for group in _group_dimensions(base, seen)[:MAX_GROUPS]:
        try:
            yield _find_sizes(call, base, entries, group, timeline)
        except _Unknown:
            continue


def _group_dimensions(base: InputsGuarded, seen: Sequence[InputsGuarded]) -> list[_Group]:
    """Group the dimensions that varied, or whose size is not fixed, by their sizes in each compile;
    those that varied first."""
    groups: dict[tuple[tuple[int, ...], int], _Group] = {}
    for tensor in base.tensors:
        same = [its for event in seen for its in event.tensors if its.source == tensor.source]
        same = [its for its in same if len(its.shape) == len(tensor.shape)]
        if not _is_dense(tensor):
            continue
        histories: list[tuple[int, ...]] = []
        for dim, size in enumerate(tensor.shape):
            history = tuple(its.shape[dim] for its in same)
            # A tensor has the same size twice: only the first of them is the batch.
            key = history, dim if size < 2 else histories.count(history)
            histories.append(history)
            if len({*history}) > 1 or any(its.required_shape[dim] is None for its in same):
                groups.setdefault(key, _Group(size, [])).members.append((tensor, dim))
    return [groups[key] for key in sorted(groups, key=lambda key: len({*key[0]}) == 1)]


def _compute_strides(tensor: TensorGuard, shape: Sequence[int]) -> list[int]:
    """Compute the strides of such a tensor with another shape, without gaps."""
    strides, step = [0] * len(shape), 1
    # From the innermost dimension on; of those of one stride, the last is the one with elements.
    dims = sorted(range(len(shape)), key=lambda dim: (tensor.strides[dim], tensor.shape[dim], -dim))
    for dim in dims:
        strides[dim], step = step, step * max(shape[dim], 1)
    return strides


def _is_dense(tensor: TensorGuard) -> bool:
    """True if it has no gaps and no overlaps, so that other sizes have known strides."""
    made = zip(tensor.shape, tensor.strides, _compute_strides(tensor, tensor.shape), strict=True)
    return all(size < 2 or stride == dense for size, stride, dense in made)


def _find_sizes(
    call: Compile,
    base: InputsGuarded,
    entries: Sequence[_Entry],
    group: _Group,
    timeline: Timeline,
) -> AcceptedSizes:
    """Find the sizes of a group that some entry serves.

    Raises:
        _Unknown: it does not follow from what was recorded.
    """
    checks = [check for its in entries if (check := _make_check(its, base, group)) is not None]
    texts = "; ".join(text for its in entries if its.guarded for text in its.guarded.conditions)
    # Multiples of a number go on and on: of those, and of remainders, the small ones are found.
    largest = max(SMALL, min(group.size, MOST)) if re.search(r"%|//|Mod", texts) else LARGEST
    points = {*range(SMALL + 1), *range(group.size - AROUND, group.size + AROUND)}
    points |= {1 << power for power in range(LARGEST.bit_length())}
    points |= {int(number) + by for number in _NUMBER.findall(texts) for by in (-1, 0, 1)}

    def is_served(size: int) -> bool:
        layouts = group.resize(size)
        return any(check(layouts) for check in checks)

    spans = find_spans(is_served, range(largest + 1) if largest < LARGEST else points, largest)
    own = next((its for its in spans if its[0] <= group.size <= its[1]), None)
    if own is None:
        raise _Unknown
    dimensions = tuple(
        f"{simplify_source(tensor.source)}.shape[{dim}]" for tensor, dim in group.members
    )
    guards = timeline.size_guards.get(call.id, ())
    beside = (size for size in (own[0] - 1, own[1] + 1) if 0 <= size <= largest)
    refused = (_explain_refusal(guards, dimensions, size, timeline) for size in beside)
    return make_record(
        AcceptedSizes,
        call,
        dimensions=dimensions,
        size=group.size,
        spans=tuple(spans),
        largest=largest,
        refused=tuple(filter(None, refused)),
    )


def _make_check(
    entry: _Entry, base: InputsGuarded, group: _Group
) -> Callable[[Mapping[str, _Layout]], bool] | None:
    """Make the test of an entry for layouts of the tensors of a group; None if it refuses all,
    since something else is false of it.

    Raises:
        _Unknown: a guard on other values may depend on these sizes.
    """
    given = {tensor.source: tensor for tensor, _ in group.members}

    def find_sources(text: str) -> set[str]:
        return {source for source in given if source in text}

    for guard in entry.false:
        about = given.keys() & {guard.source} if guard.leaf == "TENSOR_MATCH" else set[str]()
        if not (about or (guard.leaf == "SHAPE" and find_sources(guard.text))):
            return None
    refused = bool(entry.false) or entry.guarded is base
    if entry.guarded is None or not entry.complete or not refused:
        raise _Unknown  # an entry without a false guard refused by what has no text
    tensors = [its for its in entry.guarded.tensors if its.source in given]
    if any(its.required != given[its.source].required for its in tensors):
        return None
    layouts = {its.source: (its.shape, its.strides) for its in base.tensors}
    conditions = [text for text in entry.guarded.conditions if find_sources(text)]

    def is_accepted(changed: Mapping[str, _Layout]) -> bool:
        fits = all(_is_possible(its, changed[its.source]) for its in tensors)
        return fits and all(_is_true(text, {**layouts, **changed}) for text in conditions)

    return is_accepted


def _is_possible(tensor: TensorGuard, layout: _Layout) -> bool:
    required = (tensor.required_shape, tensor.required_strides)
    pairs = zip((*required[0], *required[1]), (*layout[0], *layout[1]), strict=False)
    same_rank = len(required[0]) == len(layout[0])
    return same_rank and all(number is None or number == its for number, its in pairs)


def _is_true(condition: str, layouts: Mapping[str, _Layout]) -> bool:
    values: dict[str, int] = {}

    def name_size(match: re.Match[str]) -> str:
        layout = layouts.get(match[1])
        if layout is None or int(match[3]) >= len(layout[0]):
            raise _Unknown
        name = f"v{len(values)}"
        values[name] = layout[match[2] == "stride"][int(match[3])]
        return name

    answer = holds(_SIZE.sub(name_size, condition), values)
    if answer is None:
        raise _Unknown
    return answer


def find_spans(
    accepts: Callable[[int], bool], points: Iterable[int], largest: int
) -> list[tuple[int, int]]:
    """Find the first and last sizes of what is accepted: of the points, and between two that differ
    where it changes."""
    ask = functools.cache(accepts)
    spans: list[tuple[int, int]] = []
    before = 0
    for at in sorted(point for point in {*points, largest} if 0 <= point <= largest):
        low, high = before, at
        while ask(before) != ask(at) and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ask(middle) == ask(before) else (low, middle)
        if ask(before) and spans:
            spans[-1] = spans[-1][0], at if ask(at) else low
        elif ask(at):
            spans.append((high, at))
        before = at
    return spans


def _explain_refusal(
    guards: Iterable[SizeGuard], dimensions: Iterable[str], size: int, timeline: Timeline
) -> RefusedSize | None:
    """Explain by a condition on one size alone why another one is refused; None without one."""
    for dimension in dimensions:
        name = dimension.replace(".shape[", ".size()[")
        guard = find_fixing_guard(guards, name) or find_excluding_guard(guards, name, size)
        if guard is not None:
            limit = locate_size_limit(guard, timeline.user_roots)
            needed_by = guard.torch_calls[0] if limit.how == "operation" else None
            return make_record(RefusedSize, limit, size=size, needed_by=needed_by)
    return None
