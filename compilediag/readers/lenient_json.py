"""JSON as torch and Python write it: with NaN, and with bytes that are not UTF-8."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

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
        value = json.loads(text, parse_constant=lambda _: None)
        return map_json(value, without_surrogates, without_surrogates)
    except (ValueError, RecursionError):
        return None


def map_json(
    value: Any, leaf: Callable[[Any], Any], name: Callable[[str], str] | None = None
) -> Any:
    """A copy of JSON values, at any depth: what is neither object nor list goes through `leaf`,
    the names of members through `name`."""
    if isinstance(value, Mapping):
        members = cast(Mapping[str, Any], value).items()
        return {name(key) if name else key: map_json(item, leaf, name) for key, item in members}
    if isinstance(value, (list, tuple)):
        return [map_json(item, leaf, name) for item in cast(Sequence[Any], value)]
    return leaf(value)


def without_surrogates(value: Any) -> Any:
    """A text that UTF-8 can encode; everything else as it is."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode()
    return value


def parse_object(payload: bytes) -> dict[str, Any] | None:
    """The object; None where it is no JSON object. Never raises."""
    value = parse(payload)
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def parse_list(payload: bytes) -> list[Any] | None:
    """The list; None where it is no JSON list. Never raises."""
    value = parse(payload)
    return cast(list[Any], value) if isinstance(value, list) else None
