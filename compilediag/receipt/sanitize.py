"""Receipts made safe to write, in one walk: redacted, bounded, finite.

What comes out is what `Redactor.tree` gives, in values that any JSON reader takes. The walk changes
a tree of its own where something must change: almost nothing must, and receipts of many ranks are
walked one after the other. Where the tree is a record's, the walk goes only where its types say
that there may be something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from compilediag.receipt.redact import EXEMPT, PLACES, REMEMBERED_LENGTH, Redactor
from compilediag.receipt.schema.record import (
    UNKNOWN_FIELD,
    Record,
    as_plain,
    attributes,
    from_plain,
)
from compilediag.receipt.secret_patterns import is_secret_name
from compilediag.receipt.text_fields import spoken_fields
from compilediag_harness.wire import clip

TEXT_KEPT = 8 * 1024
"""Longest text of any field, in characters."""

MOST_STAYING = 4096
"""Texts of which it is remembered from receipt to receipt that they stay what they are."""

ITEMS_TOGETHER = 256
"""Most records of a list that are mended together with what they stand in."""

_WHOLE = frozenset({int, bool, type(None)})
"""Types of values that any JSON reader takes as they are."""


def safe_tree(record: Record, redactor: Redactor) -> tuple[dict[str, Any], bool]:
    """The record as JSON-ready values without secrets, and whether all its numbers were finite.
    Long lists of records hold records, which `from_plain` takes as they are.

    NaN and infinities become None, lone surrogates are replaced, long texts cut with the loss said.
    """
    walk = _Walk(redactor)
    short, long_lists = _without_long_lists(record)
    raw = _mended(short, walk)
    for part, key, items in long_lists:
        raw[part][key] = [from_plain(type(item), _mended(item, walk)) for item in items]
    ALIKE.forget_if_many()
    return raw, walk.finite


_LongList = tuple[str, str, tuple[Record, ...]]
"""The keys of the part and of the list, and what it holds."""


def _without_long_lists(record: Record) -> tuple[Record, Sequence[_LongList]]:
    """The record, and the records of which its parts hold very many: as JSON-ready values all of
    them together would be most of the memory that a receipt needs; they are mended one by one."""
    found: list[_LongList] = []
    changes: dict[str, Any] = {}
    for part_key, _ in spoken_fields(type(record)).records:
        attribute = attributes(type(record))[part_key]
        part: Record | None = getattr(record, attribute)
        if part is None or hasattr(part, "variable") or hasattr(part, "source"):
            continue  # what tells of one variable is looked at as a whole
        emptied: dict[str, Any] = {}
        for key, _ in spoken_fields(type(part)).several:
            name = attributes(type(part))[key]
            items = getattr(part, name)
            if items is not None and len(items) > ITEMS_TOGETHER and not {part_key, key} & EXEMPT:
                found.append((part_key, key, items))
                emptied[name] = ()
        if emptied:
            changes[attribute] = msgspec.structs.replace(part, **emptied)
    return (msgspec.structs.replace(record, **changes) if changes else record), found


def _mended(record: Record, walk: _Walk) -> dict[str, Any]:
    """The record as values of its own, walked through."""
    try:
        # Every object is a new one, which the walk may change. It is three times as fast.
        raw = cast(dict[str, Any], msgspec.to_builtins(record))
    except TypeError:
        raw = cast(dict[str, Any], as_plain(record))
        walk.members(raw, secret=False, exempt=False)
    else:
        walk.record(raw, type(record), secret=False, exempt=False)
    return raw


class _Staying:
    """Texts that stay what they are, wherever they stand as a value."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.places: set[str] = set()
        """The same for names and paths."""

    def forget_if_many(self) -> None:
        if len(self.texts) + len(self.places) > MOST_STAYING:
            self.texts.clear()
            self.places.clear()


ALIKE = _Staying()
"""Of all receipts for which no value is known to be secret: then a text alone decides. Receipts of
many ranks hold the same texts."""


def _staying(redactor: Redactor) -> _Staying:
    """What walks before this one found, and this one may add to."""
    return _Staying() if redactor.knows_values else ALIKE


