"""The redactor of texts: it replaces secrets by placeholders, and counts them."""

from __future__ import annotations

import itertools
import json
import os.path
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, unquote

from compilediag_harness.redaction.recognise import (
    MARK,
    PLACEHOLDER,
    find_secrets,
    is_harmless_literal,
    is_redacted,
    is_secret_name,
)

MIN_LENGTH = 6
"""A known secret shorter than this would be found inside innocent words; it is replaced only
as the value of its name."""

_PASSWORD_OPTION = "-p"  # noqa: S105 - the option of database clients
_COMMON = (
    "default disabled enabled required optional password passwd secret secrets token tokens "
    "string module function inductor cudagraphs aot_eager eager tensor float16 float32 "
    "float64 bfloat16 public private hidden unknown changeme example redacted"
)
_COMMON_WORDS = frozenset(_COMMON.split())
"""Replaced everywhere, these would garble every text."""

_SHORT = "fp8 fp16 fp32 fp64 bf16 tf32 int4 int8 mixed high medium highest train eval test debug"
_SHORT_VALUES = frozenset(_SHORT.split())
"""What `-p` means where it is a precision, a phase or a profile."""

_USERINFO = re.compile(r"://[^\s/@:'\"<>]{0,256}:([^\s/@'\"<>]{1,512})@")
_PARAMETER = re.compile(r"[?&]([A-Za-z_.-]{1,64})=([^&\s'\"<>#]{1,2048})")


