"""The source of a guard as the hops that lead to its value, each read without running any code of
the program: no property, no `__getattr__`, no `__eq__`."""

from __future__ import annotations

import ast
import functools
import types
from itertools import islice
from typing import Any, Literal, NamedTuple

MISSING = object()
"""Read where there is nothing, or nothing that can be read safely."""

_MAX_CHARS = 4096
_dict: Any = dict
_sequences: tuple[Any, ...] = (list, tuple)
"""Called as functions of the builtin classes: a subclass may have its own."""
_TABLES = ("_parameters", "_buffers", "_modules")
_OF_FUNCTIONS = frozenset({"__closure__", "__code__", "__defaults__", "__kwdefaults__"})
_OF_METHODS = frozenset({"__func__", "__self__"})


class Hop(NamedTuple):
    """One step from a value to what it holds."""

    kind: Literal["attribute", "item", "nth", "type"]
    """"nth": the value of a dict's key by the key's position."""
    name: Any = None


class SourcePath(NamedTuple):
    """A guard's source: where it starts, and the hops from there."""

    scope: str
    """"L", a local of the compiled frame, or "G", a global."""
    root: str
    hops: tuple[Hop, ...]


@functools.lru_cache(maxsize=8192)
def path_of(source: str) -> SourcePath | None:
    """The path of a source such as `L['self']._buffers['pe']`; None for what has another form."""
    if len(source) > _MAX_CHARS:
        return None
    try:
        node = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    hops: list[Hop] = []
    while True:
        step = _step(node)
        if step is None:
            return None
        inner, hop = step
        if isinstance(inner, ast.Name) and inner.id in ("L", "G"):
            if hop is None or hop.kind != "item" or type(hop.name) is not str:
                return None
            return SourcePath(inner.id, hop.name, tuple(reversed(hops)))
        if hop is not None:
            hops.append(hop)
        node = inner


def _step(node: ast.expr) -> tuple[ast.expr, Hop | None] | None:
    if isinstance(node, ast.Attribute):
        return node.value, Hop("attribute", node.attr)
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant):
            return node.value, Hop("item", node.slice.value)
        position = _key_position(node.slice)
        return None if position is None else (node.value, Hop("nth", position))
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return None
    called = ast.unparse(node.func)
    if called == "dict.__getitem__" and len(node.args) == 2:
        key = node.args[1]
        return (node.args[0], Hop("item", key.value)) if isinstance(key, ast.Constant) else None
    if len(node.args) != 1:
        return None
    if called == "type":
        return node.args[0], Hop("type")
    return (node.args[0], None) if called in ("dict", "list", "tuple") else None


def _key_position(node: ast.expr) -> int | None:
    """The position in `list(dict.keys(...))[0]`, as torch writes a key that is no constant."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return None
    position = node.slice.value
    is_keys = ast.unparse(node.value).startswith("list(dict.keys(")
    return position if is_keys and type(position) is int and position >= 0 else None


def class_of(value: Any) -> Any:
    """Its class, whatever it says that `__class__` is."""
    return type(value)  # pyright: ignore[reportUnknownVariableType]


def read(hop: Hop, value: Any) -> Any:
    """What one hop leads to; `MISSING` where that cannot be read safely."""
    if value is MISSING:
        return MISSING
    try:
        if hop.kind == "attribute":
            return _attribute(value, hop.name)
        if hop.kind == "type":
            return class_of(value)
        return _item(hop, value)
    except Exception:
        return MISSING


def _item(hop: Hop, value: Any) -> Any:
    kind = class_of(value)
    if issubclass(kind, _dict):
        if hop.kind == "item":
            return _dict.get(value, hop.name, MISSING)
        values: Any = islice(_dict.values(value), hop.name, None)
        return next(values, MISSING)
    if kind is types.MappingProxyType:  # the names of a class
        return value.get(hop.name, MISSING)
    for base in _sequences:
        if issubclass(kind, base) and type(hop.name) is int:
            return base.__getitem__(value, hop.name)
    return MISSING


def _attribute(value: Any, name: str) -> Any:
    kind = class_of(value)
    if kind is types.CellType:
        return value.cell_contents if name == "cell_contents" else MISSING
    if kind is types.FunctionType and name in _OF_FUNCTIONS:
        return getattr(value, name)
    if kind is types.MethodType and name in _OF_METHODS:
        return getattr(value, name)
    if issubclass(kind, type):
        if name in ("__mro__", "__dict__"):
            return type.__dict__[name].__get__(value)
        return _of_class(value, name, None)
    try:
        held: Any = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has slots
        held = None
    if class_of(held) is _dict:
        if name == "__dict__":
            return held
        if name in held:
            return held[name]
        for table in _TABLES:  # a module keeps its tensors and submodules beside its attributes
            found = _dict.get(held.get(table) or {}, name, MISSING)
            if found is not MISSING:
                return found
    return _of_class(kind, name, value)


def _of_class(kind: type, name: str, value: Any) -> Any:
    """A name of a class; for one with slots, what its instance keeps there."""
    for base in type.__dict__["__mro__"].__get__(kind):
        found = type.__dict__["__dict__"].__get__(base).get(name, MISSING)
        if found is MISSING:
            continue
        if class_of(found) is types.MemberDescriptorType and value is not None:
            return found.__get__(value)
        # A property would run; functions and constants are what they are.
        is_function = class_of(found) is types.FunctionType
        plain = is_function or not hasattr(class_of(found), "__get__")
        return found if plain else MISSING
    return MISSING
