"""Variations of a kept call: other sizes, the other grad mode, other values of numbers and tensors,
None."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compilediag_harness.base.object_graph import get_class
from compilediag_harness.torch_internals import torch_replay
from compilediag_harness.trials.kept_calls import PLAIN, KeptCall, KeptCallable, is_tensor
from compilediag_harness.wire import EAGER, IN_DOUBLE, OWN_BACKEND, clip

MAX_OTHERS = 4
"""Other values that were seen, of one number."""

MAX_BYTES = 256 << 20
"""No argument is made larger."""


@dataclass(frozen=True, slots=True)
class Variation:
    """One way to make a call again."""

    label: str
    """The same in both states of a program."""
    values: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """Other values of leaves of the arguments, by position."""
    sizes: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])
    """Other sizes of leaves, by position and dimension."""
    scaled: tuple[int, float] | None = None
    """Position of a leaf, and what it is multiplied by."""
    gradients: bool | None = None
    """The grad mode; None: as it was."""
    wanting: int | None = None
    """Position of a leaf that wants a gradient, which it did not."""
    own_backend: bool = False
    """Compiled by the program's backend."""
    is_eager: bool = False
    """Nothing is compiled."""
    in_double: bool = False
    """Floating arguments, parameters and buffers are of float64."""


AS_IT_WAS = Variation("as it was")

REPEATS = (
    *[Variation(EAGER, is_eager=True)] * 2,
    Variation(IN_DOUBLE, is_eager=True, in_double=True),
    Variation(OWN_BACKEND, own_backend=True),
)
"""Of a plan that wants them alone."""

_Dimensions = list[tuple[int, int]]
"""Positions of leaves, each with a dimension."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Dimensions that have one size and get another one together."""

    label: str
    size: int
    dims: _Dimensions


def list_variations(kept: KeptCallable, call: KeptCall) -> list[Variation]:
    """List the variations of a call, the call as it was among them, in the order in which they are
    made: those first for which the fewest graphs are captured, the program's own backend last."""
    groups = _group_dimensions(kept, call)
    sizes = [_vary_sizes(call, group, _list_sizes(group.size)) for group in groups]
    others = [
        _vary_gradients(call),
        *(_vary_sizes(call, group, (1,)) for group in groups),
        *(_vary_value(kept, call, index) for index in range(len(call.leaves))),
    ]
    own = [
        replace(variation, label=f"{variation.label}, own backend", own_backend=True)
        for group in groups
        for variation in _vary_sizes(call, group, (group.size + 1, 1))
    ]
    return [AS_IT_WAS, *_scale_values(call), *_take_in_turn(sizes), *_take_in_turn(others), *own]


def _list_sizes(size: int) -> list[int]:
    """List other sizes, but for 1, which has a graph of its own: one serves the rest of them."""
    sizes = dict.fromkeys((size + 1, 2, size - 1, 16, 17, 2 * size))
    return [its for its in sizes if its > 1]


def _take_in_turn(sorts: list[Iterator[Variation]]) -> Iterator[Variation]:
    """Iterate over the first of each sort, then the second of each."""
    made = itertools.chain.from_iterable(itertools.zip_longest(*sorts))
    return (variation for variation in made if variation is not None)


def _scale_values(call: KeptCall) -> Iterator[Variation]:
    """Make what depends on data go the other way: a branch on a mean, or on whether any is set. Of
    the first tensor alone: what is None or a number in one state may be a tensor in the other."""
    tensors = _list_tensors(call)
    floating = [at for at, its in tensors if its.is_floating_point() and its.numel() > 1]
    for first in floating[:1]:
        path = call.paths[first]
        yield Variation(f"values of {path} negated", scaled=(first, -1.0))
        yield Variation(f"values of {path} zero", scaled=(first, 0.0))


def _list_tensors(call: KeptCall) -> list[tuple[int, Any]]:
    return [(at, leaf) for at, leaf in enumerate(call.leaves) if is_tensor(leaf)]


