"""JSON as torch and Python write it: with NaN, and with bytes that are not UTF-8."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec


def parse(payload: bytes) -> Any:
    """The value; None where it is no JSON. Never raises.

    What only Python writes becomes null (NaN, Infinity) or "?" (lone surrogates).
    """
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = payload.decode("utf-8", "replace")
        # The escape of a lone surrogate, "\ud800", is replaced on the way back.
        value = json.loads(text, parse_constant=lambda _: None)
        plain = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(plain)
    except (ValueError, RecursionError):
        return None


def parse_object(payload: bytes) -> dict[str, Any] | None:
    """The object; None where it is no JSON object. Never raises."""
    value = parse(payload)
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def parse_list(payload: bytes) -> list[Any] | None:
    """The list; None where it is no JSON list. Never raises."""
    value = parse(payload)
    return cast(list[Any], value) if isinstance(value, list) else None
