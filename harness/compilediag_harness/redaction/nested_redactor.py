"""Redaction of records and JSON values of any depth: the only walk over values there is."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from compilediag_harness.redaction.recognise import MIN_LENGTH, is_secret_key, is_secret_name
from compilediag_harness.redaction.redactor import IDENTITIES, Redactor

_NUMBERS = frozenset({"int", "float", "bool", "None", "tuple"})
_ABOUT = frozenset({"variable", "source"})
_UNCHANGED = frozenset({int, float, bool, type(None)})


class NestedRedactor:
    """Replaces secrets in values of any depth.

    The fields of dataclasses are ours: their names stay, and some are known to be paths and ids.
    The keys of mappings may be the user's: what stands at one with a name like a secret's goes.
    """

    def __init__(
        self, redactor: Redactor, is_secret_key: Callable[[str], bool] = is_secret_key
    ) -> None:
        self.redactor = redactor
        self._is_secret_key = is_secret_key

    def redact_value(
        self, value: Any, key: str = "", *, secret: bool = False, all_of_it: bool = False
    ) -> Any:
        """Redact a value in a field. `secret`: an object around it is about a variable with a name
        like a secret's; `all_of_it`: it stands below a key that is the name of a secret."""
        if type(value) in _UNCHANGED:
            return self.convert_number(value)
        if isinstance(value, str):
            return self.redact_text(value, key, secret=secret, all_of_it=all_of_it)
        if _is_dataclass(cast("type[Any]", type(value))):
            return self.redact_fields(value, secret=secret, all_of_it=all_of_it)
        if isinstance(value, Mapping):
            members = cast("Mapping[Any, Any]", value)
            if key in IDENTITIES:  # digests by path: a file may be called token_rules.py
                return {
                    self.redact_key(str(name)): self.redact_value(one, key)
                    for name, one in members.items()
                }
            return self.redact_mapping(members, secret, all_of_it)
        if isinstance(value, (list, tuple)):
            values = cast("Sequence[Any]", value)
            return [
                self.redact_value(one, key, secret=secret, all_of_it=all_of_it) for one in values
            ]
        return self.convert_other(value, key, secret=secret, all_of_it=all_of_it)

    def redact_fields(
        self, value: Any, *, secret: bool = False, all_of_it: bool = False
    ) -> dict[str, Any]:
        """Redact a dataclass; fields that hold only numbers are not looked at."""
        names, texts, about = _list_fields(cast("type[Any]", type(value)))
        members = {name: getattr(value, name) for name in names}
        secret = secret or (about and is_about_secret(members))
        for name in texts:
            value = members[name]
            if not value:  # None, "", ()
                continue
            if name == "argv":
                members[name] = list(self.redactor.redact_argv(value))
            elif type(value) is str and not secret and not all_of_it:  # the usual case
                if len(value) >= MIN_LENGTH:
                    members[name] = self.redactor.redact_text(value)
            else:
                members[name] = self.redact_value(value, name, secret=secret, all_of_it=all_of_it)
        return members

    def redact_mapping(
        self, mapping: Mapping[Any, Any], secret: bool, all_of_it: bool
    ) -> dict[str, Any]:
        """Redact a mapping; its keys are texts of the user like any other."""
        secret = secret or is_about_secret(mapping)
        redacted: dict[str, Any] = {}
        for key, member in mapping.items():
            name = str(key)
            hidden = all_of_it or self._is_secret_key(name)
            value = self.redact_value(member, name, secret=secret, all_of_it=hidden)
            redacted[self.redact_key(name)] = value
        return redacted

    def redact_key(self, name: str) -> str:
        return self.redactor.redact_text(name)

    def redact_text(self, text: str, key: str, *, secret: bool, all_of_it: bool) -> str:
        if all_of_it:
            return self.redactor.hide_text(text)
        return self.redactor.redact_field(key, text, secret=secret)

    def convert_number(self, value: Any) -> Any:
        return value

    def convert_other(self, value: Any, key: str, *, secret: bool, all_of_it: bool) -> Any:
        """Convert what has no type of JSON: to its text."""
        return self.redact_text(str(value), key, secret=secret, all_of_it=all_of_it)


def is_about_secret(members: Mapping[Any, Any]) -> bool:
    """True if an object is about a variable with a name like a secret's."""
    return any(is_secret_name(str(members.get(name) or "")) for name in _ABOUT)


@functools.cache
def _is_dataclass(kind: type[Any]) -> bool:
    return dataclasses.is_dataclass(kind)


@functools.cache
def _list_fields(kind: type[Any]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """List the written fields and those that may hold text; and whether one names a variable."""
    fields = [field for field in dataclasses.fields(kind) if field.metadata.get("written", True)]
    names, texts = tuple(field.name for field in fields), list[str]()
    for field in fields:
        hint = field.type
        type_name = hint if isinstance(hint, str) else getattr(hint, "__name__", "text")
        texts += [] if _NUMBERS.issuperset(re.findall(r"\w+", type_name)) else [field.name]
    return names, tuple(texts), not _ABOUT.isdisjoint(names)
