"""Chunks of bytes split into lines of bounded length, in linear time whatever the bytes are; and
what stands on lines of any kind: JSON as torch and Python write it, with NaN and with bytes that
are not UTF-8; terminal escapes, times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple, cast

import msgspec


def parse_json(payload: bytes) -> Any:
    """Parse JSON; None where it is none. Never raises.

    Spellings that only Python writes become null (NaN, Infinity) and "\\ufffd" (lone surrogates).
    """
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = payload.decode("utf-8", "replace")
        value = json.loads(text, parse_constant=lambda _: None)
        return map_json(value, replace_surrogates, replace_surrogates)
    except (ValueError, RecursionError):
        return None


def map_json(
    value: Any, leaf: Callable[[Any], Any], name: Callable[[str], str] | None = None
) -> Any:
    """Copy JSON values, at any depth: what is neither object nor list goes through `leaf`, the
    names of members through `name`."""
    if isinstance(value, Mapping):
        members = cast(Mapping[str, Any], value).items()
        return {name(key) if name else key: map_json(part, leaf, name) for key, part in members}
    if isinstance(value, (list, tuple)):
        return [map_json(part, leaf, name) for part in cast(Sequence[Any], value)]
    return leaf(value)


def replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates of a text, which UTF-8 cannot encode; all else stays as it is."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode()
    return value


def parse_object(payload: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None where it is none. Never raises."""
    value = parse_json(payload)
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def parse_list(payload: bytes) -> list[Any] | None:
    """Parse a JSON list; None where it is none. Never raises."""
    value = parse_json(payload)
    return cast(list[Any], value) if isinstance(value, list) else None


_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]{0,16}[ -/]?[@-~]|[@-Z\\-_])")


class Line(NamedTuple):
    """One line without its end."""

    raw: bytes
    cut: bool
    """It was longer than the limit: the rest was dropped."""
    ended: bool
    """False for a last line whose end is missing."""


def split_lines(
    chunks: Iterable[bytes], limit: int, *, carriage_returns: bool = False
) -> Iterator[Line]:
    """Split chunks into lines. With `carriage_returns` "\\r" ends a line too: progress bars."""
    rest, cut = b"", False
    for chunk in chunks:
        first, *others = (chunk.replace(b"\r", b"\n") if carriage_returns else chunk).split(b"\n")
        if not cut:
            rest += first
        if others:
            *whole, last = others
            for raw in (rest, *whole):
                yield Line(raw[:limit], cut or len(raw) > limit, ended=True)
                cut = False
            rest = last
        # Invariant: `rest` holds at most the limit between two chunks, whatever the bytes are.
        if len(rest) > limit:
            rest, cut = rest[:limit], True
    if rest:
        yield Line(rest, cut, ended=False)


def parse_unix_s(utc: str) -> float | None:
    """Parse a time, in UTC unless it has a zone, to seconds since the epoch; None if it is none."""
    try:
        # Python 3.10 does not read the "Z".
        moment = datetime.fromisoformat(utc[:-1] + "+00:00" if utc.endswith("Z") else utc)
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def decode_plain_text(raw: bytes) -> str:
    """Decode a line to text, without terminal escapes; bytes that are not UTF-8 are replaced."""
    text = raw.decode("utf-8", "replace")
    return _ESCAPE.sub("", text) if "\x1b" in text else text
