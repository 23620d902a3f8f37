"""Reads the text of a baseline, and says what is wrong with one that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from compilediag.compare.gate.baseline import (
    SCHEMA,
    SCHEMA_VERSION,
    Baseline,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    LaneBaseline,
)
from compilediag.compare.keys import COUNTS, BreakKey, CauseKey, FrameKey
from compilediag.errors import BaselineUnreadable
from compilediag.receipt.versions import version_of

_BETWEEN = "======="
_MARKS = ("<<<<<<<", "|||||||", ">>>>>>>")
"""What git writes at the start of a line where it could not merge."""
Known = TypeVar("Known", KnownCause, KnownBreak, KnownFrame, KnownFallback)


def lock_of(text: str, name: str) -> Baseline:
    """The baseline in a text. Raises BaselineUnreadable."""
    line = _line_of_conflict(text)
    if line is not None:
        raise BaselineUnreadable(
            f"{name} has an unresolved merge conflict at line {line}: keep one side, or both where "
            "they name different items, and then run the gate with --update if counts changed"
        )
    document = _document(text, name)
    version = _version(document, name)
    whole = _Part(document, name)
    lanes = whole.part("lanes")
    known = ("schema", "schema_version", "lanes")
    return Baseline(
        tuple(_lane(lanes.part(lane), lane) for lane in sorted(lanes.raw)),
        version,
        whole.beside(*known),
    )


def _line_of_conflict(text: str) -> int | None:
    if not any(mark in text for mark in (_BETWEEN, *_MARKS)):
        return None
    for number, line in enumerate(text.split("\n"), 1):
        if line == _BETWEEN or (line.startswith(_MARKS) and line[7:8] in ("", " ")):
            return number
    return None


def _document(text: str, name: str) -> Mapping[str, Any]:
    raw = _read_quickly(text)
    if raw is None:
        raw = _read_with_care(text, name)
    if not isinstance(raw, dict) or cast(dict[str, Any], raw).get("schema") != SCHEMA:
        raise BaselineUnreadable(f"{name} is not a compilediag baseline")
    return cast(dict[str, Any], raw)


def _read_quickly(text: str) -> Any:
    """What the text holds; None where it may name an entry twice, or be no JSON at all.

    msgspec keeps the last of two entries of one name, so that writing what it read gives another
    text. `json` can tell the two, but importing it costs more than all else that a gate does with
    its baseline.
    """
    try:
        raw = msgspec.json.decode(text)
        same = msgspec.json.encode(raw).decode() == msgspec.json.format(text, indent=-1)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return raw if same else None


def _read_with_care(text: str, name: str) -> Any:
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise BaselineUnreadable(
                    f"{name} has two entries named {key!r} in one place: two lanes of one name, "
                    "or a merge that kept both sides; keep one"
                )
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BaselineUnreadable(
            f"{name} is not readable as JSON: {error}; restore it from version control"
        ) from error


def _no_constant(spelled: str) -> Any:
    raise ValueError(f"{spelled} is no number of JSON")


def _version(document: Mapping[str, Any], name: str) -> str:
    """Of the file, to be kept where it is a newer minor one."""
    written, ours = version_of(document.get("schema_version")), version_of(SCHEMA_VERSION)
    if written is None or ours is None:
        raise BaselineUnreadable(f"{name} has no schema version that can be read")
    if written[0] > ours[0]:
        raise BaselineUnreadable(
            f"{name} has schema version {written[0]}.{written[1]} and this compilediag reads "
            f"{SCHEMA_VERSION}: upgrade compilediag to use it"
        )
    return f"{written[0]}.{written[1]}" if written > ours else SCHEMA_VERSION


class _Part(Struct, frozen=True):
    """A JSON object and where it stands, so that every error names the field."""

    raw: Mapping[str, Any]
    where: str

    def part(self, key: str) -> _Part:
        return _part(self.raw.get(key), f"{self.where}: {key}")

    def parts(self, key: str) -> list[_Part]:
        found: Any = self.raw.get(key, [])
        if not isinstance(found, list):
            raise BaselineUnreadable(f"{self.where}: {key} must be a list")
        return [
            _part(item, f"{self.where}: {key}[{index}]")
            for index, item in enumerate(cast(list[Any], found))
        ]

    def text(self, key: str) -> str:
        found = self.maybe_text(key)
        if found is None:
            raise BaselineUnreadable(f"{self.where}: {key} is missing")
        return found

    def maybe_text(self, key: str) -> str | None:
        found = self.raw.get(key)
        if found is None or isinstance(found, str):
            return found
        raise BaselineUnreadable(f"{self.where}: {key} must be text")

    def count(self, key: str, default: int | None = None) -> int:
        found = self.raw.get(key, default)
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found
        raise BaselineUnreadable(f"{self.where}: {key} must be a whole number, 0 or more")

    def beside(self, *known: str) -> Mapping[str, Any]:
        """The fields this version does not know."""
        return {key: value for key, value in self.raw.items() if key not in known}


def _part(value: Any, where: str) -> _Part:
    if not isinstance(value, dict):
        raise BaselineUnreadable(f"{where} must be an object")
    return _Part(cast(dict[str, Any], value), where)


def _lane(part: _Part, name: str) -> LaneBaseline:
    counts, fields = part.part("counts"), part.part("lane")
    nested = [key for key, value in fields.raw.items() if isinstance(value, (dict, list))]
    if nested:
        raise BaselineUnreadable(f"{fields.where}: {nested[0]} must be text, a number or a truth")
    return LaneBaseline(
        name=name,
        fields=dict(fields.raw),
        counts={key: counts.count(key) for key in (*COUNTS, *counts.beside(*COUNTS))},
        causes=_each(part, "causes", _cause),
        breaks=_each(part, "breaks", _break),
        frames=_each(part, "frames", _frame),
        fallbacks=_each(part, "fallbacks", _fallback),
        recordings=None if part.raw.get("recordings") is None else part.count("recordings"),
        torch=part.maybe_text("torch"),
        unknown=part.beside(
            *("lane", "torch", "counts", "recordings", "causes", "breaks", "frames", "fallbacks")
        ),
    )


def _each(part: _Part, key: str, of: Callable[[_Part], Known]) -> tuple[Known, ...]:
    found = [(of(item), item.where) for item in part.parts(key)]
    _refuse_twice([(item.key, where) for item, where in found])
    return tuple(item for item, _ in found)


def _refuse_twice(items: Iterable[tuple[object, str]]) -> None:
    seen: dict[object, str] = {}
    for key, where in items:
        if key in seen:
            raise BaselineUnreadable(f"{where} is the same item as {seen[key]}: keep one")
        seen[key] = where.rpartition(": ")[2]


def _cause(part: _Part) -> KnownCause:
    place = part.maybe_text("file"), part.maybe_text("function")
    key = CauseKey(part.text("rule"), part.text("variable"), *place)
    known = ("rule", "variable", "file", "function", "recompiles", "reason")
    return KnownCause(key, part.count("recompiles"), _reason(part), part.beside(*known))


def _break(part: _Part) -> KnownBreak:
    key = BreakKey(
        part.text("file"), part.text("function"), part.maybe_text("category"), part.text("title")
    )
    known = ("title", "category", "file", "function", "sites", "reason")
    return KnownBreak(key, part.count("sites"), _reason(part), part.beside(*known))


def _frame(part: _Part) -> KnownFrame:
    key = FrameKey(part.text("file"), part.text("function"))
    known = ("file", "function", "compiles", "recompiles")
    again = part.count("recompiles", 0)
    return KnownFrame(key, part.count("compiles"), again, part.beside(*known))


def _fallback(part: _Part) -> KnownFallback:
    key = FrameKey(part.text("file"), part.text("function"))
    return KnownFallback(key, _reason(part), part.beside("file", "function", "reason"))


def _reason(part: _Part) -> str | None:
    """A reason of blanks is none."""
    found = part.maybe_text("reason")
    return found if found is not None and found.strip() else None
