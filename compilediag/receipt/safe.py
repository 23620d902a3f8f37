"""Receipts made safe to write, in one walk: redacted, bounded, finite.

What comes out is what `Redactor.tree` gives, in values that any JSON reader takes. The walk changes
a tree of its own where something must change: almost nothing must, and receipts of many ranks are
walked one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from compilediag.receipt.record import UNKNOWN_FIELD, Record, as_plain
from compilediag.redact import EXEMPT, PLACES, Redactor
from compilediag.secret_patterns import is_secret_name
from compilediag_harness.wire import clip

TEXT_KEPT = 8 * 1024
"""Longest text of any field, in characters."""

_WHOLE = frozenset({int, bool, type(None)})
"""Types of values that any JSON reader takes as they are."""


def safe_tree(record: Record, redactor: Redactor) -> tuple[dict[str, Any], bool]:
    """The record as JSON-ready values without secrets, and whether all its numbers were finite.

    NaN and infinities become None, lone surrogates are replaced, long texts cut with the loss said.
    """
    try:
        # Every object is a new one, which the walk may change. It is three times as fast.
        raw = cast(dict[str, Any], msgspec.to_builtins(record))
    except TypeError:
        raw = cast(dict[str, Any], as_plain(record))
    del record
    walk = _Walk(redactor)
    walk.members(raw, secret=False, exempt=False)
    return raw, walk.finite


class _Walk:
    """One walk through a tree that nobody else has."""

    def __init__(self, redactor: Redactor) -> None:
        self.finite = True
        self._redactor = redactor
        self._texts: set[str] = set()
        """Texts that stay what they are, wherever they stand as a value."""
        self._places: set[str] = set()
        """The same for names and paths."""

    def members(self, node: dict[Any, Any], *, secret: bool, exempt: bool) -> None:
        """The fields of an object; `secret` says that it tells of a variable named like one."""
        unknown: dict[str, Any] | None = node.pop(UNKNOWN_FIELD, None)
        for key, item in (unknown or {}).items():
            node.setdefault(key, item)
        secret = secret or _names_secret(node)
        for key, item in node.items():
            if type(item) in _WHOLE:
                continue
            stays = self._places if key in PLACES else self._texts
            if not secret and type(item) is str and item in stays:
                continue
            mended = self._value(item, key, secret=secret, exempt=exempt or key in EXEMPT)
            if mended is not item:
                node[key] = mended
        if unknown != {}:  # no record, or one with names that are not ours
            self._names(node, exempt=exempt)

    def _names(self, node: dict[Any, Any], *, exempt: bool) -> None:
        """The keys of what is no record: they may be the user's text."""
        names = list(node)
        told = [self._name(name, exempt=exempt) for name in names]
        if told != names:
            items = list(node.values())
            node.clear()
            node.update(zip(told, items, strict=True))

    def _name(self, name: Any, *, exempt: bool) -> str:
        text = str(name)
        return self._bounded(text if exempt else self._redactor.text(text, place=True))

    def _value(self, item: Any, key: str, *, secret: bool, exempt: bool) -> Any:
        if isinstance(item, str):
            return self._text(item, key, secret=secret, exempt=exempt)
        if isinstance(item, float):
            if math.isfinite(item):
                return item
            self.finite = False
            return None
        if isinstance(item, dict):
            self.members(cast(dict[str, Any], item), secret=secret, exempt=exempt)
            return cast(Any, item)
        if isinstance(item, (list, tuple)):
            return self._items(cast(Sequence[Any], item), key, secret=secret, exempt=exempt)
        return item

    def _items(self, items: Sequence[Any], key: str, *, secret: bool, exempt: bool) -> list[Any]:
        return [
            item if type(item) in _WHOLE else self._value(item, key, secret=secret, exempt=exempt)
            for item in items
        ]

    def _text(self, text: str, key: str, *, secret: bool, exempt: bool) -> str:
        if exempt:
            return self._bounded(text)
        if secret:
            return self._bounded(self._redactor.leaf(text, key, secret=True))
        place = key in PLACES
        told, found = self._redactor.replaced(text, place)
        if found:
            self._redactor.counts.update(found)
            return self._bounded(told)
        if (told := self._bounded(text)) is text:
            (self._places if place else self._texts).add(text)
        return told

    @staticmethod
    def _bounded(text: str) -> str:
        if len(text) <= TEXT_KEPT and text.isascii():
            return text
        return clip(text.encode("utf-8", "replace").decode("utf-8"), TEXT_KEPT)


def _names_secret(node: dict[Any, Any]) -> bool:
    """Whether an object tells of a variable whose name says that its value is secret."""
    variable, source = node.get("variable"), node.get("source")
    return bool(
        (variable and is_secret_name(str(variable))) or (source and is_secret_name(str(source)))
    )
