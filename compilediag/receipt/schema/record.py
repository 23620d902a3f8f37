"""Typed records that keep what they do not know: unknown fields survive a read and a write.

Invariant: `as_plain(from_plain(kind, raw)) == raw` for every valid `raw`, up to defaults of fields
that were absent. A receipt written by a newer minor version therefore loses nothing when an older
reader writes it back.

Modules that define records do without `from __future__ import annotations`: annotations that are
text are compiled one by one when the first receipt is read, a tenth of what `show` costs.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, cast

import msgspec

UNKNOWN_FIELD = "(unknown fields)"
"""Spelling of `Record.unknown` for the decoder: no JSON key of ours ever looks like this."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every part of a receipt.

    The decoder refuses what a record does not know, so that a receipt without anything unknown is
    known as such without a second look at it; `unknown_fields` reads the others.
    """

    unknown: Annotated[dict[str, Any], msgspec.Meta(max_length=0)] = msgspec.field(
        default_factory=dict[str, Any], name=UNKNOWN_FIELD
    )
    """Fields of this object that this version does not know, as they were read. The limit is the
    decoder's: a file that spells our own key has no influence on it."""


_UNKNOWN = b'"%b"' % UNKNOWN_FIELD.encode()
_NOTHING_UNKNOWN = b"{%b:{}," % _UNKNOWN

LEAVES = frozenset({str, int, float, bool, type(None)})
"""Types of JSON-ready values that hold no other."""

Kind = TypeVar("Kind", bound=Record)


def from_plain(kind: type[Kind], raw: Mapping[str, Any]) -> Kind:
    """`raw` as a `kind`, unknown fields kept at every level.

    Raises:
        msgspec.ValidationError: a field is missing or has another type.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        # Only the receipts of other versions and with fields of others pay for this import.
        from compilediag.receipt.schema.unknown_fields import convert_keeping

        return convert_keeping(kind, raw)


def as_plain(value: Any) -> Any:
    """A record, recursively, as JSON-ready values; unknown fields come after the known ones."""
    if type(value) in LEAVES:
        return value
    if isinstance(value, Record):
        plain = {
            # A call for every number and text would be most of the time of a large receipt.
            name: item if type(item) in LEAVES else as_plain(item)
            for name, attribute in attributes(type(value)).items()
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


def to_json(record: Any) -> bytes:
    """The JSON of `as_plain(record)`, in a fraction of its time; of several records, their list."""
    try:
        content = msgspec.json.encode(record).replace(_NOTHING_UNKNOWN, b"{")
    except TypeError:
        # A mapping that is no dictionary; in a text our key would have escaped quotation marks.
        return msgspec.json.encode(as_plain(record))
    return msgspec.json.encode(as_plain(record)) if _UNKNOWN in content else content


def has_unknown(value: Any) -> bool:
    """Whether any record inside `value` holds a field this version does not know."""
    if isinstance(value, Record):
        if value.unknown:
            return True
        return any(has_unknown(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return any(has_unknown(item) for item in cast(tuple[Any, ...], value))
    return False


@cache
def attributes(kind: type[Record]) -> Mapping[str, str]:
    """The attribute of each JSON key, but for the one that holds what is not known."""
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return {name: item for name, item in names if name != UNKNOWN_FIELD}
