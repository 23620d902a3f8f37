"""Variations of a kept call: other sizes, the other grad mode and that of modules, other values of
numbers and tensors, None; and what is beyond anything that the program does."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from compilediag_harness.base.object_graph import get_attributes, get_class
from compilediag_harness.torch_internals import torch_replay
from compilediag_harness.trials.kept_calls import (
    PLAIN,
    KeptCall,
    KeptCallable,
    is_tensor,
    read_small,
)
from compilediag_harness.wire import BEYOND, EAGER, IN_DOUBLE, OWN_BACKEND, clip

MAX_OTHERS = 4
"""Other values that were seen, of one number."""

MAX_WANTING = 4
"""Tensors of one call of which a gradient is wanted, each alone."""

MAX_VALUES = 16
"""Numbers and tensors of one call that are given values which no call had."""

MAX_BYTES = 256 << 20
"""No argument is made larger."""

MAX_CONSTANTS = 24
"""Attributes, by class and name, that no call changes and that are given another value."""

MAX_ALONE = 6
"""Tensors of one call that are given another size than the others."""

MAX_TWO = 32
"""Variations of one call in which two sizes are others."""

LARGE = (257, 2049)
"""Sizes past the tables and small integers of a program that was run with small ones."""


_Change = Callable[[Any], Any]
"""Makes another number or tensor of one."""


@dataclass(frozen=True, slots=True)
class Variation:
    """One way to make a call again."""

    label: str
    """The same in both states of a program."""
    values: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """Other values of leaves of the arguments, by position."""
    sizes: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])
    """Other sizes of leaves, by position and dimension."""
    is_new_size: bool = False
    """No call of the program varied those sizes."""
    is_larger: bool = False
    """No call of the program had any as large."""
    changed: tuple[int, _Change] | None = None
    """Position of a tensor, and what makes another one of it."""
    held: tuple[tuple[Any, ...], str, _Change] | None = None
    """Objects, the name of what each of them holds, and what makes another one of it."""
    gradients: bool | None = None
    """The grad mode; None: as it was."""
    training: bool | None = None
    """The mode of all modules; None: as they were."""
    wanting: int | None = None
    """Position of a leaf that wants a gradient, which it did not."""
    own_backend: bool = False
    """Compiled by the program's backend."""
    is_eager: bool = False
    """Nothing is compiled."""
    is_beyond: bool = False
    """No call may ever have that: it may crash, or need more memory or time than there is."""
    dtype: str | None = None
    """That of floating arguments, parameters and buffers; None: as they were."""
    parameters: _Change | None = None
    """What makes others of the floating parameters; None: as they were."""


AS_IT_WAS = Variation("as it was")

