"""Slotted dataclasses that `dataclasses` looks into when the first object is made.

It compiles six functions for every class when the class is defined: for the events and the types
of a run this was two thirds of the time that a command needs to start. Most classes of a process
never have an object. What is made here is a dataclass to everybody who asks: `fields`, `replace`,
`is_dataclass`, patterns, copying, pickling and msgspec.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

__all__ = ["dataclass"]

_INIT = "__init__"
_OTHERS = ("__repr__", "__eq__", "__hash__")
_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"

_NO_FIELDS = ("ClassVar", "InitVar", "KW_ONLY")

_OF_THE_FIRST = frozenset({"__dict__", "__weakref__"})
"""Descriptors of the described class itself: a class has its own."""


def _lazy_dataclass(*, slots: bool, frozen: bool = False) -> Any:
    """Stands for `dataclasses.dataclass(slots=True)`, frozen or not, and for no other."""
    if not slots:
        raise TypeError("only dataclasses with slots are made here")
    return partial(_made, frozen=frozen)


def _made(described: type[Any], *, frozen: bool) -> type[Any]:
    """The class with slots; all else is found out from what was described when it is needed."""
    if any(map(dataclasses.is_dataclass, described.__bases__)):
        raise TypeError("a dataclass that inherits from another is not made here")
    names = tuple(described.__annotations__)
    own = {each: item for each, item in vars(described).items() if each not in _OF_THE_FIRST}
    if not frozen:
        own.setdefault("__hash__", None)  # it could change while it lies in a set
    namespace = {each: item for each, item in own.items() if each not in names}
    namespace.update(_FROZEN if frozen else _OPEN, __slots__=names, __match_args__=names)
    namespace.update((each, _FoundLater(each, own)) for each in (_FIELDS, _PARAMS))
    kind = type(described.__name__, described.__bases__, namespace)
    kind.__qualname__ = described.__qualname__
    for name in (_INIT, *_OTHERS):
        if name not in own:
            setattr(kind, name, _written_later(kind, name, own))
    return kind


class _FoundLater:
    """What `dataclasses` keeps in a class, found when somebody asks the class or an object."""

    def __init__(self, name: str, own: Mapping[str, Any]) -> None:
        self._name = name
        self._own = own

    def __get__(self, made: object, kind: type[Any]) -> Any:
        plain = _bare(kind, self._own)
        found = getattr(dataclasses.dataclass(init=False, repr=False, eq=False)(plain), self._name)
        setattr(kind, self._name, found)
        return found


def _bare(kind: type[Any], own: Mapping[str, Any]) -> type[Any]:
    """What was described, as a class that is no dataclass yet."""
    return type(kind.__name__, kind.__bases__, dict(own))


def _written_later(kind: type[Any], name: str, own: Mapping[str, Any]) -> Any:
    """The method of that name: it puts the written one into the class, and goes on in that."""

    def method(self: object, *given: Any, **named: Any) -> Any:
        _write(kind, name, own)
        return getattr(kind, name)(self, *given, **named)

    method.__name__ = name
    method.__qualname__ = f"{kind.__qualname__}.{name}"
    return method


def _write(kind: type[Any], name: str, own: Mapping[str, Any]) -> None:
    """`__init__` alone, or all others: most objects are made, and never compared or printed.

    Two threads that come here at once write the same.
    """
    if name == _INIT:
        kind.__init__ = _init_of(kind, own)
        return
    hashed = "__hash__" not in own
    written = dataclasses.dataclass(init=False, unsafe_hash=hashed)(_bare(kind, own))
    for each in _OTHERS:
        if each not in own:
            setattr(kind, each, vars(written)[each])


def _init_of(kind: type[Any], own: Mapping[str, Any]) -> Callable[..., None]:
    """The `__init__` that `dataclasses` would write; it would write two methods more with it.

    Raises:
        TypeError: the class has what is not made here: a `ClassVar`, an `InitVar`, or a field that
            is not given by its place.
    """
    names: dict[str, Any] = {"__put__": object.__setattr__, "__absent__": dataclasses.MISSING}
    frozen = kind.__setattr__ is _refuse_to_set
    types: dict[str, Any] = {}
    head: list[str] = ["self"]
    body: list[str] = []
    for name, told in kind.__annotations__.items():
        field: Any = own.get(name, dataclasses.MISSING)
        if not isinstance(field, dataclasses.Field):
            field = dataclasses.field(default=field)
        field = cast("dataclasses.Field[Any]", field)
        if field.kw_only is True or any(word in str(told) for word in _NO_FIELDS):
            raise TypeError(f"{kind.__qualname__}.{name} is not made here")
        value, default, absent = name, f"__{name}_default__", ""
        made_anew = field.default_factory is not dataclasses.MISSING
        if made_anew:
            names[default], absent = field.default_factory, f"{default}()"
        elif field.default is not dataclasses.MISSING:
            names[default], absent = field.default, default
        if not field.init:
            value = absent
        else:
            types[name] = told
            if made_anew:
                value = f"{absent} if {name} is __absent__ else {name}"
            given = "__absent__" if made_anew else absent
            head.append(f"{name}={given}" if given else name)
        if value:
            body.append(f"__put__(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    text = "\n ".join([f"def __init__({', '.join(head)}):", *(body or ["pass"])])
    exec(text, names)  # noqa: S102 - names and places of fields only, as of `dataclasses`
    written = names[_INIT]
    written.__qualname__ = f"{kind.__qualname__}.{_INIT}"
    written.__module__ = kind.__module__
    written.__annotations__ = {**types, "return": None}
    return written


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


def _replaced(self: Any, /, **changes: Any) -> Any:
    return dataclasses.replace(self, **changes)


_OPEN = {
    "__getstate__": _state_of,
    "__setstate__": _set_state,
    "__replace__": _replaced,
}
_FROZEN = {**_OPEN, "__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _lazy_dataclass
