"""Records and JSON values made safe to write, in one walk: redacted, bounded, finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from compilediag.receipt.redact import EXEMPT, Redactor
from compilediag.receipt.schema.record import Record
from compilediag.receipt.secret_patterns import is_secret_name
from compilediag_harness.wire import clip

MAX_TEXT = 8 * 1024
"""Longest text of any field, in characters."""

_UNCHANGED = frozenset({int, bool, type(None)})
"""Types of values that any JSON reader takes as they are."""

Value = TypeVar("Value")


def sanitized(value: Value, redactor: Redactor) -> tuple[Value, bool]:
    """A record, or JSON values, without secrets, and whether all numbers were finite.

    NaN and infinities become None, lone surrogates are replaced, long texts are cut and end with
    how much was cut. The names of a record's fields are ours and stay, those of other objects may
    be the user's text.

    Raises:
        msgspec.ValidationError: a field of a record has a value of another type than it declares.
    """
    walk = _Walk(redactor)
    return walk.value(value, "", secret=False, exempt=False), walk.finite


class _Walk:
    def __init__(self, redactor: Redactor) -> None:
        self.finite = True
        self._redactor = redactor

    def value(self, item: Any, key: str, *, secret: bool, exempt: bool) -> Any:
        """The value of a key. `secret`: an object around it is about a variable with a name like a
        secret's; `exempt`: it consists of our own ids and digests."""
        if isinstance(item, str):
            return self._text(item, key, secret=secret, exempt=exempt)
        if isinstance(item, float):
            if math.isfinite(item):
                return item
            self.finite = False
            return None
        if isinstance(item, Record):
            members = self._members(msgspec.structs.asdict(item), secret=secret, exempt=exempt)
            return msgspec.convert(dict(members), type(item))
        if isinstance(item, Mapping):
            fields = cast(Mapping[Any, Any], item)
            members = self._members(fields, secret=secret, exempt=exempt)
            return {self._name(str(name), exempt=exempt): member for name, member in members}
        if isinstance(item, (list, tuple)):
            items = cast(Sequence[Any], item)
            return [self.value(each, key, secret=secret, exempt=exempt) for each in items]
        return item

    def _members(
        self, fields: Mapping[Any, Any], *, secret: bool, exempt: bool
    ) -> Iterable[tuple[Any, Any]]:
        secret = secret or any(
            is_secret_name(str(fields.get(name) or "")) for name in ("variable", "source")
        )
        for key, item in fields.items():
            if type(item) in _UNCHANGED:
                yield key, item
            else:
                yield key, self.value(item, key, secret=secret, exempt=exempt or key in EXEMPT)

    def _name(self, name: str, *, exempt: bool) -> str:
        return _bounded(name if exempt else self._redactor.text(name, is_name=True))

    def _text(self, text: str, key: str, *, secret: bool, exempt: bool) -> str:
        if not exempt:
            text = self._redactor.value_at(key, text, secret=secret)
        return _bounded(text)


def _bounded(text: str) -> str:
    if len(text) <= MAX_TEXT and text.isascii():
        return text
    return clip(text.encode("utf-8", "replace").decode("utf-8"), MAX_TEXT)