def _vary_gradients(call: KeptCall) -> Iterator[Variation]:
    """Vary the grad mode, and whether the first tensor wants a gradient where none does."""
    if call.modes.inference:
        return
    tensors = _list_tensors(call)
    # A number and a tensor of one element are the same argument in two states.
    first = next((at for at, its in tensors if its.ndim and its.is_floating_point()), None)
    wanting = None if any(its.requires_grad for _, its in tensors) else first
    if not call.modes.gradients:
        yield Variation("gradients on", gradients=True, wanting=wanting)
        return
    yield Variation("gradients off", gradients=False)
    if wanting is not None:
        yield Variation(f"a gradient of {call.paths[wanting]}", wanting=wanting)


def _vary_value(kept: KeptCallable, call: KeptCall, index: int) -> Iterator[Variation]:
    """Vary a number, a flag or a text, and what was None in another call."""
    path, value = call.paths[index], call.leaves[index]
    seen, others = list(kept.iterate_values(path)), list[Any]()
    if get_class(value) in PLAIN and value is not None:
        same = get_class(value), value
        others = [its for its in seen if its is not None and (get_class(its), its) != same]
        others = others[:MAX_OTHERS] + [its for its in _list_next(value) if its not in others]
    if value is not None and None in seen:
        others.append(None)
    for other in others:
        yield Variation(f"{path} = {clip(repr(other), 64)}", {index: other})


def _list_next(value: Any) -> list[Any]:
    """List one more value of a type that has a next."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    return [value * 1.5 or 0.1] if isinstance(value, float) else []


def _group_dimensions(kept: KeptCallable, call: KeptCall) -> list[_Group]:
    """Group dimensions of arguments that varied together and have one size now; where none varied,
    those that share it with the first tensor. And those that the program declares dynamic."""
    tensors = [(at, leaf) for at, leaf in enumerate(call.leaves) if is_tensor(leaf) and leaf.ndim]
    dims = [(at, dim, int(n)) for at, its in tensors for dim, n in enumerate(its.shape) if n]
    varied: dict[tuple[int, frozenset[int]], _Dimensions] = {}
    for at, dim, size in dims:
        seen = kept.list_sizes(call.paths[at], dim, call.paths[at])
        if len(seen) > 1:
            varied.setdefault((size, frozenset(seen)), []).append((at, dim))
    for (size, _), members in varied.items():
        path, first = call.paths[members[0][0]], members[0][1]
        # What is given only where the others have this size may follow them: a mask, once.
        members += [
            (at, dim)
            for at, dim, its in dims
            if its == size and kept.list_sizes(path, first, call.paths[at]) == {size}
        ]
    groups = [_Group(f"size {size}", size, members) for (size, _), members in varied.items()]
    alone = [
        (at, dim) for at, leaf in tensors for dim in torch_replay.list_declared_dimensions(leaf)
    ]
    if not groups and dims:
        at, leaf = tensors[0]
        # Integers have no features: along each dimension they are so many of something.
        count = 1 if leaf.is_floating_point() or leaf.is_complex() else leaf.ndim
        alone = [*((at, dim) for dim in range(count)), *alone]
    for at, dim in alone:
        size = int(call.leaves[at].shape[dim])
        members = [(its, d) for its, d, n in dims if (d, n) == (dim, size)]
        if size and not any((at, dim) in group.dims for group in groups):
            name = f"dimension {dim} of {call.paths[at]}: {size}" if dim else f"size {size}"
            groups.append(_Group(name, size, members))
    return groups


def _vary_sizes(call: KeptCall, group: _Group, sizes: Iterable[int]) -> Iterator[Variation]:
    largest = max(call.leaves[index].nbytes for index, _ in group.dims)
    for new in sizes:
        if new != group.size and largest // group.size * new <= MAX_BYTES:
            by_leaf: dict[int, dict[int, int]] = {}
            for index, dim in group.dims:
                by_leaf.setdefault(index, {})[dim] = new
            yield Variation(f"{group.label} → {new}", sizes=by_leaf)
