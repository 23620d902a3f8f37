"""Frozen slotted dataclasses whose methods are written when the first object is made.

`dataclasses` compiles six functions for every class when the class is defined: for the events and
the types of a run this was two thirds of the time that a command needs to start. Most classes of a
process never have an object. What is made here is a dataclass to everybody who asks: `fields`,
`replace`, `is_dataclass`, patterns, copying, pickling and msgspec.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_INIT = "__init__"
_OTHERS = ("__repr__", "__eq__", "__hash__")


def _lazy_dataclass(*, frozen: bool, slots: bool) -> Any:
    """Stands for `dataclasses.dataclass(frozen=True, slots=True)`, and for no other."""
    if not (frozen and slots):
        raise TypeError("only frozen dataclasses with slots are made here")
    return _made


def _made(described: type[Any]) -> type[Any]:
    if any(map(dataclasses.is_dataclass, described.__bases__)):
        raise TypeError("a dataclass that inherits from another is not made here")
    namespace = dict(vars(described))
    fields_only = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)
    kind = fields_only(described)
    for name in (_INIT, *_OTHERS):
        if name not in namespace:
            setattr(kind, name, _written_later(kind, name, namespace))
    kind.__setattr__ = _refuse_to_set
    kind.__delattr__ = _refuse_to_delete
    kind.__getstate__ = _state_of
    kind.__setstate__ = _set_state
    return kind


def _written_later(kind: type[Any], name: str, namespace: dict[str, Any]) -> Any:
    """The method of that name: it puts the written one into the class, and goes on in that."""

    def method(self: object, *given: Any, **named: Any) -> Any:
        _write(kind, name, namespace)
        return getattr(kind, name)(self, *given, **named)

    method.__name__ = name
    method.__qualname__ = f"{kind.__qualname__}.{name}"
    return method


def _write(kind: type[Any], name: str, namespace: dict[str, Any]) -> None:
    """The first method and the others apart, taken from a class that `dataclasses` makes of the
    same description: most objects are made, and never compared or printed.

    Two threads that come here at once write the same.
    """
    own = {each: item for each, item in namespace.items() if each not in _OF_THE_FIRST}
    bare = type(kind.__name__, kind.__bases__, own)
    if name == _INIT:
        written = dataclasses.dataclass(frozen=True, repr=False, eq=False)(bare)
    else:
        written = dataclasses.dataclass(init=False, unsafe_hash="__hash__" not in own)(bare)
    for each in (_INIT,) if name == _INIT else _OTHERS:
        if each not in own:
            setattr(kind, each, vars(written)[each])


_OF_THE_FIRST = frozenset({"__dict__", "__weakref__"})
"""Descriptors of the described class itself: a class has its own."""


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state_of(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        # The object is frozen to everybody else.
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _lazy_dataclass
