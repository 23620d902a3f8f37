"""Which fields of a record may hold what has to be looked at before it is written, by their types.

Most fields of a receipt are counts: whoever looks for secrets and for numbers that JSON does not
have need not ask each of them in each receipt what it is.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any, NamedTuple, TypeGuard

import msgspec

from compilediag.receipt.schema.record import UNKNOWN_FIELD, Record

_NEVER_SPEAK = frozenset({int, bool, type(None)})
"""Types of values that are written as they are."""


class SpokenFields(NamedTuple):
    """The fields that may hold text, or a number that is not finite, in the order of the record."""

    leaves: tuple[str, ...]
    """Keys of those that hold no record, or anything."""
    records: tuple[tuple[str, type[Record]], ...]
    """Those that hold a record of one kind, or none."""
    several: tuple[tuple[str, type[Record]], ...]
    """Those that hold a tuple of such records."""


@cache
def spoken_fields(kind: type[Record]) -> SpokenFields:
    """Words that a type lists are our own, and left out."""
    leaves: list[str] = []
    records: list[tuple[str, type[Record]]] = []
    several: list[tuple[str, type[Record]]] = []
    for field in msgspec.structs.fields(kind):
        possible = [item for item in _members(field.type) if not _never_speaks(item)]
        only = possible[0] if len(possible) == 1 else None
        if not possible or field.encode_name == UNKNOWN_FIELD:
            continue
        if _is_record(only):
            records.append((field.encode_name, only))
        elif (inner := _in_tuple(only)) is not None:
            several.append((field.encode_name, inner))
        else:
            leaves.append(field.encode_name)
    return SpokenFields(tuple(leaves), tuple(records), tuple(several))


def _never_speaks(declared: Any) -> bool:
    return declared in _NEVER_SPEAK or typing.get_origin(declared) is typing.Literal


def _in_tuple(declared: Any) -> type[Record] | None:
    """The kind of record of which a tuple holds any number."""
    if typing.get_origin(declared) is not tuple:
        return None
    item, *more = typing.get_args(declared)
    return item if _is_record(item) and more == [...] else None


def _members(declared: Any) -> tuple[Any, ...]:
    """The types of which a value has one."""
    origin = typing.get_origin(declared)
    if origin is typing.Annotated:
        return _members(typing.get_args(declared)[0])
    if origin is typing.Union or origin is types.UnionType:
        return tuple(each for item in typing.get_args(declared) for each in _members(item))
    return (declared,)


def _is_record(declared: Any) -> TypeGuard[type[Record]]:
    return isinstance(declared, type) and issubclass(declared, Record)