def list_secret_values(arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """List the values of a command line and an environment that are secret.

    Paths are left out: `SSH_AUTH_SOCK` names no secret, and a path stands in many texts.
    """
    secrets = [value for name, value in variables.items() if is_secret_name(name)]
    for argument, option in pair_with_options(arguments):
        name, equals, value = argument.partition("=")
        if equals and is_secret_name(name):
            secrets.append(value)
        elif option is not None and is_secret_option(option, argument, arguments):
            secrets.append(argument)
    for text in (*variables.values(), *arguments):
        if "://" not in text:
            continue
        # Passwords and tokens in URLs, as they are written and as they are meant.
        given = [match[1] for match in _USERINFO.finditer(text)]
        given.extend(
            value
            for name, value in _PARAMETER.findall(text)
            if is_secret_name(name) or name.lower() == "sig"
        )
        secrets += (spelling for value in given for spelling in (value, unquote(value)))
    return tuple(
        value
        for value in dict.fromkeys(secrets)
        if len(value) >= MIN_LENGTH
        and not is_harmless_literal(value)
        and value.lower() not in _COMMON_WORDS
        and not value.startswith(("/", "./", "~"))
        and not is_redacted(value)
    )


def pair_with_options(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Pair each argument with the option before it whose value it is, if any."""
    option: str | None = None
    for argument in arguments:
        is_option = len(argument) > 1 and argument.startswith("-")
        yield argument, None if is_option else option
        option = argument if is_option and "=" not in argument else None


def is_secret_option(option: str, value: str, arguments: Sequence[str]) -> bool:
    """True if the value after an option is secret; `-p` is what database clients call theirs, a
    plugin of pytest, and often a number or a precision."""
    if option != _PASSWORD_OPTION:
        return is_secret_name(option)
    of_pytest = any(os.path.basename(word) in ("pytest", "py.test") for word in arguments)
    return not of_pytest and not is_harmless_literal(value) and value not in _SHORT_VALUES


MAX_NUMBERED = 10_000
"""Distinct secrets that have a number of their own; later ones share their placeholder."""

MAX_SEEN, MAX_SEEN_CHARS = 1024, 500
"""Texts without secrets that are remembered, and the longest of them in characters."""

MAX_REMEMBERED = 64
"""Known secrets up to which those that were found by their names become known ones."""

_PATHS = "file uri function how source variable cwd executable logger folder sources"
_IDENTITIES = (
    "receipt_id git_commit torch_git sha256 source_sha256 table_sha256 schema schema_version "
    "min_reader_version created_at_utc compile_id compile_ids started_utc components"
)
IDENTITIES = frozenset(_IDENTITIES.split())
"""Fields whose values are digests and ids of our own: random on purpose."""

NAMES = IDENTITIES.union(_PATHS.split())
"""Fields whose values are names, paths or ids: never what a variable held."""

SHOWN_VALUES = frozenset({"expected", "actual", "value", "before", "after", "values_seen"})
"""Fields that show values of the variable named beside them."""

_SOURCE = r"'[LG](?:\[(?:'[^'\n]{1,256}'|\"[^\"\n]{1,256}\"|\d{1,20})\]|\.\w{1,256}){1,64}'"
"""A guarded value as torch quotes it: "tensor 'L['key']' size mismatch"."""

_QUOTED = re.compile(_SOURCE + r"|(?<![\[\w])(b?)(['\"])([^'\"\n]{1,4096})(?:\2(?!\])|…|\Z)")
"""A literal of text, whole or cut; not the key of a subscript, which is a name. Without groups: a
guarded value."""

_LITERAL = re.compile(r"(b?['\"])([^'\"]{1,4096})(['\"])\Z")

_OPAQUE = re.compile(r"\s*(?=[^\s]{0,64}[0-9])(?=[^\s]{0,64}[A-Za-z])[^\s()\[\]{}<>=.'\"]{6,}\s*\Z")
"""One word with letters and digits, shown as a value without quotes."""

_CUT = re.compile(r"… \[[0-9]+ more characters\]\Z")
_MIN_CUT = 4
"""Characters of a known secret that are left at the end of a cut text."""


class Redactor:
    """Replaces secrets: those that are recognised, and `known` values wherever they are.

    A placeholder, `<redacted:KIND#3>`, is the same for the same value and another for another one,
    so that a text without secrets still shows whether two values differ.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        """Kind of secret to how many placeholders stand in the texts that were returned."""
        self._placeholders: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._harmless: set[str] = set()
        """Texts without secrets: a run writes the same ones again and again."""
        self._known: tuple[tuple[str, re.Pattern[str]], ...] = ()
        self._known_values: frozenset[str] = frozenset()
        self.learn(known)

    def learn(self, known: Iterable[str]) -> None:
        """Replace these values too, from now on; those shorter than `MIN_LENGTH` are left out."""
        new = {value for value in known if len(value) >= MIN_LENGTH} - self._known_values
        if not new:
            return
        # Invariant: texts that were harmless may hold a new value, so none of them is remembered.
        self._known_values |= new
        self._harmless.clear()
        patterns: list[tuple[str, re.Pattern[str]]] = []
        for value in sorted(self._known_values, key=lambda value: (-len(value), value)):
            # As it is, in `repr`, in JSON, in a URL.
            quoted = (repr(value)[1:-1], json.dumps(value)[1:-1])
            spellings = (value, *quoted, quote(value, "", None, "surrogatepass"))
            pattern = "|".join(map(re.escape, dict.fromkeys(spellings)))
            if value.isalpha() and len(value) < 16:  # a plain word only where it stands alone
                pattern = rf"(?<![A-Za-z0-9_])(?:{pattern})(?![A-Za-z0-9_])"
            patterns.append((value, re.compile(pattern)))
        self._known = tuple(patterns)

    def redact_text(self, text: str) -> str:
        """Replace the secrets in a text, and count its placeholders."""
        if text in self._harmless:
            return text
        redacted = text
        for value, pattern in self._known:
            if pattern.search(redacted):
                redacted = pattern.sub(self._get_placeholder(value, "known_value"), redacted)
        if "… [" in redacted:
            redacted = self._hide_cut(redacted)
        if spans := find_secrets(redacted):
            pieces: list[str] = []
            last = 0
            for start, end, kind in spans:
                pieces += redacted[last:start], self._get_placeholder(redacted[start:end], kind)
                if kind == "secret_name" and redacted[start - 1 : start] in ("'", '"'):
                    self._remember(redacted[start:end])
                last = end
            redacted = "".join((*pieces, redacted[last:]))
        if MARK in redacted:
            self.counts.update(match["kind"] for match in PLACEHOLDER.finditer(redacted))
        elif len(text) <= MAX_SEEN_CHARS:
            if len(self._harmless) >= MAX_SEEN:
                self._harmless.clear()
            self._harmless.add(text)
        return redacted

    def redact_named(self, name: str, value: str) -> str:
        """Replace the value of a variable or option: all of it where its name is a secret's."""
        return self.hide_text(value) if is_secret_name(name) else self.redact_text(value)

    def hide_text(self, value: str) -> str:
        """Replace a text that is secret as it stands, but no number and no switch; quotes stay."""
        if not value or PLACEHOLDER.fullmatch(value) or is_harmless_literal(value):
            return self.redact_text(value)
        if (quoted := _LITERAL.match(value)) is not None:
            return f"{quoted[1]}{self.hide_text(quoted[2])}{quoted[3]}"
        self._remember(value)
        return self.redact_text(self._get_placeholder(value, "secret_name"))  # which counts it

    def redact_argv(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Redact a command line: `--token X`, `--api-key=X`, `auth.secret=X` and `-p X` lose X."""
        words: list[str] = []
        for argument, option in pair_with_options(arguments):
            name, equals, value = argument.partition("=")
            if option is not None and is_secret_option(option, argument, arguments):
                words.append(self.hide_text(argument))
            elif equals and is_secret_name(name):
                words.append(f"{self.redact_text(name)}={self.redact_named(name, value)}")
            else:
                words.append(self.redact_text(argument))
        return tuple(words)

    def redact_environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Redact environment variables; their names stay."""
        return {name: self.redact_named(name, value) for name, value in variables.items()}

    def redact_field(self, key: str, value: str, *, secret: bool) -> str:
        """Redact the text in a field; `secret`: its object is about a variable named like one."""
        if secret and key not in NAMES:
            if key in SHOWN_VALUES and _OPAQUE.match(value) and MARK not in value:
                return self.hide_text(value)
            value = _QUOTED.sub(self._hide_quoted, value)
        return self.redact_text(value)

    def _hide_quoted(self, match: re.Match[str]) -> str:
        if match[3] is None or MARK in match[3]:
            return match[0]
        self._remember(match[3])
        end = match[0][match.end(3) - match.start() :]
        return f"{match[1]}{match[2]}{self._get_placeholder(match[3], 'secret_name')}{end}"

    def _remember(self, value: str) -> None:
        """Remember what was called a secret once, if it is no word, number, path or module name."""
        mixed = any(map(str.isalpha, value)) and any(map(str.isdigit, value))
        opaque = len(value) >= 8 and mixed and not any(one in " \t\n/." for one in value)
        if opaque and len(self._known) < MAX_REMEMBERED:
            self.learn([value])

    def _hide_cut(self, text: str) -> str:
        """Replace the beginning of a known secret that was cut at the end of a text."""
        cut = _CUT.search(text)
        if cut is None:
            return text
        shown = text[: cut.start()]
        for value in self._known_values:
            for length in range(min(len(value) - 1, len(shown)), _MIN_CUT - 1, -1):
                if shown.endswith(value[:length]):
                    hidden = self._get_placeholder(value, "known_value")
                    return f"{shown[:-length]}{hidden}{text[cut.start() :]}"
        return text

    def _get_placeholder(self, value: str, kind: str) -> str:
        placeholder = self._placeholders.get(value)
        if placeholder is not None:
            return placeholder
        if len(self._placeholders) >= MAX_NUMBERED:
            return f"{MARK}{kind}>"
        return self._placeholders.setdefault(value, f"{MARK}{kind}#{next(self._numbers)}>")
