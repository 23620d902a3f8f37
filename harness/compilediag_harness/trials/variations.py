"""Variations of a kept call: other sizes, the other grad mode, other values of numbers, None."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from compilediag_harness.base.object_graph import get_class
from compilediag_harness.trials.kept_calls import PLAIN, KeptCall, KeptCallable
from compilediag_harness.wire import clip

MAX_VARIATIONS = 24
"""Of one kind of call, those by the program's own backend not counted."""

MAX_OTHERS = 4
"""Other values that were seen, of one number."""

MAX_BYTES = 256 << 20
"""No argument is made larger."""


@dataclass(frozen=True, slots=True)
class Variation:
    """One way to make a call again."""

    label: str
    """The same in both states of a program."""
    changes: tuple[tuple[int, Callable[[Any], Any]], ...] = ()
    """Positions of leaves of the arguments, and what makes another value of each."""
    gradients: bool | None = None
    """The grad mode; None: as it was."""
    own_backend: bool = False
    """Compiled by the program's backend."""


AS_IT_WAS = Variation("as it was")

_Dimensions = list[tuple[int, int]]
"""Positions of leaves, each with a dimension."""


def list_variations(torch: Any, kept: KeptCallable, call: KeptCall) -> list[Variation]:
    """List the variations of a call in the order in which they are made, one of each sort first;
    those by the program's own backend last."""
    groups = _group_dimensions(torch, kept, call)
    sorts: list[Iterator[Variation]] = [_vary_gradients(call)]
    sorts += [_vary_value(kept, call, index) for index in range(len(call.leaves))]
    for size, dims in groups:
        new_sizes = dict.fromkeys((1, 2, size - 1, size + 1, 16, 17, 2 * size))
        sorts.append(_vary_sizes(torch, call, size, dims, new_sizes))
    own = [
        replace(variation, label=f"{variation.label}, own backend", own_backend=True)
        for size, dims in groups
        for variation in _vary_sizes(torch, call, size, dims, (1, size + 1))
    ]
    made = itertools.chain.from_iterable(itertools.zip_longest(*sorts))
    return [*(variation for variation in made if variation is not None), *own]


def _vary_gradients(call: KeptCall) -> Iterator[Variation]:
    if call.modes is not None and not call.modes.inference:
        on = not call.modes.gradients
        yield Variation(f"gradients {'on' if on else 'off'}", gradients=on)


def _vary_value(kept: KeptCallable, call: KeptCall, index: int) -> Iterator[Variation]:
    """Vary a number, a flag or a text, and what was None in another call."""
    path, value = call.paths[index], call.leaves[index]
    others: list[Any] = []
    if get_class(value) in PLAIN:
        others = [
            its for kind, its in kept.values.get(path, ()) if (kind, its) != (type(value), value)
        ]
        others = others[:MAX_OTHERS] + [its for its in _list_next(value) if its not in others]
    if path in kept.absent and value is not None:
        others.append(None)
    for other in others:
        yield Variation(f"{path} = {clip(repr(other), 64)}", ((index, lambda _, its=other: its),))


def _list_next(value: Any) -> list[Any]:
    """List one more value of a type that has a next."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    return [value * 1.5 or 0.1] if isinstance(value, float) else []


def _group_dimensions(
    torch: Any, kept: KeptCallable, call: KeptCall
) -> list[tuple[int, _Dimensions]]:
    """Group dimensions of arguments that varied together and have one size now; where none varied,
    the first of those that share it with the first tensor."""
    tensors = [
        (index, leaf)
        for index, leaf in enumerate(call.leaves)
        if issubclass(get_class(leaf), torch.Tensor) and leaf.ndim
    ]
    dims = [(at, dim, int(n)) for at, its in tensors for dim, n in enumerate(its.shape) if n]
    groups: dict[tuple[int, frozenset[int]], _Dimensions] = {}
    for at, dim, size in dims:
        seen = kept.list_sizes(call.paths[at], dim, call.paths[at])
        if len(seen) > 1:
            groups.setdefault((size, frozenset(seen)), []).append((at, dim))
    for (size, _), members in groups.items():
        path, first = call.paths[members[0][0]], members[0][1]
        # What is given only where the others have this size may follow them: a mask, once.
        members += [
            (at, dim)
            for at, dim, its in dims
            if its == size and kept.list_sizes(path, first, call.paths[at]) == {size}
        ]
    if not groups and dims and tensors:
        size = int(tensors[0][1].shape[0])
        groups = {
            (size, frozenset()): [(at, dim) for at, dim, its in dims if not dim and its == size]
        }
    return [(size, members) for (size, _), members in groups.items() if size]


def _vary_sizes(
    torch: Any, call: KeptCall, size: int, dims: _Dimensions, new_sizes: Any
) -> Iterator[Variation]:
    largest = max(call.leaves[index].nbytes for index, _ in dims)
    for new in new_sizes:
        if new < 1 or new == size or largest // size * new > MAX_BYTES:
            continue
        by_leaf: dict[int, list[int]] = {}
        for index, dim in dims:
            by_leaf.setdefault(index, []).append(dim)
        changes = tuple((at, _make_resize(torch, its, size, new)) for at, its in by_leaf.items())
        yield Variation(f"size {size} → {new}", changes)


def _make_resize(torch: Any, dims: list[int], size: int, new: int) -> Callable[[Any], Any]:
    """Make a function that gives a tensor another size by leaving out or repeating rows."""

    def resize(value: Any) -> Any:
        rows = torch.arange(new, device=value.device) % size
        for dim in dims:
            value = value.index_select(dim, rows)
        return value

    return resize
