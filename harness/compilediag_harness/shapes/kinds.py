"""What a class is: where its instances keep their state, and how they are named."""

from __future__ import annotations

import functools
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

# The same without types, which are not known of anything here.
is_a: Callable[[Any, Any], bool] = isinstance
type_of: Callable[[Any], Any] = type
dict_of: Callable[[Any], dict[str, Any]] = vars

_POINTER = struct.calcsize("P")


def kind_name(value: Any) -> str:
    """The full name of its class."""
    kind = type_of(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def kind_and_size(value: Any) -> str:
    """The same with its length."""
    return f"{kind_name(value)} of {len(value)}"


def is_of_python(kind: Any) -> bool:
    """Whether instances hold nothing but attributes: no state of a class written in C."""
    pointers = len(slots_of(kind)) + bool(kind.__dictoffset__) + bool(kind.__weakrefoffset__)
    return (
        kind.__basicsize__ <= object.__basicsize__ + pointers * _POINTER and not kind.__itemsize__
    )


def slots_of(kind: Any) -> list[tuple[str, Any]]:
    """The `__slots__` of a class and its bases."""
    return [
        (name, member)
        for owner in kind.__mro__
        if "__slots__" in dict_of(owner)
        for name, member in dict_of(owner).items()
        if is_a(member, types.MemberDescriptorType)
    ]


def file_of(kind: Any) -> str:
    """The file of the module that defines a class; "" for what is built in."""
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "builtins":
        return ""
    return getattr(module, "__file__", None) or f"<{kind.__module__}>"


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """The names that a code object and those inside it use."""
    inner = (names_in(item) for item in code.co_consts if is_a(item, types.CodeType))
    return frozenset(code.co_names).union(*inner)
