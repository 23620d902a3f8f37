"""Checks of leaf guards: those of a frame's cache entries that are false now, for all entries.

A frame with a raised recompile limit has thousands of entries: every source is evaluated once for
all of them. torch makes its message about a tensor ("tensor 'x' size mismatch at index 0. expected
4, actual 5") in C++ for the first failing guard of an entry alone: the same comparison is made here
for every one, from the guard's own text and the live value.
"""

from __future__ import annotations

import ast
import itertools
import re
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import MISSING, format_type_name
from compilediag_harness.blame.guard_sources import (
    compile_source,
    evaluate_source,
    parse_expression,
)
from compilediag_harness.torch_internals import torch_guards

TENSOR_CHECK = re.compile(
    r"check_tensor\((?P<source>.*), (?P<type>[\w.]+), (?P<keys>DispatchKeySet\([^)]*\)), "
    r"torch\.(?P<dtype>\w+), device=(?P<device>[^,]*), requires_grad=(?P<grad>True|False), "
    r"size=(?P<size>\[[^\]]*\]|None), stride=(?P<stride>\[[^\]]*\]|None)\)",
    re.DOTALL,
)
"""A guard on a tensor as torch prints it."""

# c10::ScalarType as torch's C++ message prints it, where it is not the capitalised Python name.
_SCALAR_NAMES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


class Mismatch(NamedTuple):
    """`text` in torch's grammar; `expected` and `actual` as a person would compare them."""

    text: str
    expected: str
    actual: str


_FEW_ENTRIES = 8
"""torch's default recompile limit. The leaves of more entries than that are stored..."""

_MAX_STORED_LEAVES = 256
"""... where an entry has at most so many: torch makes a Python object of each that is read."""


class _Leaves(NamedTuple):
    all: Iterable[torch_guards.Leaf]
    targets: Set[str]
    """Complete when all leaves were read."""


_stored_leaves: weakref.WeakKeyDictionary[Any, _Leaves] = weakref.WeakKeyDictionary()
"""By torch's guard manager, which goes with its cache entry."""


@dataclass(slots=True)
class ExaminedEntry:
    """The false leaves of one cache entry, in guard order."""

    entry: Any
    scope: dict[str, Any]
    """The names its guards are written in."""
    values: dict[str, Any]
    """The live value of each source, `MISSING` where it could not be evaluated."""
    false: list[torch_guards.Leaf] = field(default_factory=list[torch_guards.Leaf])
    checked: int = 0
    unevaluated: int = 0
    raised: set[str] = field(default_factory=set[str])
    """What shape conditions raised: torch prints nothing else of one that does."""
    finished: bool = False
    """False: the deadline came before all leaves were checked."""