REPEATS = (
    *[Variation(EAGER, is_eager=True)] * 2,
    Variation(IN_DOUBLE, is_eager=True, dtype="float64"),
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
    seen: Set[int]
    """Sizes that calls of the program had."""
    is_fixed: bool = False
    """A height, or features: the program may need the size that it is."""


def list_variations(kept: KeptCallable, call: KeptCall) -> list[Variation]:
    """List the variations of a call, the call as it was among them, in the order in which they are
    made: those first for which the fewest graphs are captured, the program's own backend last."""
    groups = _group_dimensions(kept, call)
    varied, fixed = ([its for its in groups if its.is_fixed == which] for which in (False, True))
    sizes = [_vary_sizes(call, group, _list_sizes(group.size)) for group in varied]
    floating = [at for at, its in _list_tensors(call) if its.is_floating_point()]
    first = next((at for at in floating if call.leaves[at].numel() > 1), None)
    others = [
        _vary_gradients(call),
        _vary_training(call),
        *(_vary_sizes(call, group, (1,)) for group in varied),
        *(_vary_sizes(call, group, (group.size + 1, 2 * group.size)) for group in fixed),
        *(_vary_seen(kept, call, index) for index in range(len(call.leaves))),
        *(
            _vary_values(call, index, _list_changes(call.leaves[index]))
            for index in _list_values(call)
            if index != first
        ),
        *(_vary_counter(call, name) for name in call.list_counters()),
    ]
    own = [
        replace(variation, label=f"{variation.label}, own backend", own_backend=True)
        for group in varied
        for variation in _vary_sizes(call, group, (group.size + 1, 1))
    ]
    begin = () if first is None else _vary_values(call, first, _list_changes(call.leaves[first]))
    # Two sizes at once take only time that is left.
    beyond, two = (
        [replace(it, label=f"{BEYOND}{it.label}", is_eager=True, is_beyond=True) for it in those]
        for those in (
            _go_beyond(kept, call, groups),
            itertools.islice(_vary_two(call, groups), MAX_TWO),
        )
    )
    return [AS_IT_WAS, *begin, *beyond, *_take_in_turn(sizes), *_take_in_turn(others), *two, *own]


def _list_sizes(size: int) -> list[int]:
    """List other sizes, but for 1, which has a graph of its own: one serves the rest of them."""
    sizes = dict.fromkeys((size + 1, 2, size - 1, 16, 17, 2 * size))
    return [its for its in sizes if its > 1]


def _take_in_turn(sorts: list[Iterator[Variation]]) -> Iterator[Variation]:
    """Iterate over the first of each sort, then the second of each."""
    made = itertools.chain.from_iterable(itertools.zip_longest(*sorts))
    return (variation for variation in made if variation is not None)


def _list_tensors(call: KeptCall) -> list[tuple[int, Any]]:
    return [(at, leaf) for at, leaf in enumerate(call.leaves) if is_tensor(leaf)]


def _vary_gradients(call: KeptCall) -> Iterator[Variation]:
    """Vary the grad mode, and which tensors want a gradient that do not."""
    if call.modes.inference:
        return
    tensors = _list_tensors(call)
    # A number and a tensor of one element are the same argument in two states.
    floating = [at for at, its in tensors if its.ndim and its.is_floating_point()]
    others = [at for at in floating if not call.leaves[at].requires_grad]
    if not call.modes.gradients:
        first = next(iter(floating), None)
        wanting = None if any(its.requires_grad for _, its in tensors) else first
        yield Variation("gradients on", gradients=True, wanting=wanting)
        return
    yield Variation("gradients off", gradients=False)
    for at in others[:MAX_WANTING]:
        yield Variation(f"a gradient of {call.paths[at]}", wanting=at)


def _vary_training(call: KeptCall) -> Iterator[Variation]:
    """Vary the mode of modules: dropout, a norm, or what the program does itself in training."""
    if call.training:
        training = not any(was for _, was in call.training)
        yield Variation("training" if training else "evaluation", training=training)


def _vary_seen(kept: KeptCallable, call: KeptCall, index: int) -> Iterator[Variation]:
    """Give a number, a flag or a text, and what was None, the values that it had in other calls."""
    path, value = call.paths[index], call.leaves[index]
    seen, others = list(kept.iterate_values(path)), list[Any]()
    if get_class(value) in PLAIN and value is not None:
        known = (get_class(value), value), (type(None), None)
        others = [its for its in seen if (get_class(its), its) not in known][:MAX_OTHERS]
    if value is not None and None in seen:
        others.append(None)
    for other in others:
        yield Variation(f"{path} = {clip(repr(other), 64)}", {index: other})


def _list_values(call: KeptCall) -> list[int]:
    """List the positions of the first leaves whose values are varied: parameters are not."""
    parameter = sys.modules["torch"].nn.Parameter
    found = (
        at
        for at, leaf in enumerate(call.leaves)
        if get_class(leaf) in (bool, int, float)
        or (is_tensor(leaf) and not issubclass(get_class(leaf), parameter))
    )
    return list(itertools.islice(found, MAX_VALUES))


def _vary_values(
    call: KeptCall, index: int, changes: Iterable[tuple[str, _Change]]
) -> Iterator[Variation]:
    """Give a number or tensor values that no call may have had, so that what depends on data goes
    the other way: a branch on a mean, a clamp, a mask. A number and a tensor of one element are
    the same argument in two states, and have the same labels."""
    path, leaf = call.paths[index], call.leaves[index]
    for name, change in changes:
        label = f"values of {path} {name}"
        if is_tensor(leaf):
            yield Variation(label, changed=(index, change))
        else:
            yield Variation(label, {index: change(leaf)})


def _vary_counter(call: KeptCall, name: str) -> Iterator[Variation]:
    """Vary a number or tensor that the program changes between calls: a later step, another
    schedule."""
    held = call.held[name]
    for change, make in _list_changes(held, counts=True):
        label = f"values of .{_name_held(name, held)} {change}"
        yield Variation(label, held=((call.owner,), name, make))


def _name_held(name: str, held: Any) -> str:
    """Name what an object holds: a tensor of another shape is not the same in the other state, but
    a cache that grew, or is made large enough at once."""
    return f"{name} {[*held.shape]}" if is_tensor(held) and held.numel() != 1 else name


def _list_changes(leaf: Any, *, counts: bool = False) -> Iterator[tuple[str, _Change]]:
    """List what makes other values of a number or tensor, by name. `counts`: it is a counter, and
    may be far ahead, where an integer that is an argument may be a size or an index."""
    is_number = not is_tensor(leaf)
    is_one = is_number or leaf.numel() == 1
    is_float = isinstance(leaf, float) if is_number else leaf.is_floating_point()
    if not is_one:  # as of positions in a row, or of indices without a double one
        yield "reversed", lambda its: its.flip(tuple(range(its.ndim)))
    if isinstance(leaf, bool) or (not is_number and str(leaf.dtype) == "torch.bool"):
        yield "inverted", lambda its: not its if is_number else ~its
        return
    if is_float:
        yield "negated", lambda its: -its
    elif is_one:
        yield "+ 1", lambda its: its + 1
    yield "zero", lambda its: type(its)() if is_number else its.clone().zero_()
    if is_float and is_one:
        yield "+ 0.1", lambda its: its + 0.1
    if counts and not is_one:  # as where some of what it counts is used up
        yield "every other zero", _clear_every_other
    if is_one and (is_float or counts):  # past where it is clamped, or another branch is taken
        yield "× 1e6", lambda its: its * (1e6 if is_float else 10**6)


def _list_far_changes(leaf: Any) -> Iterator[tuple[str, _Change]]:
    """List what makes a whole number another one, past a bound near it, and a tensor's values
    large: what keeps sums finite is seen there. Not a number below zero, which counts from the end
    where it was a length."""
    if is_tensor(leaf) and leaf.numel() > 1 and leaf.is_floating_point():
        yield "× 1000", lambda its: its * 1000
    is_one = is_tensor(leaf) and leaf.numel() == 1 and str(leaf.dtype) == "torch.int64"
    if is_one or get_class(leaf) is int:
        yield "+ 10", lambda its: its + 10


def _clear_every_other(tensor: Any) -> Any:
    cleared = tensor.clone().contiguous()
    cleared.view(-1)[1::2] = 0
    return cleared


def _group_dimensions(kept: KeptCallable, call: KeptCall) -> list[_Group]:
    """Group dimensions of arguments that varied together and have one size now; where none varied,
    those that share it with the first tensor. And those that the program declares dynamic, and last
    the first tensor's others: its features, but a height, too."""
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
    groups = [
        _Group(f"size {size}", size, members, seen) for (size, seen), members in varied.items()
    ]
    alone = [
        (at, dim) for at, leaf in tensors for dim in torch_replay.list_declared_dimensions(leaf)
    ]
    others: _Dimensions = []
    if dims:
        at, leaf = tensors[0]
        # Integers have no features: along each dimension they are so many of something.
        count = 1 if leaf.is_floating_point() or leaf.is_complex() else leaf.ndim
        if not groups:
            alone = [*((at, dim) for dim in range(count)), *alone]
        others = [(at, dim) for dim in range(leaf.ndim) if (at, dim) not in alone]
    for at, dim in (*alone, *others):
        size = int(call.leaves[at].shape[dim])
        members = [(its, d) for its, d, n in dims if (d, n) == (dim, size)]
        around = next((group for group in groups if (at, dim) in group.dims), None)
        # A height and a width may have had the same sizes in every call.
        if size and (around is None or sum(its == at for its, _ in around.dims) > 1):
            is_fixed = (at, dim) in others
            is_first = not dim and not is_fixed
            name = f"size {size}" if is_first else f"dimension {dim} of {call.paths[at]}: {size}"
            seen = kept.list_sizes(call.paths[at], dim, call.paths[at])
            groups.append(_Group(name, size, members, seen, is_fixed))
    return groups


def _vary_sizes(call: KeptCall, group: _Group, sizes: Iterable[int]) -> Iterator[Variation]:
    largest = max(call.leaves[index].nbytes for index, _ in group.dims)
    for new in sizes:
        if new != group.size and largest // group.size * new <= MAX_BYTES:
            is_new, is_larger = len(group.seen) < 2, new > max(group.seen)
            variation = _resize(f"{group.label} → {new}", (group.dims, new))
            yield replace(variation, is_new_size=is_new, is_larger=is_larger)


def _resize(label: str, *changes: tuple[Iterable[tuple[int, int]], int]) -> Variation:
    by_leaf: dict[int, dict[int, int]] = {}
    for dims, new in changes:
        for index, dim in dims:
            by_leaf.setdefault(index, {})[dim] = new
    return Variation(label, sizes=by_leaf)


# --- beyond anything that the program does --------------------------------------------------------


def _go_beyond(kept: KeptCallable, call: KeptCall, groups: list[_Group]) -> Iterator[Variation]:
    """Go beyond what any call of the program had, which it may not support: a dimension less,
    another dtype, other parameters, whole numbers farther away, None for what may be, several sizes
    of 1, a size of one tensor that is no more that of another, other constants, and sizes far
    larger."""
    first = next((index for index, its in _list_tensors(call) if its.ndim), None)
    if first is not None:
        path, ndim = call.paths[first], call.leaves[first].ndim
        if ndim > 1:
            label = f"{path} without its first dimension"
            yield Variation(label, changed=(first, lambda its: its[0].clone()))
        for feature in dict.fromkeys((1, ndim - 1)) if ndim > 2 else ():
            dims = [at for its in groups if (first, feature) not in its.dims for at in its.dims]
            yield _resize(f"every size 1 but dimension {feature} of {path}", (dims, 1))
    if any(its.is_floating_point() for _, its in _list_tensors(call)):
        yield Variation("bfloat16", dtype="bfloat16")
    if any(True for module in call.modules for _ in module.parameters()):
        # A branch on a mean of what layers give goes the other way.
        yield Variation("all parameters negated", parameters=lambda its: -its)
    for index in _list_values(call):
        yield from _vary_values(call, index, _list_far_changes(call.leaves[index]))
        if call.paths[index] in kept.optional:
            yield Variation(f"{call.paths[index]} = None", {index: None})
    varied = [group for group in groups if not group.is_fixed]
    yield from _vary_constants(call)
    for group in varied:
        yield from _vary_alone(call, group)
    for group in varied:
        yield from _vary_sizes(call, group, [its for its in LARGE if its > group.size])


def _split_group(call: KeptCall, group: _Group) -> list[_Group]:
    """Split a group into those of each tensor that shares the size, where several do."""
    by_leaf: dict[int, _Dimensions] = {}
    for at, dim in group.dims:
        by_leaf.setdefault(at, []).append((at, dim))
    return [
        replace(group, label=f"{group.label} of {call.paths[at]}", dims=dims)
        for at, dims in itertools.islice(by_leaf.items(), MAX_ALONE)
        if len(by_leaf) > 1
    ]


def _vary_alone(call: KeptCall, group: _Group) -> Iterator[Variation]:
    """Vary the size of each tensor but for the others that share it, and of all but the first."""
    parts, first = _split_group(call, group), group.dims[0][0]
    if len(parts) > 2:
        label = f"{group.label} of all but {call.paths[first]}"
        dims = [its for its in group.dims if its[0] != first]
        parts.append(replace(group, label=label, dims=dims))
    for part in parts:
        yield from _vary_sizes(call, part, (group.size + 1, 2 * group.size, 1))


def _vary_two(call: KeptCall, groups: list[_Group]) -> Iterator[Variation]:
    """Vary two sizes at once, which only together may lead elsewhere: independent ones, and those
    of two tensors among others that have the same."""
    sides = [groups, *(_split_group(call, group) for group in groups)]
    # Two tensors that alone share a size have been varied together.
    pairs = [
        pair
        for its in sides
        if its is groups or len(its) > 2
        for pair in itertools.combinations(its, 2)
    ]
    return _take_in_turn([_vary_pair(*pair) for pair in pairs])


def _vary_pair(one: _Group, other: _Group) -> Iterator[Variation]:
    more = one.size + 1
    for new, its in ((1, 1), (1, other.size + 1), (more, 1), (more, 2 * other.size)):
        if new != one.size and its != other.size:
            label = f"{one.label} → {new}, {other.label} → {its}"
            yield _resize(label, (one.dims, new), (other.dims, its))


def _vary_constants(call: KeptCall) -> Iterator[Variation]:
    """Vary what no call changes of the objects that are called: numbers, flags and small tensors,
    in all instances of a class."""
    parts = {id(part): part for module in call.modules for part in module.modules()}
    parts.setdefault(id(call.owner), call.owner)
    constants: dict[tuple[str, str], tuple[list[Any], Any]] = {}
    changed = call.list_counters()
    for part in parts.values():
        kind = get_class(part)
        if kind.__module__.partition(".")[0] == "torch":
            continue
        own = get_attributes(part).items()
        tuples = {name: its for name, its in own if get_class(its) is tuple}
        for name, its in (read_small(part) | tuples).items():
            if part is not call.owner or name not in changed:
                constants.setdefault((kind.__name__, name), ([], its))[0].append(part)
    for (kind, name), (owners, value) in itertools.islice(constants.items(), MAX_CONSTANTS):
        for how, change in itertools.islice(_list_constant_changes(value), 1):
            label = f"{kind}.{_name_held(name, value)} {how}"
            yield Variation(label, held=(tuple(owners), name, change))


def _list_constant_changes(value: Any) -> Iterator[tuple[str, _Change]]:
    """List what makes another constant: the next one; of a tuple each of its numbers."""
    if get_class(value) is tuple:
        if value and all(get_class(its) in (int, float) for its in value):
            yield "+ 1", lambda its: tuple(one + 1 for one in its)
        return
    wanted = ("reversed", "inverted", "+ 1", "+ 0.1")
    yield from (its for its in _list_changes(value) if its[0] in wanted)
