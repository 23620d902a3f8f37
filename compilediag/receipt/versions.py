"""Receipts of every released version as a Receipt of this one.

A newer minor version is read as it is: its new fields are kept as unknown ones. An older major
version goes through the chain of `UPGRADES`. A newer major version is refused. A field that was
renamed is found under its old spelling by its stable id in `fields.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from compilediag.errors import ReceiptTooNew, ReceiptUnreadable
from compilediag.receipt.schema.receipt import MIN_READER_VERSION, SCHEMA, SCHEMA_VERSION, Receipt
from compilediag.receipt.schema.record import from_plain, has_unknown

_DIGITS = 6
"""The most that a part of a version has."""

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: Mapping[int, Upgrade] = {}
"""Major version to the function that makes the next major version of a receipt. A function never
changes after its release; the golden files of all versions go through the whole chain."""


def is_present(receipt: Receipt) -> bool:
    """Whether it says of itself that it is of this version: then it is read as it is."""
    return (receipt.schema, receipt.schema_version, receipt.min_reader_version) == (
        SCHEMA,
        SCHEMA_VERSION,
        MIN_READER_VERSION,
    )


def is_older(receipt: Receipt) -> bool:
    """Whether an older version wrote it."""
    written, ours = version_of(receipt.schema_version), version_of(SCHEMA_VERSION)
    return written is not None and ours is not None and written < ours


def receipt_of(raw: object, name: str) -> Receipt:
    """Decoded JSON as a Receipt; `name` is what errors call it.

    Raises:
        ReceiptTooNew: a newer major version wrote it, or it asks for a newer reader.
        ReceiptUnreadable: it is not a receipt.
    """
    if not isinstance(raw, dict) or cast(dict[str, Any], raw).get("schema") != SCHEMA:
        raise ReceiptUnreadable(f"{name} is not a compilediag receipt.")
    document = cast(dict[str, Any], raw)
    major = _readable_major(document, name)
    document = upgraded(document, major, UPGRADES)
    try:
        receipt = from_plain(Receipt, document)
        if document["schema_version"] == SCHEMA_VERSION or not has_unknown(receipt):
            return receipt
        return from_plain(Receipt, respelled(document, _aliases()))
    except msgspec.ValidationError as error:
        return _with_old_spellings(document, name, error)


def _with_old_spellings(
    document: dict[str, Any], name: str, error: msgspec.ValidationError
) -> Receipt:
    try:
        return from_plain(Receipt, respelled(document, _aliases()))
    except msgspec.ValidationError:
        raise ReceiptUnreadable(f"{name} is not a valid receipt: {error}.") from error


def _readable_major(document: Mapping[str, Any], name: str) -> int:
    ours = version_of(SCHEMA_VERSION)
    written = version_of(document.get("schema_version"))
    if ours is None or written is None:
        raise ReceiptUnreadable(f"{name} has no schema version that can be read.")
    needed = version_of(document.get("min_reader_version")) or (written[0], 0)
    if max(needed, (written[0], 0)) > ours:
        raise ReceiptTooNew(
            f"{name} has schema version {written[0]}.{written[1]} and this compilediag reads "
            f"{ours[0]}.{ours[1]}: upgrade compilediag to read it."
        )
    return written[0]


def version_of(text: object) -> tuple[int, int] | None:
    """The version as numbers, (1, 0) for "1.0"; None for anything else."""
    major, _, minor = text.partition(".") if isinstance(text, str) else ("", "", "")
    readable = all(part.isdecimal() and len(part) <= _DIGITS for part in (major, minor))
    return (int(major), int(minor)) if readable else None


def upgraded(
    document: dict[str, Any], major: int, upgrades: Mapping[int, Upgrade]
) -> dict[str, Any]:
    """The document, taken from one major version to the next until no step is left."""
    while major in upgrades:
        document = upgrades[major](document)
        major += 1
    return document


def _aliases() -> dict[str, str]:
    # Read only for other versions' receipts with fields this one does not know, or that lack a
    # field: reading the register costs as much as reading a receipt.
    from compilediag.receipt.fields import old_spellings

    return old_spellings()


def respelled(document: dict[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """The document with every field under its present name.

    `aliases` maps an old path to the present last key: a field may be renamed within its object,
    never moved. In paths "[]" stands for every element of a list, "{}" for every value of a map.
    """
    for old, key in aliases.items():
        parent, _, last = old.rpartition(".")
        for place in _objects_at(document, parent.split(".") if parent else []):
            if last in place and key not in place:
                place[key] = place.pop(last)
    return document


def _objects_at(value: Any, path: list[str]) -> list[dict[str, Any]]:
    """Every object at a path: the document itself for an empty one."""
    found: list[Any] = [value]
    for part in path:
        key = part.removesuffix("[]").removesuffix("{}")
        found = [item[key] for item in _objects(found) if key in item]
        if part != key:
            found = [member for item in found for member in _members(item)]
    return _objects(found)


def _objects(values: list[Any]) -> list[dict[str, Any]]:
    return [cast(dict[str, Any], value) for value in values if isinstance(value, dict)]


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast(dict[str, Any], value).values())
    return cast(list[Any], value) if isinstance(value, list) else []
