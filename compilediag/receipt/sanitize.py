"""Records and JSON values made safe to write, in one walk: redacted, bounded, finite."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from compilediag.receipt.schema.record import Record
from compilediag_harness.redaction.redactor import Redactor
from compilediag_harness.redaction.walk import Walk, names_secret
from compilediag_harness.wire import clip

MAX_TEXT = 8 * 1024
"""Longest text of any field, in characters."""

Value = TypeVar("Value")


def sanitized(value: Value, redactor: Redactor) -> tuple[Value, bool]:
    """A record, or JSON values, without secrets, and whether all numbers were finite.

    NaN and infinities become None, lone surrogates are replaced, long texts are cut and end with
    how much was cut. The names of a record's fields are ours and stay, those of other objects may
    be the user's text.

    Raises:
        msgspec.ValidationError: a field of a record has a value of another type than it declares.
    """
    walk = _Sanitizer(redactor)
    return walk.value(value), walk.finite


class _Sanitizer(Walk):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__(redactor)
        self.finite = True

    def number(self, item: Any) -> Any:
        if isinstance(item, float) and not math.isfinite(item):
            self.finite = False
            return None
        return item

    def key(self, name: str) -> str:
        return _bounded(super().key(name))

    def text(self, text: str, key: str, *, secret: bool, all_of_it: bool) -> str:
        return _bounded(super().text(text, key, secret=secret, all_of_it=all_of_it))

    def other(self, item: Any, key: str, *, secret: bool, all_of_it: bool) -> Any:
        if not isinstance(item, Record):
            return item
        fields = msgspec.structs.asdict(item)
        secret = secret or names_secret(fields)
        members = {
            name: self.value(member, name, secret=secret, all_of_it=all_of_it)
            for name, member in fields.items()
        }
        return msgspec.convert(members, type(item))


def _bounded(text: str) -> str:
    if len(text) <= MAX_TEXT and text.isascii():
        return text
    return clip(text.encode("utf-8", "replace").decode("utf-8"), MAX_TEXT)