class LeafChecks:
    """Checks cache entries of one frame against its live values."""

    def __init__(self, f_locals: dict[str, Any], deadline: float, entries: int = 1) -> None:
        """`deadline`: `time.thread_time()` after which nothing more is checked; `entries`: how many
        there are to check."""
        self._locals = f_locals
        self._deadline = deadline
        self._stores_leaves = entries > _FEW_ENTRIES
        self._values: dict[int, dict[str, Any]] = {}
        """Of the sources evaluated so far, by the identity of the globals they are read from."""
        self.accepted: set[str] = set()
        """Targets of leaves whose present value some entry accepts with all its leaves on them."""

    def examine(self, entry: Any, lengths: Mapping[str, int]) -> ExaminedEntry:
        """Find every false leaf of an entry; `lengths`: of its guarded containers, by source."""
        scope = torch_guards.build_scope(entry, self._locals)
        # The values hold these globals themselves, so that no other dict gets their id meanwhile.
        values = self._values.setdefault(id(scope["G"]), {"L": self._locals, "G": scope["G"]})
        examined = ExaminedEntry(entry, scope, values)
        if time.thread_time() > self._deadline:
            return examined
        failed: set[str] = set()
        leaves = self._read_leaves(entry, lengths)
        for leaf in leaves.all:
            examined.checked += 1
            if not examined.checked % 64 and time.thread_time() > self._deadline:
                return examined
            source, _, check, _ = leaf
            value = values.get(source, MISSING)
            if check is not None and value is not MISSING:
                # Almost every guard of thousands of entries goes this way.
                try:
                    holds = bool(check(value))
                except Exception:
                    holds = None
            else:
                holds = _evaluate_leaf(leaf, examined)
            if holds:
                continue
            failed.add(leaf.target)
            gone = _find_gone(leaf.condition, examined.scope) if holds is None else None
            if gone is not None:  # its tensor guard, which torch does not make of these
                values[gone] = None
                missing = leaf._replace(source=gone, kind="TENSOR_MATCH")
                examined.false += [missing] if all(f.source != gone for f in examined.false) else []
            elif holds is None:
                examined.unevaluated += 1
            else:
                examined.false.append(leaf)
        # Only here: `targets` of leaves that are read lazily is complete after the loop.
        self.accepted |= leaves.targets - failed
        examined.finished = True
        return examined

    def _read_leaves(self, entry: Any, lengths: Mapping[str, int]) -> _Leaves:
        """Read one by one, for there may be very many; stored where there are few of each entry."""
        manager = entry.guard_manager
        if self._stores_leaves and (known := _stored_leaves.get(manager)) is not None:
            return known
        targets: set[str] = set()

        def iterate_leaves() -> Iterator[torch_guards.Leaf]:
            for leaf in torch_guards.iterate_leaves(entry, lengths):
                targets.add(leaf.target)
                yield leaf

        read = iterate_leaves()
        if not self._stores_leaves:
            return _Leaves(read, targets)
        first = tuple(islice(read, _MAX_STORED_LEAVES + 1))
        if len(first) > _MAX_STORED_LEAVES:
            return _Leaves(chain(first, read), targets)
        leaves = _stored_leaves[manager] = _Leaves(first, targets)
        return leaves


def _evaluate_leaf(leaf: torch_guards.Leaf, examined: ExaminedEntry) -> bool | None:
    """Evaluate a leaf now, whose source was not evaluated before or could not be, or which is a
    shape condition; None when it cannot be evaluated (a missing argument, an object whose
    attribute access fails)."""
    scope, values = examined.scope, examined.values
    try:
        if leaf.check is None:
            names = dict(getattr(examined.entry.guard_manager, "global_scope", None) or {})
            # torch evaluates the same text in the same scopes to find its reason.
            result = eval(compile_source(leaf.condition), names, scope)
            return result if isinstance(result, bool) else None
        if leaf.source in values:
            return None
        # Invariant: noted before it is tried: a source that raises is evaluated once, not per leaf.
        values[leaf.source] = MISSING  # until the source could be evaluated
        value = values[leaf.source] = eval(compile_source(leaf.source), scope)
        return bool(leaf.check(value))
    except Exception as error:
        examined.raised |= {str(error)} if leaf.check is None else set()
        return None


