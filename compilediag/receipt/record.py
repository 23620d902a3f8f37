"""Typed records that keep what they do not know: unknown fields survive a read and a write.

Invariant: `as_plain(from_plain(kind, raw)) == raw` for every valid `raw`, up to defaults of fields
that were absent. A receipt written by a newer minor version therefore loses nothing when an older
reader writes it back.

Modules that define records do without `from __future__ import annotations`: annotations that are
text are compiled one by one when the first receipt is read, a tenth of what `show` costs.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

UNKNOWN_FIELD = "(unknown fields)"
"""Spelling of `Record.unknown` for the decoder: no JSON key of ours ever looks like this."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every part of a receipt."""

    unknown: dict[str, Any] = msgspec.field(default_factory=dict[str, Any], name=UNKNOWN_FIELD)
    """Fields of this object that this version does not know, as they were read."""


LEAVES = frozenset({str, int, float, bool, type(None)})
"""Types of JSON-ready values that hold no other."""

Kind = TypeVar("Kind", bound=Record)


def from_plain(kind: type[Kind], raw: Mapping[str, Any]) -> Kind:
    """`raw` as a `kind`, unknown fields kept at every level.

    Raises:
        msgspec.ValidationError: a field is missing or has another type.
    """
    record = msgspec.convert(raw, kind)
    _remember_unknown(record, raw)
    return record


def as_plain(value: Any) -> Any:
    """A record, recursively, as JSON-ready values; unknown fields come after the known ones."""
    if type(value) in LEAVES:
        return value
    if isinstance(value, Record):
        plain = {
            # A call for every number and text would be most of the time of a large receipt.
            name: item if type(item) in LEAVES else as_plain(item)
            for name, attribute in _known_attributes(type(value)).items()
            for item in (getattr(value, attribute),)
        }
        for name, item in value.unknown.items():
            plain.setdefault(name, item)
        return plain
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return {str(key): as_plain(item) for key, item in items}
    if isinstance(value, (tuple, list)):
        return [as_plain(item) for item in cast(Sequence[Any], value)]
    return value


def has_unknown(value: Any) -> bool:
    """Whether any record inside `value` holds a field this version does not know."""
    if isinstance(value, Record):
        if value.unknown:
            return True
        return any(has_unknown(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return any(has_unknown(item) for item in cast(tuple[Any, ...], value))
    return False


def _remember_unknown(value: Any, raw: Any) -> None:
    """Walks a converted value beside what it came from; `convert` keeps order and length."""
    if isinstance(value, Record):
        attributes = _attributes(type(value))
        unknown: dict[str, Any] = {}
        if not attributes.keys() >= raw.keys():
            unknown = {key: item for key, item in raw.items() if key not in attributes}
        if unknown or value.unknown:
            # The record is frozen for its readers; it is not published before this line ran.
            msgspec.structs.force_setattr(value, "unknown", unknown)
        for name, attribute in attributes.items():
            inner = getattr(value, attribute)
            if isinstance(inner, (Record, tuple)) and name in raw:
                _remember_unknown(inner, raw[name])
    elif isinstance(value, tuple):
        for item, source in zip(cast(tuple[Any, ...], value), raw, strict=True):
            if type(item) not in LEAVES:
                _remember_unknown(item, source)


@cache
def _attributes(kind: type[Record]) -> Mapping[str, str]:
    """The attribute of each JSON key."""
    return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))


@cache
def _known_attributes(kind: type[Record]) -> Mapping[str, str]:
    """The same without the one that holds what is not known."""
    return {name: item for name, item in _attributes(kind).items() if name != UNKNOWN_FIELD}
