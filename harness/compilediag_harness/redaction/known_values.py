"""Values that are known to be secret: those of variables, options and addresses that say so.

They are replaced wherever they appear later, also where nothing beside them says what they are.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, unquote

from compilediag_harness.redaction.recognise import is_harmless_literal, is_redacted, is_secret_name

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


def secret_values(arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The values of a command line and an environment that are secret.

    Paths are left out: `SSH_AUTH_SOCK` names no secret, and a path stands in many texts.
    """
    found = [value for name, value in variables.items() if is_secret_name(name)]
    for argument, option in with_options(arguments):
        name, equals, value = argument.partition("=")
        if equals and is_secret_name(name):
            found.append(value)
        elif option is not None and is_secret_option(option, argument, arguments):
            found.append(argument)
    for text in (*variables.values(), *arguments):
        found += _of_address(text)
    return tuple(value for value in dict.fromkeys(found) if _is_distinct(value))


def with_options(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each argument, and the option before it whose value it is, if any."""
    option: str | None = None
    for argument in arguments:
        is_option = len(argument) > 1 and argument.startswith("-")
        yield argument, None if is_option else option
        option = argument if is_option and "=" not in argument else None


def is_secret_option(option: str, value: str, arguments: Sequence[str]) -> bool:
    """Whether the value after an option is secret; `-p` is what database clients call theirs, a
    plugin of pytest, and often a number or a precision."""
    if option != _PASSWORD_OPTION:
        return is_secret_name(option)
    of_pytest = any(os.path.basename(word) in ("pytest", "py.test") for word in arguments)
    return not of_pytest and not is_harmless_literal(value) and value not in _SHORT_VALUES


def _of_address(text: str) -> Iterator[str]:
    """Passwords and tokens in URLs, as they are written and as they are meant."""
    if "://" not in text:
        return
    for match in _USERINFO.finditer(text):
        yield from {match[1], unquote(match[1])}
    for match in _PARAMETER.finditer(text):
        if is_secret_name(match[1]) or match[1].lower() == "sig":
            yield from {match[2], unquote(match[2])}


def _is_distinct(value: str) -> bool:
    return (
        len(value) >= MIN_LENGTH
        and not is_harmless_literal(value)
        and value.lower() not in _COMMON_WORDS
        and not value.startswith(("/", "./", "~"))
        and not is_redacted(value)
    )


def spellings(value: str) -> Iterable[str]:
    """A value as it may stand in a text: as it is, in `repr`, in JSON, in a URL."""
    quoted = (repr(value)[1:-1], json.dumps(value)[1:-1], quote(value, "", None, "surrogatepass"))
    return dict.fromkeys((value, *quoted))
