"""Secrets replaced in everything that is written down: a receipt never holds one.

Guard text shows live values of the user's program, argv and logs show what was typed, so every
string passes through here. Matching is linear: no expression has nested or unbounded repetition
that must be followed by something. Replacements are counted by rule; what is kept is not judged
safe, only not recognised.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

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

MIN_KNOWN_LENGTH = 6
"""A known secret shorter than this would be found inside innocent words; it is replaced only
as the value of its name."""

MAX_REMEMBERED = 500
"""Longest text, in characters, whose redacted form is remembered."""

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

NAMES = frozenset({"file", "uri", "function", "how", "source", "variable", "folder"})
"""Keys whose values are names and paths: randomness there is no sign of a secret."""

SHOWN_VALUES = frozenset({"expected", "actual", "value", "before", "after"})
"""Keys that show a value of the variable named beside them."""


class Redactor:
    """Replaces secrets and counts them by rule. `known` values are replaced wherever they are."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        distinct = {value for value in known if len(value) >= MIN_KNOWN_LENGTH}
        self._known = tuple(sorted(distinct, key=lambda value: (-len(value), value)))
        self.counts: Counter[str] = Counter()
        """Rule name to how many replacements it made so far."""

    def text(self, text: str, *, is_name: bool = False) -> str:
        """One string; `is_name`: it is a path or a name."""
        for value in self._known:
            if value in text:
                self.counts["known_value"] += text.count(value)
                text = text.replace(value, REDACTED)
        search = _recognised if len(text) <= MAX_REMEMBERED else _recognised.__wrapped__
        text, found = search(text, is_name)
        self.counts.update(found)
        return text

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
        for argument, option in _with_options(arguments):
            name, equals, value = argument.partition("=")
            if option is not None:
                kept.append(self.value_of(option, argument))
            elif equals and is_secret_name(name):
                kept.append(f"{self.text(name)}={self.value_of(name, value)}")
            else:
                kept.append(self.text(argument))
        return tuple(kept)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Environment variables."""
        return {name: self.value_of(name, value) for name, value in variables.items()}

    def value_at(self, key: str, value: str, *, secret: bool) -> str:
        """The text at a key of an object; `secret`: the object is about a variable with a name
        like a secret's."""
        if secret and key not in NAMES:
            if key in SHOWN_VALUES and OPAQUE_WORD.match(value) and REDACTED not in value:
                self.counts["secret_name"] += 1
                return REDACTED
            value, count = QUOTED_VALUE.subn(rf"\1{REDACTED}\1", value)
            self.counts["secret_name"] += count
        return self.text(value, is_name=key in NAMES)


@lru_cache(maxsize=4096)
def _recognised(text: str, is_name: bool) -> tuple[str, Counter[str]]:
    """A text without what looks like a secret, and the replacements by rule.

    Cached: the receipts of many ranks hold the same names and sentences.
    """
    counts: Counter[str] = Counter()
    for rule, pattern, replacement in PLAIN_PATTERNS:
        text, count = pattern.subn(replacement, text)
        if count:
            counts[rule] += count
    text = NAMED_VALUE.sub(lambda match: _named(match, counts), text)
    if not is_name:
        text = RANDOM_RUN.sub(lambda match: _random(match, counts), text)
    return text, counts


def secret_values(arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Values whose names are those of secrets: to be replaced wherever they appear later.

    Paths are left out: `SSH_AUTH_SOCK` names no secret, and a path stands in many texts.
    """
    found = [value for name, value in variables.items() if is_secret_name(name)]
    for argument, option in _with_options(arguments):
        name, equals, value = argument.partition("=")
        if equals and is_secret_name(name):
            found.append(value)
        elif option is not None and is_secret_name(option):
            found.append(argument)
    return tuple(
        value
        for value in dict.fromkeys(found)
        if len(value) >= MIN_KNOWN_LENGTH
        and not is_harmless_literal(value)
        and not value.startswith(("/", "./", "~"))
    )


def _with_options(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each argument, and the option before it whose value it is, if any."""
    option: str | None = None
    for argument in arguments:
        is_option = len(argument) > 1 and argument.startswith("-")
        yield argument, None if is_option else option
        option = argument if is_option and "=" not in argument else None


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
