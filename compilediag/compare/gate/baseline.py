"""The baseline `compilediag.lock.json`: what each configuration is allowed to do, and its text.

Checked in beside the code it is about: small, sorted, one entry a line so that git merges it, and
the same from every machine. It holds no line number, no time, no absolute path. Fields of newer
minor versions survive a read and a write.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from compilediag.compare.keys import COUNTS, BreakKey, CauseKey, FrameKey
from compilediag.compare.run_baseline import (
    Count,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    LaneBaseline,
    Scalar,
)
from compilediag.errors import BaselineUnreadable
from compilediag.receipt.file import version_of

SCHEMA = "compilediag.lock"
SCHEMA_VERSION = "1.0"
LOCK_NAME = "compilediag.lock.json"


class Baseline(Struct, frozen=True):
    """All configurations of a baseline, by name."""

    lanes: tuple[LaneBaseline, ...] = ()
    schema_version: str = SCHEMA_VERSION
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def lane(self, name: str) -> LaneBaseline | None:
        """Find the configuration of this name; None where there is none."""
        return next((lane for lane in self.lanes if lane.name == name), None)

    def with_lanes(self, changed: Iterable[LaneBaseline]) -> Baseline:
        """Add configurations, or replace those of their name; all others stay as they are."""
        lanes = {lane.name: lane for lane in (*self.lanes, *changed)}
        ordered = tuple(lanes[name] for name in sorted(lanes))
        return Baseline(ordered, self.schema_version, self.unknown)


_ITEMS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "causes": (KnownCause, CauseKey),
    "breaks": (KnownBreak, BreakKey),
    "frames": (KnownFrame, FrameKey),
    "fallbacks": (KnownFallback, FrameKey),
}
_LANE_FIELDS = ("lane", "torch", "counts", "recordings", *_ITEMS)


# --- to text -----------------------------------------------------------------------------------


def text_of(baseline: Baseline) -> str:
    """Format the file of a baseline: the same text for the same content, whatever its order was."""
    lanes: dict[str, Any] = {}
    for lane in sorted(baseline.lanes, key=lambda lane: lane.name):
        lanes[lane.name] = {
            "lane": dict(sorted(lane.fields.items())),
            "torch": lane.torch,
            "counts": dict(lane.counts),
            "recordings": lane.recordings,
            **{name: _plain_items(getattr(lane, name)) for name in _ITEMS},
            **lane.unknown,
        }
    document = {"schema": SCHEMA, "schema_version": baseline.schema_version, "lanes": lanes}
    return _lines({**document, **baseline.unknown}, "") + "\n"


def _plain_items(items: Iterable[Any]) -> list[dict[str, Any]]:
    found: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    for item in items:
        fields = msgspec.to_builtins(item)
        key, unknown = fields.pop("key"), fields.pop("unknown", {})
        order = (key.get("file") or "", key.get("function") or "", repr(item.key))
        if isinstance(item, KnownBreak):
            key = {"title": key.pop("title"), "category": key.pop("category"), **key}
        found.append((order, {**key, **fields, **unknown}))
    return [plain for _, plain in sorted(found, key=lambda pair: pair[0])]


def _lines(value: Any, indent: str) -> str:
    """Format JSON with one key a line, and one element of a list a line, however large that is."""
    inner = indent + " "
    if isinstance(value, Mapping) and value:
        items = cast(Mapping[str, Any], value).items()
        rows = [f"{inner}{json.dumps(key)}: {_lines(item, inner)}" for key, item in items]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and value:
        rows = [f"{inner}{json.dumps(item)}" for item in cast(Sequence[Any], value)]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return json.dumps(value)


# --- from text ---------------------------------------------------------------------------------

_CONFLICT = re.compile(r"^(?:=======|(?:<<<<<<<|\|\|\|\|\|\|\||>>>>>>>)(?: .*)?)$", re.MULTILINE)
"""Lines that git writes where it could not merge."""


def read(text: str, name: str = LOCK_NAME) -> Baseline:
    """Parse the text of a baseline; `name` is what errors call it.

    Raises:
        BaselineUnreadable: it is no baseline, is damaged, holds unresolved merge conflicts or two
            configurations of one name, or a newer major version wrote it.
    """
    if (conflict := _CONFLICT.search(text)) is not None:
        line = text.count("\n", 0, conflict.start()) + 1
        raise BaselineUnreadable(
            f"{name} has an unresolved merge conflict at line {line}: keep one side, or both where "
            "they name different items, and then run the gate with --update if counts changed"
        )
    raw = _document(text, name)
    written, ours = version_of(raw.get("schema_version")), version_of(SCHEMA_VERSION)
    if written is None or ours is None:
        raise BaselineUnreadable(f"{name} has no schema version that can be read")
    if written[0] > ours[0]:
        raise BaselineUnreadable(
            f"{name} has schema version {written[0]}.{written[1]} and this compilediag reads "
            f"{SCHEMA_VERSION}: upgrade compilediag to use it"
        )
    lanes = _converted(raw.get("lanes"), dict[str, Any], f"{name}: lanes")
    return Baseline(
        tuple(_lane(lanes[lane], lane, f"{name}: lanes: {lane}") for lane in sorted(lanes)),
        # That of a newer minor version stays.
        f"{written[0]}.{written[1]}" if written > ours else SCHEMA_VERSION,
        _beside(raw, ("schema", "schema_version", "lanes")),
    )


def _document(text: str, name: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(k for k, n in Counter(key for key, _ in pairs).items() if n > 1)
            raise BaselineUnreadable(
                f"{name} has two entries named {twice!r} in one place: two lanes of one name, "
                "or a merge that kept both sides; keep one"
            )
        return found

    def no_constant(literal: str) -> Any:
        raise ValueError(f"{literal} is no number of JSON")

    try:
        raw = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise BaselineUnreadable(
            f"{name} is not readable as JSON: {error}; restore it from version control"
        ) from error
    if not isinstance(raw, dict) or cast(dict[str, Any], raw).get("schema") != SCHEMA:
        raise BaselineUnreadable(f"{name} is not a compilediag baseline")
    return cast(dict[str, Any], raw)


def _lane(raw: Any, name: str, where: str) -> LaneBaseline:
    lane = _converted(raw, dict[str, Any], where)
    fields = _converted(lane.get("lane"), dict[str, Any], f"{where}: lane")
    counts = _converted(lane.get("counts"), dict[str, Any], f"{where}: counts")
    return LaneBaseline(
        name,
        {key: _converted(item, Scalar, f"{where}: lane: {key}") for key, item in fields.items()},
        {
            key: _converted(counts.get(key), Count, f"{where}: counts: {key}")
            for key in dict.fromkeys((*COUNTS, *counts))
        },
        recordings=_converted(lane.get("recordings"), Count | None, f"{where}: recordings"),
        torch=_converted(lane.get("torch"), str | None, f"{where}: torch"),
        unknown=_beside(lane, _LANE_FIELDS),
        **{part: _items(lane.get(part, []), part, f"{where}: {part}") for part in _ITEMS},
    )


def _items(raw: Any, part: str, where: str) -> tuple[Any, ...]:
    kind, key = _ITEMS[part]
    names = {*key.__struct_encode_fields__, *kind.__struct_encode_fields__} - {"key", "unknown"}
    found: dict[object, Any] = {}
    for index, item in enumerate(_converted(raw, list[Any], where)):
        here = f"{where}[{index}]"
        fields = {"category": None, **_converted(item, dict[str, Any], here)}
        reason: object = fields.get("reason")
        if isinstance(reason, str) and not reason.strip():
            fields["reason"] = None
        nested = {**fields, "key": fields, "unknown": _beside(item, names)}
        known = _converted(nested, kind, here)
        if known.key in found:
            first = list(found).index(known.key)
            raise BaselineUnreadable(f"{here} is the same item as {part}[{first}]: keep one")
        found[known.key] = known
    return tuple(found.values())


def _beside(raw: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in known}


_MISMATCH = re.compile(
    r"(?:Expected `(?P<expected>\w+)|Object missing required field `(?P<missing>\w+)`)"
    r".*?(?: - at `\$(?:\.key)?(?:\.(?P<field>.+))?`)?"
)
_MUST_BE = {
    "str": "text",
    "int": "a whole number, 0 or more",
    "object": "an object",
    "array": "a list",
    "bool": "text, a number or a truth",
}


def _converted(value: Any, kind: Any, where: str) -> Any:
    """Convert a value to a `kind`. Raises BaselineUnreadable, which names the field."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeError) as error:  # a lone surrogate
        found = _MISMATCH.fullmatch(str(error))
        if found is None:
            raise BaselineUnreadable(f"{where}: {error}") from error
        if found["missing"]:
            raise BaselineUnreadable(f"{where}: {found['missing']} is missing") from error
        place = f"{where}: {found['field']}" if found["field"] else where
        raise BaselineUnreadable(f"{place} must be {_MUST_BE[found['expected']]}") from error
