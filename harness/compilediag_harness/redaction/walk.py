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


class Walk:
    """Replaces secrets in values of any depth.

    The fields of dataclasses are ours: their names stay, and some are known to be paths and ids.
    The keys of mappings may be the user's: what stands at one with a name like a secret's goes.
    """

    def __init__(
        self, redactor: Redactor, is_secret_key: Callable[[str], bool] = is_secret_key
    ) -> None:
        self.redactor = redactor
        self._is_secret_key = is_secret_key

    def value(
        self, item: Any, key: str = "", *, secret: bool = False, all_of_it: bool = False
    ) -> Any:
        """Redact a value in a field. `secret`: an object around it is about a variable with a name
        like a secret's; `all_of_it`: it stands below a key that is the name of a secret."""
        if type(item) in _UNCHANGED:
            return self.number(item)
        if isinstance(item, str):
            return self.text(item, key, secret=secret, all_of_it=all_of_it)
        if _is_dataclass(cast("type[Any]", type(item))):
            return self.fields(item, secret=secret, all_of_it=all_of_it)
        if isinstance(item, Mapping):
            members = cast("Mapping[Any, Any]", item)
            if key in IDENTITIES:  # digests by path: a file may be called token_rules.py
                return {self.key(str(name)): self.value(one, key) for name, one in members.items()}
            return self.mapping(members, secret, all_of_it)
        if isinstance(item, (list, tuple)):
            items = cast("Sequence[Any]", item)
            return [self.value(one, key, secret=secret, all_of_it=all_of_it) for one in items]
        return self.other(item, key, secret=secret, all_of_it=all_of_it)

    def fields(self, item: Any, *, secret: bool = False, all_of_it: bool = False) -> dict[str, Any]:
        """Redact a dataclass; fields that hold only numbers are not looked at."""
        names, texts, about = _fields_of(cast("type[Any]", type(item)))
        members = {name: getattr(item, name) for name in names}
        secret = secret or (about and names_secret(members))
        for name in texts:
            item = members[name]
            if not item:  # None, "", ()
                continue
            if name == "argv":
                members[name] = list(self.redactor.argv(item))
            elif type(item) is str and not secret and not all_of_it:  # the usual case
                if len(item) >= MIN_LENGTH:
                    members[name] = self.redactor.text(item)
            else:
                members[name] = self.value(item, name, secret=secret, all_of_it=all_of_it)
        return members

    def mapping(self, item: Mapping[Any, Any], secret: bool, all_of_it: bool) -> dict[str, Any]:
        """Redact a mapping; its keys are texts of the user like any other."""
        secret = secret or names_secret(item)
        found: dict[str, Any] = {}
        for key, member in item.items():
            name = str(key)
            hidden = all_of_it or self._is_secret_key(name)
            found[self.key(name)] = self.value(member, name, secret=secret, all_of_it=hidden)
        return found

    def key(self, name: str) -> str:
        return self.redactor.text(name)

    def text(self, text: str, key: str, *, secret: bool, all_of_it: bool) -> str:
        if all_of_it:
            return self.redactor.hidden(text)
        return self.redactor.value_at(key, text, secret=secret)

    def number(self, item: Any) -> Any:
        return item

    def other(self, item: Any, key: str, *, secret: bool, all_of_it: bool) -> Any:
        """Convert what has no type of JSON: to its text."""
        return self.text(str(item), key, secret=secret, all_of_it=all_of_it)


def names_secret(members: Mapping[Any, Any]) -> bool:
    """Whether an object is about a variable with a name like a secret's."""
    return any(is_secret_name(str(members.get(name) or "")) for name in _ABOUT)


@functools.cache
def _is_dataclass(kind: type[Any]) -> bool:
    return dataclasses.is_dataclass(kind)


@functools.cache
def _fields_of(kind: type[Any]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """List the names of the written fields, and of those that may hold text; and whether one names
    a variable."""
    fields = [item for item in dataclasses.fields(kind) if item.metadata.get("written", True)]
    names, texts = tuple(item.name for item in fields), list[str]()
    for item in fields:
        of = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", "text")
        texts += [] if _NUMBERS.issuperset(re.findall(r"\w+", of)) else [item.name]
    return names, tuple(texts), not _ABOUT.isdisjoint(names)
