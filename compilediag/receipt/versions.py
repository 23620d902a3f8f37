"""The versions of the receipt format, and how each is read.

A newer minor version is read without the fields that are new in it; a newer major version is
refused. No field was renamed so far: who renames one says with `msgspec.field(name=)` how it is
written, and reads both names where the old one was released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from compilediag.errors import ReceiptTooNew, ReceiptUnreadable
from compilediag.receipt.schema.receipt import SCHEMA, SCHEMA_VERSION, Receipt

MAX_DIGITS = 6
"""Of a part of a version."""


ADDED_TO_LANE: dict[str, tuple[int, int]] = {}
"""Fields of the lane that came after 1.0, by path ("numerics_flags.mode"), with the version that
brought each: receipts before it have no value of it."""


def version_of(text: object) -> tuple[int, int] | None:
    """The version as numbers, (1, 0) for "1.0"; None for anything else."""
    major, _, minor = text.partition(".") if isinstance(text, str) else ("", "", "")
    readable = all(part.isdecimal() and len(part) <= MAX_DIGITS for part in (major, minor))
    return (int(major), int(minor)) if readable else None


def is_newer(receipt: Receipt) -> bool:
    """Whether a newer minor version wrote it: the file may hold more than the receipt."""
    written, ours = version_of(receipt.schema_version), version_of(SCHEMA_VERSION)
    return written is not None and ours is not None and written > ours


def receipt_of(raw: object, name: str) -> Receipt:
    """Decoded JSON as a Receipt; `name` is what errors call it.

    Raises:
        ReceiptTooNew: a newer major version wrote it, or it requires a newer reader.
        ReceiptUnreadable: it is not a receipt.
    """
    if not isinstance(raw, dict) or cast(dict[str, Any], raw).get("schema") != SCHEMA:
        raise ReceiptUnreadable(f"{name} is not a compilediag receipt.")
    document = cast(dict[str, Any], raw)
    _check_version(document, name)
    try:
        return msgspec.convert(document, Receipt)
    except msgspec.ValidationError as error:
        raise ReceiptUnreadable(f"{name} is not a valid receipt: {error}.") from error


def _check_version(document: Mapping[str, Any], name: str) -> None:
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
