"""The file of a receipt as other JSON writers spell it, or the sentence why it is none."""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any, cast

from compilediag.errors import ReceiptUnreadable

_JOURNAL = "journal-"


def decode(content: bytes, file: str) -> Any:
    """The value: NaN, infinities and numbers too large for a float are null, and then
    `checks.values_finite` is false; bytes that are no UTF-8 and lone surrogates are replaced.

    Raises:
        ReceiptUnreadable: it is no JSON; the message says so, and what to do where that is known.
    """
    try:
        text = content.decode("utf-8-sig", "replace")
        value, finite = _mended(json.loads(text))
    except json.JSONDecodeError as error:
        raise ReceiptUnreadable(_why(error, file)) from error
    except (ValueError, RecursionError) as error:
        raise ReceiptUnreadable(f"{file} is not readable as JSON: {error}.") from error
    document = cast(dict[str, Any], value if isinstance(value, dict) else {})
    if not finite and isinstance(document.get("checks"), dict):
        document["checks"]["values_finite"] = False
    return cast(Any, value)


def _why(error: json.JSONDecodeError, file: str) -> str:
    rest = error.doc[error.pos :].strip()
    open_text = error.msg.startswith("Unterminated string")
    if not error.doc.strip():
        told = "it is empty"
    elif open_text or not rest:
        told = f"it ends in the middle, in line {error.doc.count(chr(10)) + 1}"
    else:
        told = str(error)
    folder = os.path.dirname(os.path.abspath(file))
    again = f"; `compilediag analyze {folder}` makes it again from the run's journals"
    return f"{file} is not readable as JSON: {told}{again if _has_journals(folder) else ''}."


def _has_journals(folder: str) -> bool:
    with contextlib.suppress(OSError):
        return any(name.startswith(_JOURNAL) for name in os.listdir(folder))
    return False


def _mended(value: Any) -> tuple[Any, bool]:
    """The value as any JSON writer takes it, and whether every number in it was finite."""
    if isinstance(value, float):
        return (value, True) if math.isfinite(value) else (None, False)
    if isinstance(value, str):
        return (value if value.isascii() else value.encode("utf-8", "replace").decode()), True
    if isinstance(value, list):
        items = [_mended(item) for item in cast(list[Any], value)]
        return [item for item, _ in items], all(finite for _, finite in items)
    if isinstance(value, dict):
        members = cast(dict[str, Any], value).items()
        fields = {_mended(key)[0]: _mended(item) for key, item in members}
        plain = {key: item for key, (item, _) in fields.items()}
        return plain, all(finite for _, finite in fields.values())
    return value, True
