"""Receipts on disk: written whole or not at all, and read back, of every version of the format.
Fields that a newer minor version adds are not read; a newer major version is refused. A field keeps
its name in the file: who renames it in code says with `msgspec.field(name=)` how it is written."""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any, cast

import msgspec

from compilediag.errors import OutputUnwritable, ReceiptTooNew, ReceiptUnreadable
from compilediag.readers.lines import map_json, replace_surrogates
from compilediag.receipt.locate import AnyPath, find_receipt
from compilediag.receipt.schema.receipt import MIN_READER_VERSION, SCHEMA, SCHEMA_VERSION, Receipt
from compilediag_harness.base import atomic_write

LARGEST_BYTES = 64 * 1024 * 1024  #: A larger file is not read: no receipt of ours comes near.
STALE_S = 3600.0  #: A temporary file this old was left by a writer that was killed.
MAX_DIGITS = 6  #: Of a part of a version.
ADDED_TO_CONFIGURATION: dict[str, tuple[int, int]] = {}
"""Fields of the configuration that came after 1.0, by path ("numerics_flags.mode"), with the
version that brought each: receipts before it have no value of it."""


def encode_receipt(receipt: Receipt) -> bytes:
    """Encode the bytes of the file: JSON indented by one space, with a newline at the end; written
    as one of this version, whichever it was read from: it holds the fields of no other."""
    receipt = msgspec.structs.replace(
        receipt, schema_version=SCHEMA_VERSION, min_reader_version=MIN_READER_VERSION
    )
    return msgspec.json.format(msgspec.json.encode(receipt), indent=1) + b"\n"


