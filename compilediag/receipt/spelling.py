"""How a receipt is spelled in its file: JSON, one space of indentation, a newline at the end.

A large receipt is spelled in pieces. Made in one, its text would be there three times over, and be
most of the memory that a reading of a large trace needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from compilediag.receipt.schema.receipt import MIN_READER_VERSION, SCHEMA_VERSION, Receipt
from compilediag.receipt.schema.record import LEAVES, Record, attributes, to_json
from compilediag.receipt.versions import is_older

ITEMS_TOGETHER = 256
"""Most items of a list that are spelled together."""


def encoded(receipt: Receipt) -> bytes:
    """The bytes of the file.

    A receipt of an older version is spelled as this one spells it, and says so; one of a newer
    version stays what it is.
    """
    return b"".join(pieces_of(receipt))


def pieces_of(receipt: Receipt) -> Iterator[bytes]:
    """The same, in pieces of bounded size."""
    if is_older(receipt):
        receipt = msgspec.structs.replace(
            receipt, schema_version=SCHEMA_VERSION, min_reader_version=MIN_READER_VERSION
        )
    yield from _value(receipt, 0)
    yield b"\n"


def _value(value: Any, depth: int) -> Iterator[bytes]:
    """What stands at a key; `depth` is the number of objects and lists that it stands in."""
    if not _is_long(value):
        yield _indented(msgspec.json.format(to_json(value), indent=1), depth)
    elif isinstance(value, Record):
        yield from _fields(value, depth)
    else:
        yield from _items(cast("tuple[Any, ...]", value), depth)


def _is_long(value: Any) -> bool:
    """Whether it is, or has at any depth of records, a list that is spelled in pieces."""
    if isinstance(value, tuple):
        return len(cast("tuple[Any, ...]", value)) > ITEMS_TOGETHER
    # Where other fields go between ours is decided by `as_plain`, for the whole of a record.
    return (
        isinstance(value, Record)
        and not value.unknown
        and any(
            # A call for every number and text would be most of the time of a small receipt.
            type(item) not in LEAVES and _is_long(item)
            for name in value.__struct_fields__
            for item in (getattr(value, name),)
        )
    )


def _fields(record: Record, depth: int) -> Iterator[bytes]:
    line = b"\n" + b" " * (depth + 1)
    start = b"{"
    for name, attribute in attributes(type(record)).items():
        yield start + line + msgspec.json.encode(name) + b": "
        yield from _value(getattr(record, attribute), depth + 1)
        start = b","
    yield line[:-1] + b"}"


def _items(items: tuple[Any, ...], depth: int) -> Iterator[bytes]:
    start = b"["
    for begin in range(0, len(items), ITEMS_TOGETHER):
        some = items[begin : begin + ITEMS_TOGETHER]
        text = _indented(msgspec.json.format(to_json(some), indent=1), depth)
        yield start + text[1 : text.rindex(b"\n")]
        start = b","
    yield b"\n" + b" " * depth + b"]"


def _indented(text: bytes, depth: int) -> bytes:
    """No text of JSON holds the end of a line."""
    return text.replace(b"\n", b"\n" + b" " * depth) if depth else text
