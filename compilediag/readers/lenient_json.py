"""JSON as torch and Python write it: with NaN, and with bytes that are not UTF-8."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def parse(payload: bytes) -> Any:
    """The value; None where it is no JSON. Never raises.

    Spellings that only Python writes become null (NaN, Infinity) and "\\ufffd" (lone surrogates).
    """
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = payload.decode("utf-8", "replace")
        return _mended(json.loads(text, parse_constant=lambda _: None))
    except (ValueError, RecursionError):
        return None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return [_mended(item) for item in items]
    if isinstance(value, dict):
        fields: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {_mended(key): _mended(item) for key, item in fields.items()}
    return value