def _find_gone(condition: str, scope: Mapping[str, Any]) -> str | None:
    """Find what a shape condition reads a size of that is None now, as the `_base` of a tensor that
    was a view."""
    tree = parse_expression(condition)
    read = [] if tree is None else [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    sources = [ast.unparse(node.value) for node in read]
    return next((source for source in sources if evaluate_source(source, scope) is None), None)


def find_mismatches(text: str, value: Any, tensor_type: type) -> tuple[Mismatch, ...]:
    """Find every difference between the guard `check_tensor(...)` and `value`, in the order in
    which torch checks, without those that follow from another one; empty if the text cannot be read
    or nothing visible differs."""
    guard = TENSOR_CHECK.match(text)
    if guard is None:
        return ()
    source = guard["source"]
    if not isinstance(value, tensor_type):
        return (describe_type(source, f"torch.{guard['type']}", value),)
    diffs: list[Mismatch] = []
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype != guard["dtype"]:
        names = [_SCALAR_NAMES.get(name, name.capitalize()) for name in (guard["dtype"], dtype)]
        text = f"dtype mismatch. expected {names[0]}, actual {names[1]}"
        diffs.append(Mismatch(text, f"torch.{guard['dtype']}", f"torch.{dtype}"))
    device = str(value.device.index)
    if device != guard["device"]:
        text = "Tensor device index mismatch. Expected device index to be "
        text += f"{guard['device']}, actual {device}"
        diffs.append(Mismatch(text, f"device index {guard['device']}", str(value.device)))
    if str(bool(value.requires_grad)) != guard["grad"]:
        text = f"requires_grad mismatch. expected requires_grad={int(guard['grad'] == 'True')}"
        shown = f"requires_grad={value.requires_grad}"
        diffs.append(Mismatch(text, f"requires_grad={guard['grad']}", shown))
    diffs += _find_size_mismatches(guard, value)
    # The dispatch keys: device type, inference mode, autocast, functorch, subclass.
    keys = torch_guards.read_dispatch_keys(value)
    if keys is not None and (not diffs or (device == guard["device"] and keys != guard["keys"])):
        text = f"dispatch key set mismatch. expected {guard['keys']}, actual {keys}"
        diffs.append(Mismatch(text, guard["keys"], keys))
    return tuple(diff._replace(text=f"tensor '{source}' {diff.text}") for diff in diffs)


def describe_type(source: str, expected: str, value: Any) -> Mismatch:
    """Describe a value that is no tensor where the guard expects one."""
    actual = format_type_name(value)
    message = f"expected type of '{source}' to be <class '{expected}'>, but found "
    return Mismatch(f"{message}<class '{actual}'>", expected, actual)


def _find_size_mismatches(guard: re.Match[str], value: Any) -> list[Mismatch]:
    """Rank, then size, then stride; `None` in the guard stands for a dynamic dimension."""
    sizes, actual = _parse_sizes(guard["size"]), list(value.shape)
    if sizes is None:
        return []
    if len(sizes) != len(actual):
        text = f"rank mismatch. expected {len(sizes)}, actual {len(actual)}"
        return [Mismatch(text, _format_sizes(sizes), _format_sizes(actual))]
    resized = _compare_sizes("size", sizes, actual)
    strides = _parse_sizes(guard["stride"])
    if strides is None or not hasattr(value, "stride"):
        return resized
    try:
        actual = list(value.stride())
    except (RuntimeError, NotImplementedError):  # sparse and nested tensors have none
        return resized
    if resized and _is_ordered_alike(strides, actual):
        return resized
    return [*resized, *_compare_sizes("stride", strides, actual)]


def _is_ordered_alike(one: list[int | None], other: list[int]) -> bool:
    """True if the strides differ only as other sizes make them: the dimensions lie in memory in the
    same order. A dynamic stride has no known place."""
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a is not None]
    couples = itertools.combinations(pairs, 2)
    return all((a1 > a2) == (b1 > b2) or a1 == a2 or b1 == b2 for (a1, b1), (a2, b2) in couples)


def _parse_sizes(text: str) -> list[int | None] | None:
    """The sizes of "[None, 16]", symbolic ones as None; None for "None" itself."""
    if text == "None":
        return None
    parts = [part.strip() for part in text[1:-1].split(",") if part.strip()]
    return [int(part) if part.lstrip("-").isdigit() else None for part in parts]


def _compare_sizes(what: str, expected: list[int | None], actual: list[int]) -> list[Mismatch]:
    prefix = "" if what == "size" else f"{what} "
    for index, (size, actual_size) in enumerate(zip(expected, actual, strict=False)):
        if len(expected) == len(actual) and size is not None and size != actual_size:
            text = f"{what} mismatch at index {index}. expected {size}, actual {actual_size}"
            shown = [f"{prefix}{_format_sizes(sizes)}" for sizes in (expected, actual)]
            return [Mismatch(text, shown[0], shown[1])]
    return []


def _format_sizes(sizes: Sequence[int | None]) -> str:
    return "[" + ", ".join("*" if size is None else str(size) for size in sizes) + "]"
