"""Secrets replaced in everything that is written down: a receipt never holds one.

Guard text shows live values of the user's program, argv and logs show what was typed, so every
string passes through here. Matching is linear: no expression has nested or unbounded repetition
that must be followed by something. What is replaced is counted by rule; what is kept is not
judged safe, only not recognised.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from compilediag.receipt.secret_patterns import (
    NAMED_VALUE,
    OPAQUE_WORD,
    PLAIN_PATTERNS,
    QUOTED_VALUE,
    RANDOM_RUN,
    is_harmless_literal,
    is_secret_name,
    looks_random,
    names_special_token,
)

REDACTED = "<redacted>"

SHORTEST_KNOWN = 6
"""A known secret shorter than this would be found inside innocent words; it is replaced only
where it stands as the value of its name."""

REMEMBERED_LENGTH = 500
"""Longest text in characters of which it is remembered what it is without its secrets."""

EXEMPT = frozenset(
    {
        "receipt_id",
        "git_commit",
        "torch_git",
        "sha256",
        "source_sha256",
        "table_sha256",
        "schema",
        "schema_version",
        "min_reader_version",
        "created_at_utc",
        "compile_id",
        "compile_ids",
    }
)
"""Keys whose values are digests and ids of our own: high-entropy on purpose, never secrets."""

PLACES = frozenset({"file", "uri", "function", "how", "source", "variable"})
"""Keys whose values are names and paths: randomness there is no sign of a secret."""

SHOWN_VALUES = frozenset({"expected", "actual", "value", "before", "after"})
"""Keys that show a value of the variable named beside them."""


class Redactor:
    """Replaces secrets and counts them by rule. `known` values are replaced wherever they are."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        distinct = {value for value in known if len(value) >= SHORTEST_KNOWN}
        self._known = tuple(sorted(distinct, key=lambda value: (-len(value), value)))
        self._seen: dict[tuple[str, bool], tuple[str, Counter[str]]] = {}
        self.counts: Counter[str] = Counter()
        """Rule name to how many replacements it made so far."""

    @property
    def knows_values(self) -> bool:
        """Whether any value is replaced wherever it is."""
        return bool(self._known)

    def text(self, text: str, *, place: bool = False) -> str:
        """One string; `place` says that it is a path or a name."""
        known = self._seen.get((text, place))
        if known is None:
            known = self._seen[text, place] = self.replaced(text, place)
        if known[1]:
            self.counts.update(known[1])
        return known[0]

    def replaced(self, text: str, place: bool) -> tuple[str, Counter[str]]:
        """A text without its secrets, and how often which rule saw one; neither remembered nor
        counted."""
        look = _recognised if len(text) <= REMEMBERED_LENGTH else _recognised.__wrapped__
        if not self._known:
            return look(text, place)
        known: Counter[str] = Counter()
        for value in self._known:
            if value in text:
                known["known_value"] += text.count(value)
                text = text.replace(value, REDACTED)
        look = _recognised if len(text) <= REMEMBERED_LENGTH else _recognised.__wrapped__
        told, found = look(text, place)
        return told, known + found

    def value_of(self, name: str, value: str) -> str:
        """The value of a variable, option or setting called `name`."""
        if value and is_secret_name(name) and not is_harmless_literal(value):
            if not value.startswith(REDACTED):
                self.counts["secret_name"] += 1
            return REDACTED
        return self.text(value)

    def argv(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """A command line: `--token X`, `--api-key=X` and `auth.secret=X` lose their value."""
        kept: list[str] = []
        waiting: str | None = None
        for argument in arguments:
            name, equals, value = argument.partition("=")
            if waiting is not None and not _is_option(argument):
                kept.append(self.value_of(waiting, argument))
            elif equals and is_secret_name(name):
                kept.append(f"{self.text(name)}={self.value_of(name, value)}")
            else:
                kept.append(self.text(argument))
            waiting = argument if _is_option(argument) and not equals else None
        return tuple(kept)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Environment variables."""
        return {name: self.value_of(name, value) for name, value in variables.items()}

    def tree(self, value: Any, *, key: str = "", secret: bool = False) -> Any:
        """JSON-ready values, recursively; `secret` says they tell of a variable named like one."""
        if isinstance(value, str):
            return self.leaf(value, key, secret=secret)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, (dict, Mapping)):
            items = cast(Mapping[Any, Any], value)
            named = secret or any(
                is_secret_name(str(items.get(name) or "")) for name in ("variable", "source")
            )
            return {
                self.text(str(name), place=True): self._member(str(name), item, named)
                for name, item in items.items()
            }
        if isinstance(value, (list, tuple)):
            members = cast(Sequence[Any], value)
            return [self.tree(item, key=key, secret=secret) for item in members]
        return value

    def _member(self, name: str, item: Any, secret: bool) -> Any:
        if name in EXEMPT:
            return item
        return self.tree(item, key=name, secret=secret)

    def leaf(self, value: str, key: str, *, secret: bool) -> str:
        """The text that stands under a key; `secret` as for `tree`."""
        if secret and key not in PLACES:
            if key in SHOWN_VALUES and OPAQUE_WORD.match(value) and REDACTED not in value:
                self.counts["secret_name"] += 1
                return REDACTED
            value, number = QUOTED_VALUE.subn(rf"\1{REDACTED}\1", value)
            self.counts["secret_name"] += number
        return self.text(value, place=key in PLACES)


_NOTHING: Counter[str] = Counter()
"""One for all texts that stay what they are; nobody writes into it."""


@lru_cache(maxsize=4096)
def _recognised(text: str, place: bool) -> tuple[str, Counter[str]]:
    """A text without what looks like a secret, and how often which rule saw one.

    Remembered: the receipts of many ranks hold the same names and sentences.
    """
    counts: Counter[str] = Counter()
    for rule, pattern, replacement in PLAIN_PATTERNS:
        text, number = pattern.subn(replacement, text)
        if number:
            counts[rule] += number
    text = NAMED_VALUE.sub(lambda match: _named(match, counts), text)
    if not place:
        text = RANDOM_RUN.sub(lambda match: _random(match, counts), text)
    return text, counts or _NOTHING


def redact_text(text: str, known: Iterable[str] = ()) -> tuple[str, Counter[str]]:
    """One text without secrets, and how many were replaced by which rule."""
    redactor = Redactor(known)
    return redactor.text(text), redactor.counts


def redact_argv(
    arguments: Sequence[str], known: Iterable[str] = ()
) -> tuple[tuple[str, ...], Counter[str]]:
    """A command line without secrets, and how many were replaced by which rule."""
    redactor = Redactor([*known, *secret_values(arguments, {})])
    return redactor.argv(arguments), redactor.counts


def secret_values(arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Values whose name says that they are secret: replaced wherever they appear later.

    Paths are left out: `SSH_AUTH_SOCK` names no secret, and a path stands in many texts.
    """
    found: list[str] = [value for name, value in variables.items() if is_secret_name(name)]
    waiting: str | None = None
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and is_secret_name(name):
            found.append(value)
        elif waiting is not None and not _is_option(argument) and is_secret_name(waiting):
            found.append(argument)
        waiting = argument if _is_option(argument) and not equals else None
    return tuple(
        value
        for value in dict.fromkeys(found)
        if len(value) >= SHORTEST_KNOWN
        and not is_harmless_literal(value)
        and not value.startswith(("/", "./", "~"))
    )


def _is_option(argument: str) -> bool:
    return len(argument) > 1 and argument.startswith("-")


def _named(match: re.Match[str], counts: Counter[str]) -> str:
    value = match["value"]
    bare = value.strip("\"'")
    special = names_special_token(match.string, match.start())
    if special or REDACTED in value or not bare or is_harmless_literal(bare):
        return match[0]
    counts["secret_name"] += 1
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{match['gap']}{quote}{REDACTED}{quote}"


def _random(match: re.Match[str], counts: Counter[str]) -> str:
    if not looks_random(match[0]):
        return match[0]
    counts["high_entropy"] += 1
    return REDACTED
