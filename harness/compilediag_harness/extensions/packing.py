"""Finds buffers that a function fills with one value and then writes into, by its syntax tree, with
the sizes of what is written where names and integers determine them."""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.base.object_graph import cache_by_code, get_class
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.writes_in_source import (
    find_loop_line,
    get_dotted_name,
    iterate_nodes,
    parse_code,
)
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import Location, PackedBuffer

_FILLING = frozenset({"zeros", "zeros_like", "full", "full_like", "new_zeros", "new_full"})
_REFILLING = frozenset({"zero_", "fill_"})
_MOVING = frozenset({"to", "cuda", "cpu", "float", "half", "double", "bfloat16", "type"})
"""Methods that hand on what a filling call made."""

_BRANCHES = (ast.If, ast.Try, ast.While)


@dataclass(frozen=True, slots=True)
class Packing:
    """A statement that writes a part of a buffer which the function has filled before."""

    name: str
    """The buffer, such as "batch" or "self.batch"."""
    fill: str
    """How it was filled: "zeros", "new_full", "zero_"."""
    fill_line: int
    index: ast.expr
    value: str | None
    """Name of the value that is written, where it is one."""


@cache_by_code
def find_packing(code: types.CodeType, line: int) -> Packing | None:
    """Find the packing whose store is on `line`; None where it is none, or the filling is not
    certain to run as often as the store: it is behind a condition, or runs once in a program."""
    store = _find_store(code, line)
    if store is None:
        return None
    target, value = store
    name = get_dotted_name(target.value)
    filled = _find_last_filling(code, name, line) if name is not None else None
    # `name[...] += value` needs what it was filled with.
    added_to = [node.target for node in iterate_nodes(code) if isinstance(node, ast.AugAssign)]
    subscripts = [target for target in added_to if isinstance(target, ast.Subscript)]
    needed = [get_dotted_name(subscript.value) for subscript in subscripts]
    if name is None or filled is None or name in needed:
        return None
    fill, fill_line = filled
    if code.co_name == "<module>" and find_loop_line(code, fill_line) is None:
        return None
    return Packing(name, fill, fill_line, target.slice, value)


def _find_store(code: types.CodeType, line: int) -> tuple[ast.Subscript, str | None] | None:
    """Find target and name of the value of `name[...] = value` or `name[...].copy_(value)`."""
    for node in iterate_nodes(code):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            return node.targets[0], get_dotted_name(node.value)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr == "copy_":
                return (called.value, None) if isinstance(called.value, ast.Subscript) else None
    return None


def _find_last_filling(code: types.CodeType, name: str, before: int) -> tuple[str, int] | None:
    """Find how and where the buffer is filled, when that is the last that happens to its name."""
    filling: tuple[str, int] | None = None
    tree, conditional = parse_code(code), set[int]()  # lines of branches that the store is not in
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _BRANCHES) and not node.lineno <= before <= (node.end_lineno or 0):
            conditional.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in iterate_nodes(code):
        if not isinstance(node, ast.stmt) or node.lineno >= before:
            continue
        filled = _find_assigned(node, name)
        if filled is not None:
            certain = filled and node.lineno not in conditional
            filling = (filled, node.lineno) if certain else None
    return filling


def _find_assigned(node: ast.stmt, name: str) -> str | None:
    """Find the filling call that a statement gives the name; "" for any other, None for none."""
    if isinstance(node, ast.Assign) and any(get_dotted_name(left) == name for left in node.targets):
        return _find_filling_call(node.value)
    if isinstance(node, ast.AnnAssign) and get_dotted_name(node.target) == name:
        return _find_filling_call(node.value)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        if isinstance(called, ast.Attribute) and get_dotted_name(called.value) == name:
            return called.attr if called.attr in _REFILLING else None
    return None


def _find_filling_call(value: ast.expr | None) -> str:
    while isinstance(value, ast.Call):
        called = value.func
        word = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if word in _FILLING:
            return str(word)
        value = called.value if isinstance(called, ast.Attribute) and word in _MOVING else None
    return ""


# --- how much is written -------------------------------------------------------------------------


def count_elements(index: ast.expr, shape: Sequence[int], names: Mapping[str, Any]) -> int | None:
    """Count the elements of a tensor that an index means; None where constants, integers by name
    and lengths do not determine it. Nothing of the program is called."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if len(parts) > len(shape):
        return None
    lengths = [_compute_length(part, size, names) for part, size in zip(parts, shape, strict=False)]
    known = [length for length in lengths if length is not None]
    return math.prod((*known, *shape[len(parts) :])) if len(known) == len(lengths) else None


def _compute_length(part: ast.expr, size: int, names: Mapping[str, Any]) -> int | None:
    if not isinstance(part, ast.Slice):
        return 1 if _resolve_integer(part, names) is not None else None
    if part.step is not None:
        return None
    lower = 0 if part.lower is None else _resolve_integer(part.lower, names)
    upper = size if part.upper is None else _resolve_integer(part.upper, names)
    if lower is None or upper is None:
        return None
    return len(range(*slice(lower, upper).indices(size)))


def _resolve_integer(node: ast.expr, names: Mapping[str, Any]) -> int | None:
    """Resolve a constant, an integer by name, `len(name)`, and sums and differences of them."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        value = names.get(node.id)
        return value if type(value) is int else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = _resolve_integer(node.left, names), _resolve_integer(node.right, names)
        if left is None or right is None:
            return None
        return left + right if isinstance(node.op, ast.Add) else left - right
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _resolve_integer(node.operand, names)
        return None if value is None else -value
    return _resolve_len(node, names)