def write_receipt(receipt: Receipt, path: AnyPath, *, flushed: bool = True) -> int:
    """Write `receipt` to `path`, atomically, and return its size in bytes.

    Temporary files of killed writers in the same folder are removed when they are an hour old.
    `flushed` makes it outlive a power failure: without, it is to be one of many that can be made
    again from what they were made of.

    Raises:
        OutputUnwritable: the folder or the disk does not take it; an older file is left as it was.
    """
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        start = glob.escape(atomic_write.make_temporary_prefix(file.name))
        for leftover in file.parent.glob(f"{start}*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > STALE_S:
                    leftover.unlink()
        return atomic_write.write(file, [encode_receipt(receipt)], flushed=flushed)
    except OSError as error:
        raise OutputUnwritable(
            f"The receipt cannot be written to {path}: {error.strerror or error}."
        ) from error


def read_receipt(path: AnyPath | None = None) -> Receipt:
    """Read the receipt at `path`: a receipt file or a run directory; by default of the last run.

    Raises:
        ReceiptNotFound: nothing is there.
        ReceiptUnreadable: it cannot be opened, or is not a receipt.
        ReceiptTooNew: a newer major version wrote it.
    """
    file = find_receipt(path)
    return decode_receipt(_read_content(file), file)


def read_json(path: AnyPath | None = None) -> dict[str, Any]:
    """Read the receipt at `path` as JSON values: of this version with all its fields, of a newer
    minor version as the file has it, with the fields that this version does not have.

    Raises:
        the same as `read_receipt`.
    """
    file = find_receipt(path)
    content = _read_content(file)
    receipt = decode_receipt(content, file)
    return _decode_json(content if is_newer(receipt) else msgspec.json.encode(receipt), file)


def _read_content(file: str) -> bytes:
    try:
        if os.stat(file).st_size > LARGEST_BYTES:
            raise ReceiptUnreadable(
                f"{file} is larger than {LARGEST_BYTES >> 20} MiB: this is no receipt."
            )
        return Path(file).read_bytes()
    except OSError as error:
        raise ReceiptUnreadable(f"{file} cannot be read: {error.strerror or error}.") from error


def decode_receipt(content: bytes, name: str) -> Receipt:
    """Decode the bytes of a file to a Receipt; `name` is what errors call it, a path where there is
    one.

    Raises:
        ReceiptUnreadable: it is not a receipt.
        ReceiptTooNew: a newer major version wrote it.
    """
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        receipt = msgspec.json.decode(content, type=Receipt)
        versions = (receipt.schema, receipt.schema_version, receipt.min_reader_version)
        if versions == (SCHEMA, SCHEMA_VERSION, MIN_READER_VERSION):
            return receipt
    return convert_receipt(_decode_json(content, name), name)


def _decode_json(content: bytes, name: str) -> Any:
    """Decode JSON, also of other writers: NaN, infinities and numbers too large for a float
    become null, and then `checks.values_finite` false; bytes that are not UTF-8 and lone surrogates
    are replaced."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(content)
    lost: list[float] = []

    def mend(leaf: Any) -> Any:
        if isinstance(leaf, float) and not math.isfinite(leaf):
            lost.append(leaf)
            return None
        return replace_surrogates(leaf)

    try:
        value = map_json(json.loads(content.decode("utf-8-sig", "replace")), mend, mend)
    except json.JSONDecodeError as error:
        raise ReceiptUnreadable(_describe_unreadable(error, name)) from error
    except (ValueError, RecursionError) as error:
        raise ReceiptUnreadable(f"{name} is not readable as JSON: {error}.") from error
    document = cast(dict[str, Any], value if isinstance(value, dict) else {})
    if lost and isinstance(document.get("checks"), dict):
        document["checks"]["values_finite"] = False
    return cast(Any, value)


_HALF_A_WORD = re.compile(r"\s*[\w.+-]*\s*\Z")
"""What may be left of a document where it was cut."""


def _describe_unreadable(error: json.JSONDecodeError, file: str) -> str:
    if not error.doc.strip():
        reason = "it is empty"
    elif error.msg.startswith("Unterminated string") or _HALF_A_WORD.match(error.doc, error.pos):
        reason = f"it ends in the middle, in line {error.doc.count(chr(10)) + 1}"
    else:
        reason = str(error)
    folder = Path(file).absolute().parent
    if any(folder.glob("journal-*")):
        reason += f"; `compilediag analyze {folder}` makes it again from the run's journals"
    return f"{file} is not readable as JSON: {reason}."


def parse_version(text: object) -> tuple[int, int] | None:
    """Parse a version, (1, 0) of "1.0"; None for anything else."""
    major, _, minor = text.partition(".") if isinstance(text, str) else ("", "", "")
    readable = all(part.isdecimal() and len(part) <= MAX_DIGITS for part in (major, minor))
    return (int(major), int(minor)) if readable else None


def is_newer(receipt: Receipt) -> bool:
    """True if a newer minor version wrote it: the file may hold more than the receipt."""
    written, ours = parse_version(receipt.schema_version), parse_version(SCHEMA_VERSION)
    return written is not None and ours is not None and written > ours


def convert_receipt(raw: object, name: str) -> Receipt:
    """Convert decoded JSON to a Receipt; `name` is what errors call it.

    Raises:
        ReceiptTooNew: a newer major version wrote it, or it requires a newer reader.
        ReceiptUnreadable: it is not a receipt.
    """
    if not isinstance(raw, dict) or cast(dict[str, Any], raw).get("schema") != SCHEMA:
        raise ReceiptUnreadable(f"{name} is not a compilediag receipt.")
    document = cast(dict[str, Any], raw)
    written, ours = parse_version(document.get("schema_version")), parse_version(SCHEMA_VERSION)
    if ours is None or written is None:
        raise ReceiptUnreadable(f"{name} has no schema version that can be read.")
    needed = parse_version(document.get("min_reader_version")) or (written[0], 0)
    if max(needed, (written[0], 0)) > ours:
        raise ReceiptTooNew(
            f"{name} has schema version {written[0]}.{written[1]} and this compilediag reads "
            f"{ours[0]}.{ours[1]}: upgrade compilediag to read it."
        )
    try:
        return msgspec.convert(document, Receipt)
    except msgspec.ValidationError as error:
        raise ReceiptUnreadable(f"{name} is not a valid receipt: {error}.") from error