class _Walk:
    """One walk through a tree that nobody else has."""

    def __init__(self, redactor: Redactor) -> None:
        self.finite = True
        self._redactor = redactor
        staying = _staying(redactor)
        self._texts, self._places = staying.texts, staying.places
        self._long: set[tuple[str, bool]] = set()
        """Long texts that stay, and whether as a place: remembered for this walk only."""

    def record(
        self, node: dict[str, Any], kind: type[Record], *, secret: bool, exempt: bool
    ) -> None:
        """The fields of a record of this kind; `secret` as for `members`."""
        if node[UNKNOWN_FIELD]:
            self.members(node, secret=secret, exempt=exempt)
            return
        del node[UNKNOWN_FIELD]
        if not secret and ("variable" in node or "source" in node):
            secret = _names_secret(node)
        leaves, records, several = spoken_fields(kind)
        for key in leaves:
            if item := node[key]:
                self._member(node, key, item, secret=secret, exempt=exempt)
            elif item == ():
                node[key] = []
        for key, inner in records:
            if (item := node[key]) is not None:
                self.record(item, inner, secret=secret, exempt=exempt or key in EXEMPT)
        for key, inner in several:
            if (items := node[key]) is not None:
                node[key] = items = list(items)
            for member in items or ():
                self.record(member, inner, secret=secret, exempt=exempt or key in EXEMPT)

    def members(self, node: dict[Any, Any], *, secret: bool, exempt: bool) -> None:
        """The fields of an object; `secret` says that it tells of a variable named like one."""
        unknown: dict[str, Any] | None = node.pop(UNKNOWN_FIELD, None)
        for key, item in (unknown or {}).items():
            node.setdefault(key, item)
        if not secret and ("variable" in node or "source" in node):
            secret = _names_secret(node)
        for key, item in node.items():
            if type(item) not in _WHOLE:
                self._member(node, key, item, secret=secret, exempt=exempt)
        if unknown != {}:  # no record, or one with names that are not ours
            self._names(node, exempt=exempt)

    def _member(
        self, node: dict[Any, Any], key: Any, item: Any, *, secret: bool, exempt: bool
    ) -> None:
        """One field of an object that is being walked through."""
        stays = False
        if type(item) is str:
            stays = not secret and item in (self._places if key in PLACES else self._texts)
        elif type(item) is float:
            stays = math.isfinite(item)
        if stays:
            return
        mended = self._value(item, key, secret=secret, exempt=exempt or key in EXEMPT)
        if mended is not item:
            node[key] = mended

    def _names(self, node: dict[Any, Any], *, exempt: bool) -> None:
        """The keys of what is no record: they may be the user's text."""
        if self._places.issuperset(node):
            return
        names = list(node)
        told = [self._name(name, exempt=exempt) for name in names]
        if told != names:
            items = list(node.values())
            node.clear()
            node.update(zip(told, items, strict=True))

    def _name(self, name: Any, *, exempt: bool) -> str:
        text = str(name)
        return self._bounded(text) if exempt else self._redacted(text, place=True)

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
        staying = set[str]() if secret else self._places if key in PLACES else self._texts
        return [
            item
            if type(item) in _WHOLE or (type(item) is str and item in staying)
            else self._value(item, key, secret=secret, exempt=exempt)
            for item in items
        ]

    def _text(self, text: str, key: str, *, secret: bool, exempt: bool) -> str:
        if exempt:
            return self._bounded(text)
        if secret:
            return self._bounded(self._redactor.leaf(text, key, secret=True))
        return self._redacted(text, place=key in PLACES)

    def _redacted(self, text: str, *, place: bool) -> str:
        staying = self._places if place else self._texts
        if text in staying or (text, place) in self._long:
            return text
        told, found = self._redactor.replaced(text, place)
        if found:
            self._redactor.counts.update(found)
            return self._bounded(told)
        if (told := self._bounded(text)) is text:
            if len(text) <= REMEMBERED_LENGTH:
                staying.add(text)
            else:
                self._long.add((text, place))
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