def _resolve_len(node: ast.expr, names: Mapping[str, Any]) -> int | None:
    """Resolve `len(name)` of a list, a tuple, text, an array or a tensor."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or len(node.args) != 1:
        return None
    argument = node.args[0]
    if node.func.id != "len" or "len" in names or not isinstance(argument, ast.Name):
        return None
    value: Any = names.get(argument.id)
    kind: type[Any] = value.__class__
    # Exact types only: the `__len__` of a subclass may run code of the program.
    if kind in (list, tuple, str, bytes, range, dict):
        return len(value)
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return len(value)
    is_tensor = torch_guards.is_tensor_type(get_class(value))
    facts = torch_guards.read_tensor_memory(value) if is_tensor else None
    return facts.shape[0] if facts is not None and facts.shape else None


MAX_STORES = 4096
"""Looked at in one step; a step with more of them reports no buffer."""

_Key = tuple[types.CodeType, str, int]
"""Code, name of the buffer, and the line that fills it."""


@dataclass(slots=True)
class BufferFill:
    """One buffer, as far as the step has come."""

    packing: Packing
    line: int
    buffers: int = 0
    stores: int = 0
    buffer_bytes: int = 0
    written_bytes: int | None = 0
    """None: it is not known of one of the stores."""
    seconds: float | None = 0.0
    filled: set[int] = field(default_factory=set[int])
    """Memory that was filled in this step."""


class PackingSample:
    """The packings of one thread in one step, as they come."""

    def __init__(self) -> None:
        self._buffers: dict[_Key, BufferFill] = {}
        self._stores = 0

    def begun(self, kind: str, tensor: Any, frame: types.FrameType) -> BufferFill | None:
        """Begin a write into a tensor; None where it is no packing."""
        code, line = frame.f_code, frame.f_lineno
        if source_locations.is_library(code.co_filename):
            return None
        packing = find_packing(code, line)
        if packing is None:
            return None
        self._stores += 1
        if self._stores > MAX_STORES:
            return None
        key = (code, packing.name, packing.fill_line)
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = self._buffers[key] = BufferFill(packing, line)
        buffer.stores += 1
        facts = torch_guards.read_tensor_memory(tensor)
        if facts is None:
            buffer.written_bytes = None
            return buffer
        if facts.fresh or facts.storage not in buffer.filled:
            buffer.filled.add(facts.storage)
            buffer.buffers += 1
            buffer.buffer_bytes += facts.storage_bytes
        count = facts.elements if kind == "copy_" else _count_written(packing, facts.shape, frame)
        if count is None or buffer.written_bytes is None:
            buffer.written_bytes = None
        else:
            buffer.written_bytes += count * facts.element_bytes
        return buffer

    def ended(self, buffer: BufferFill, seconds: float | None) -> None:
        known = buffer.seconds is not None and seconds is not None
        buffer.seconds = (buffer.seconds or 0.0) + (seconds or 0.0) if known else None

    def buffers(self) -> tuple[PackedBuffer, ...]:
        """List every buffer of the step; none where there were more stores than are looked at."""
        if self._stores > MAX_STORES:
            return ()
        return tuple(
            PackedBuffer(
                place=Location(code.co_filename, buffer.line, code.co_name),
                name=name,
                fill=buffer.packing.fill,
                fill_line=fill_line,
                buffers=buffer.buffers,
                stores=buffer.stores,
                buffer_bytes=buffer.buffer_bytes,
                written_bytes=buffer.written_bytes,
                seconds=buffer.seconds,
            )
            for (code, name, fill_line), buffer in self._buffers.items()
        )


def _count_written(packing: Packing, shape: tuple[int, ...], frame: types.FrameType) -> int | None:
    """Count the elements that a store writes: by its index, else at least those of its value."""
    names: Mapping[str, Any] = frame.f_locals
    elements = count_elements(packing.index, shape, names)
    if elements is not None or packing.value is None:
        return elements
    value = names.get(packing.value)
    is_tensor = torch_guards.is_tensor_type(get_class(value))
    facts = torch_guards.read_tensor_memory(value) if is_tensor else None
    return facts.elements if facts is not None else None
