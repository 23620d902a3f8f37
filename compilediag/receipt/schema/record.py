"""The base of every part of a receipt, the name of a frame, and a record as a flat list."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a receipt. A reader ignores the fields that only later versions have.

    Modules that define records do without `from __future__ import annotations`: msgspec would have
    to evaluate every annotation of every record when the first receipt is read.
    """


Kind = TypeVar("Kind", bound=Record)

EMPTY: Any = msgspec.field(default_factory=dict[Any, Any])  #: Default of a field that is a mapping.


def make_record(kind: type[Kind], source: object, /, **fields: Any) -> Kind:
    """Make a record with `fields`, and for every other field the attribute of that name, where
    `source` has one; objects inside them become records too.

    Raises:
        msgspec.ValidationError: a value has another type than the record declares.
    """
    for name in kind.__struct_fields__:
        if name not in fields and hasattr(source, name):
            fields[name] = getattr(source, name)
    stored = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    members = {key: fields[name] for name, key in stored if name in fields}
    # `convert` checks types, which the constructor of a Struct does not.
    return msgspec.convert(members, kind, from_attributes=True)


def iterate_fields(record: Record) -> Iterator[tuple[str, Any]]:
    """Iterate the fields of a record: name in the file, and value."""
    for name, key in zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True):
        yield key, getattr(record, name)


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten a record or a mapping at any depth: path ("lane.name", as in the file), value."""
    if isinstance(value, Record):
        value = msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        for key, member in cast(Mapping[str, Any], value).items():
            yield from flatten(member, f"{path}.{key}" if path else key)
    else:
        yield path, value


class FrameName(Record, frozen=True, kw_only=True):
    """A frame by its code object; `line` is the first line of the function."""

    function: str  #: Name of its code object.
    file: str  #: Its file, relative to the working directory where it lies below it.
    line: int  #: First line of the function.
