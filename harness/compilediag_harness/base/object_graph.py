"""Objects of the program, read without running any code of it: no property, no `__getattr__`, no
`__eq__`."""

from __future__ import annotations

import types
from collections import OrderedDict
from itertools import islice
from typing import Any, Literal, NamedTuple

MISSING = object()
"""Read where there is nothing, or nothing that can be read safely."""

_dict: Any = dict
_sequences: tuple[Any, ...] = (list, tuple)
"""Called as functions of the builtin classes: a subclass may have its own."""
TABLES = ("_parameters", "_buffers", "_modules")
"""Where a module keeps what it holds beside its attributes."""

_OF_FUNCTIONS = frozenset({"__closure__", "__code__", "__defaults__", "__kwdefaults__"})
_OF_METHODS = frozenset({"__func__", "__self__"})


class Hop(NamedTuple):
    """One step from a value to what it holds."""

    kind: Literal["attribute", "item", "nth", "type"]
    """"nth": the value of a dict's key by the key's position."""
    name: Any = None


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
    if name == "__dict__":
        return attributes_of(value)
    found = plain_attribute(value, name)
    return _of_class(kind, name, value) if found is MISSING else found


def attributes_of(value: Any) -> dict[str, Any]:
    """The `__dict__` of an object itself; one that is empty where it has slots alone."""
    try:
        own: Any = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return own if class_of(own) is _dict else {}


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """What an object holds itself by name; of a module its tensors and submodules too."""
    own = dict(attributes_of(value))
    tables: list[Any] = [own.pop(table, None) or {} for table in TABLES]
    return [*own.items(), *(part for table in tables for part in table.items())]


def plain_attribute(holder: Any, name: str) -> Any:
    """An attribute that an object or a module holds itself; `MISSING` where there is none."""
    own = attributes_of(holder)
    for table in (own, *map(own.get, TABLES)):
        if class_of(table) in (_dict, OrderedDict) and name in table:
            return table[name]
    return MISSING


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


def type_name(value: Any) -> str:
    """The type as guards print it: "int", "torch.Tensor", "app.Config"."""
    kind: type[object] = value.__class__
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"
