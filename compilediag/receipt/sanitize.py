"""Sanitizes records and JSON values in one walk: short paths, redacted, bounded, finite."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import Record, iterate_fields
from compilediag_harness.redaction.nested_redactor import NestedRedactor, is_about_secret
from compilediag_harness.redaction.redactor import Redactor
from compilediag_harness.wire import clip

if TYPE_CHECKING:
    from compilediag.timeline.timeline import Timeline

MAX_TEXT = 8 * 1024  #: Longest text of any field, in characters.

ABOUT_CODE = frozenset(
    (
        *("against_eager", "caches", "cold_and_warm", "compile", "findings", "invocations"),
        *("ranks", "shapes", "syncs", "timings"),
    )
)
"""Sections of a receipt that name code: it is the same wherever a checkout lies. The other sections
are about this run, and their paths stay whole."""

Value = TypeVar("Value")


def list_working_directories(timeline: Timeline) -> set[str]:
    """List the folders in which the processes of a run started."""
    return {process.started.cwd for process in timeline.processes if process.started is not None}


def sanitize(value: Value, redactor: Redactor, folders: Iterable[str] = ()) -> tuple[Value, bool]:
    """Sanitize a record, or JSON values; returns the copy, and whether all numbers were finite.

    Paths below `folders` are written relative to them: in any text of a value, but of a whole
    receipt only in the sections `ABOUT_CODE`. NaN and infinities become None, lone surrogates are
    replaced, long texts are cut and end with how much was cut. The names of a record's fields are
    ours and stay, those of other objects may be the user's text.

    Raises:
        msgspec.ValidationError: a field of a record has a value of another type than it declares.
    """
    walk = _Sanitizer(redactor, folders)
    return walk.redact_value(value), walk.finite


class _Sanitizer(NestedRedactor):
    def __init__(self, redactor: Redactor, directories: Iterable[str]) -> None:
        super().__init__(redactor)
        self.finite = True
        self._below = _make_prefix_pattern(directories)
        self._about_code = True

    def convert_number(self, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            self.finite = False
            return None
        return value

    def redact_key(self, name: str) -> str:
        return _clip_text(super().redact_key(name))

    def redact_text(self, text: str, key: str, *, secret: bool, all_of_it: bool) -> str:
        if self._below is not None and self._about_code:
            text = self._below.sub("", text)
        return _clip_text(super().redact_text(text, key, secret=secret, all_of_it=all_of_it))

    def convert_other(self, value: Any, key: str, *, secret: bool, all_of_it: bool) -> Any:
        if not isinstance(value, Record):
            return value
        fields = dict(iterate_fields(value))
        secret = secret or is_about_secret(fields)
        members: dict[str, Any] = {}
        for name, member in fields.items():
            if isinstance(value, Receipt):
                # Invariant: set at each section, it holds for everything inside of it.
                self._about_code = name in ABOUT_CODE
            members[name] = self.redact_value(member, name, secret=secret, all_of_it=all_of_it)
        return msgspec.convert(members, type(value))


def _make_prefix_pattern(directories: Iterable[str]) -> re.Pattern[str] | None:
    """Make the pattern of the beginning of a path below one of these, the longest first."""
    prefixes = {f"{folder}/" for directory in directories if (folder := directory.rstrip("/\\"))}
    longest_first = sorted(prefixes, key=lambda prefix: (-len(prefix), prefix))
    if not prefixes:
        return None
    return re.compile(rf"(?<![\w./\\-])(?:{'|'.join(map(re.escape, longest_first))})")


def _clip_text(text: str) -> str:
    if len(text) <= MAX_TEXT and text.isascii():
        return text
    return clip(text.encode("utf-8", "replace").decode("utf-8"), MAX_TEXT)
