"""The baseline `compilediag.lock.json`: what each configuration is allowed to do, and its text.

Checked in beside the code it is about: small, sorted, one entry a line so that git merges it, with
no line number, time or absolute path. What a newer minor version adds is not read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from compilediag.compare.keys import COUNTS
from compilediag.compare.run_baseline import (
    ConfigBaseline,
    Count,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    Scalar,
)
from compilediag.errors import BaselineUnreadable
from compilediag.receipt.file import parse_version

SCHEMA = "compilediag.lock"
SCHEMA_VERSION = "1.0"
LOCK_NAME = "compilediag.lock.json"


class Baseline(Struct, frozen=True):
    """All configurations of a baseline, by name."""

    configurations: tuple[ConfigBaseline, ...] = ()

    def find_configuration(self, name: str) -> ConfigBaseline | None:
        """Find the configuration of this name; None where there is none."""
        return next((config for config in self.configurations if config.name == name), None)

    def replace_configurations(self, changed: Iterable[ConfigBaseline]) -> Baseline:
        """Add configurations, or replace those of their name; all others stay as they are."""
        by_name = {config.name: config for config in (*self.configurations, *changed)}
        return Baseline(tuple(by_name[name] for name in sorted(by_name)))


_PARTS: Mapping[str, type[Any]] = {
    "causes": KnownCause,
    "breaks": KnownBreak,
    "frames": KnownFrame,
    "fallbacks": KnownFallback,
}


# --- to text -----------------------------------------------------------------------------------


def format_lock(baseline: Baseline) -> str:
    """Format the file of a baseline: the same text for the same content, whatever its order was."""
    configs: dict[str, Any] = {}
    for config in sorted(baseline.configurations, key=lambda config: config.name):
        configs[config.name] = {
            "lane": dict(sorted(config.fields.items())),
            "torch": config.torch,
            "counts": dict(config.counts),
            "recordings": config.recordings,
            **{name: _convert_entries(getattr(config, name)) for name in _PARTS},
        }
    document = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "lanes": configs}
    return _format_json(document, "") + "\n"


def _convert_entries(entries: Iterable[Any]) -> list[dict[str, Any]]:
    rows: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    for entry in entries:
        fields = msgspec.to_builtins(entry)
        key = fields.pop("key")
        order = (key.get("file") or "", key.get("function") or "", repr(entry.key))
        if isinstance(entry, KnownBreak):
            key = {"title": key.pop("title"), "category": key.pop("category"), **key}
        rows.append((order, {**key, **fields}))
    return [plain for _, plain in sorted(rows, key=lambda pair: pair[0])]


def _format_json(value: Any, indent: str) -> str:
    """Format JSON with one key a line, and one element of a list a line, however large that is."""
    inner = indent + " "
    if isinstance(value, Mapping) and value:
        pairs = cast(Mapping[str, Any], value).items()
        rows = [f"{inner}{json.dumps(key)}: {_format_json(part, inner)}" for key, part in pairs]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and value:
        rows = [f"{inner}{json.dumps(element)}" for element in cast(Sequence[Any], value)]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return json.dumps(value)


# --- from text ---------------------------------------------------------------------------------

_CONFLICT = re.compile(r"^(?:=======|(?:<<<<<<<|\|\|\|\|\|\|\||>>>>>>>)(?: .*)?)$", re.MULTILINE)
"""Lines that git writes where it could not merge."""


def parse_lock(text: str, name: str = LOCK_NAME) -> Baseline:
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
    raw = _parse_document(text, name)
    written, ours = parse_version(raw.get("schema_version")), parse_version(SCHEMA_VERSION)
    if written is None or ours is None:
        raise BaselineUnreadable(f"{name} has no schema version that can be read")
    if written[0] > ours[0]:
        raise BaselineUnreadable(
            f"{name} has schema version {written[0]}.{written[1]} and this compilediag reads "
            f"{SCHEMA_VERSION}: upgrade compilediag to use it"
        )
    configs = _convert(raw.get("lanes"), dict[str, Any], f"{name}: lanes")
    return Baseline(
        tuple(_parse_config(configs[key], key, f"{name}: lanes: {key}") for key in sorted(configs))
    )


def _parse_document(text: str, name: str) -> dict[str, Any]:
    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            twice = next(k for k, n in Counter(key for key, _ in pairs).items() if n > 1)
            raise BaselineUnreadable(
                f"{name} has two entries named {twice!r} in one place: two configurations of one "
                "name, or a merge that kept both sides; keep one"
            )
        return members

    def reject_constant(literal: str) -> Any:
        raise ValueError(f"{literal} is no number of JSON")

    try:
        raw = json.loads(text, object_pairs_hook=reject_duplicates, parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:
        raise BaselineUnreadable(
            f"{name} is not readable as JSON: {error}; restore it from version control"
        ) from error
    if not isinstance(raw, dict) or cast(dict[str, Any], raw).get("schema") != SCHEMA:
        raise BaselineUnreadable(f"{name} is not a compilediag baseline")
    return cast(dict[str, Any], raw)


def _parse_config(raw: Any, name: str, where: str) -> ConfigBaseline:
    body = _convert(raw, dict[str, Any], where)
    counts = _convert(body.get("counts"), dict[str, Count], f"{where}: counts")
    if missing := set(COUNTS).difference(counts):
        raise BaselineUnreadable(f"{where}: counts: {min(missing)} is missing")
    return ConfigBaseline(
        name,
        _convert(body.get("lane"), dict[str, Scalar], f"{where}: lane"),
        {key: counts[key] for key in dict.fromkeys((*COUNTS, *counts))},
        recordings=_convert(body.get("recordings"), Count | None, f"{where}: recordings"),
        torch=_convert(body.get("torch"), str | None, f"{where}: torch"),
        **{part: _parse_entries(body.get(part, []), part, f"{where}: {part}") for part in _PARTS},
    )


def _parse_entries(raw: Any, part: str, where: str) -> tuple[Any, ...]:
    kind = _PARTS[part]
    entries: dict[object, Any] = {}
    for index, entry in enumerate(_convert(raw, list[dict[str, Any]], where)):
        here = f"{where}[{index}]"
        fields = {"category": None, **entry}
        reason: object = fields.get("reason")
        if isinstance(reason, str) and not reason.strip():
            fields["reason"] = None
        known = _convert({**fields, "key": fields}, kind, here)
        if known.key in entries:
            first = list(entries).index(known.key)
            raise BaselineUnreadable(f"{here} is the same item as {part}[{first}]: keep one")
        entries[known.key] = known
    return tuple(entries.values())


def _convert(value: Any, kind: Any, where: str) -> Any:
    """Convert a value to a `kind`. Raises BaselineUnreadable, which names the field."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeError) as error:  # a lone surrogate
        raise BaselineUnreadable(f"{where}: {error}") from error
