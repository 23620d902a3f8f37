"""A file of a folder read into an entry, or into the reason why it is none."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from compilediag.errors import ReceiptTooNew, ReceiptUnreadable
from compilediag.fleet.entry import Entry, Problem, entry_of
from compilediag.receipt.file import LARGEST_BYTES, receipt_from
from compilediag.receipt.locate import RECEIPT_NAME
from compilediag.receipt.schema.receipt import SCHEMA

_SCHEMA_BYTES = SCHEMA.encode()


def read_file(folder: str, path: str) -> Entry | Problem:
    """What the file at `path` below `folder` holds. No content of it raises."""
    file = os.path.join(folder, path)
    try:
        if os.stat(file).st_size > LARGEST_BYTES:
            return Problem(path, "foreign", f"larger than {LARGEST_BYTES >> 20} MiB")
        with open(file, "rb") as stream:
            content = stream.read()
    except OSError as error:
        return Problem(path, "unreadable", error.strerror or str(error))
    return read_content(content, path, file)


def read_content(content: bytes, path: str, name: str) -> Entry | Problem:
    """The same for the bytes of a file that errors call `name`."""
    try:
        receipt = receipt_from(content, name)
    except ReceiptTooNew as error:
        return Problem(path, "newer", _without(name, error))
    except ReceiptUnreadable as error:
        return Problem(path, _kind(content, path), _without(name, error))
    created, created_s = _time(receipt.header.created_at_utc)
    return entry_of(receipt, path, created, created_s)


def _kind(content: bytes, path: str) -> str:
    """Foreign, unless something says that it was to be a receipt."""
    ours = not content.strip() or path.rpartition("/")[2] == RECEIPT_NAME
    return "damaged" if ours or _SCHEMA_BYTES in content else "foreign"


def _without(name: str, error: Exception) -> str:
    return str(error).removeprefix(f"{name} ").rstrip(".")


def _time(text: str) -> tuple[str, float | None]:
    """A moment as UTC text and as seconds; a time without a zone is taken as UTC."""
    try:
        # Python 3.10 does not read the "Z".
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        utc = moment.astimezone(timezone.utc)
        return utc.strftime("%Y-%m-%dT%H:%M:%SZ"), utc.timestamp()
    except (ValueError, OverflowError):
        return text, None
