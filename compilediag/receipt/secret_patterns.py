"""How secrets look: token prefixes, names that hold secrets, and strings too random to be words.

Known shapes come from the issuers' public documentation. Every pattern is linear in the text: a
repetition is the last thing in its pattern, or it is bounded.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter

_AFTER_ESCAPE = r"(?<=[0-9;\[]m)|(?<=\\[abfnrtv0])|(?<=\\x[0-9a-fA-F]{2})"
"""A terminal's colour code, or a control character in `repr`, ends in a letter or digit and is no
part of what follows."""

_START = rf"(?:(?<![A-Za-z0-9])|{_AFTER_ESCAPE})"

_PREFIXED = re.compile(
    rf"""{_START}(?:
        (?:hf_|api_org_)(?=[A-Za-z]{{0,40}}[0-9A-Z])[A-Za-z0-9]{{8,}}
      | (?:hf_|api_org_)[a-z]{{24,}}
      | gh[pousr]_[A-Za-z0-9]{{10,}}
      | github_pat_[A-Za-z0-9_]{{10,}}
      | sk-(?=[A-Za-z_-]{{0,40}}[0-9])[A-Za-z0-9_-]{{12,}}
      | (?:AKIA|ASIA|AGPA|AIDA|AROA|ABIA|ACCA)[0-9A-Z]{{12,}}
      | xox[abceoprs]-[A-Za-z0-9-]{{8,}}
      | xapp-[A-Za-z0-9-]{{8,}}
      | gl(?:pat|dt|rt|cbt|ptt|agent)-[A-Za-z0-9_-]{{10,}}
      | npm_[A-Za-z0-9]{{20,}}
      | pypi-[A-Za-z0-9_-]{{20,}}
      | AIza[A-Za-z0-9_-]{{20,}}
      | ya29\.[A-Za-z0-9_-]{{10,}}
      | dapi[0-9a-f]{{30,}}
      | nvapi-[A-Za-z0-9_-]{{16,}}
      | r8_[A-Za-z0-9]{{20,}}
      | sk_live_[A-Za-z0-9]{{10,}}
      | dop_v1_[0-9a-f]{{20,}}
    )""",
    re.VERBOSE,
)

PLAIN_PATTERNS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "private_key",
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*"),
        "<redacted>",
    ),
    (
        "url_userinfo",
        re.compile(r"(?<=://)[^\s/@'\"<>]{1,512}@"),
        "<redacted>@",
    ),
    (
        "jwt",
        re.compile(rf"{_START}eyJ[A-Za-z0-9_-]{{16,}}(?:\.[A-Za-z0-9_-]*){{0,2}}"),
        "<redacted>",
    ),
    (
        "bearer",
        re.compile(
            r"(?i)(bearer|authorization['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:basic|token))"
            r"\s{1,4}(?!<redacted>)[A-Za-z0-9._~+/=-]{8,}"
        ),
        r"\1 <redacted>",
    ),
    ("token_prefix", _PREFIXED, "<redacted>"),
    (
        "api_key_hex",
        re.compile(
            r"(?i)((?:wandb|login|key|auth)[^A-Za-z0-9\n]{1,4}"
            r"(?:[a-z]{1,12}[^A-Za-z0-9\n]{1,4}){0,2})[0-9a-f]{40}(?![0-9a-f])"
        ),
        r"\1<redacted>",
    ),
    (
        "query_parameter",
        re.compile(
            r"(?i)([?&](?:[a-z_-]{0,24}(?:token|key|secret|signature|password)|sig)=)"
            r"(?!<redacted>)[^&\s'\"]+"
        ),
        r"\1<redacted>",
    ),
)
"""(rule, pattern, replacement), in order of application."""

_NAMES = (
    r"api[_\s-]?key|apikey|access[_-]?key|secret[_-]?key|private[_-]?key|signing[_-]?key"
    r"|encryption[_-]?key|account[_-]?key|shared[_-]?key|auth[_-]?key|ssh[_-]?key|hf[_-]?key"
    r"|password|passwd|passphrase|secret|credentials?|token"
)

NAMED_VALUE = re.compile(
    rf"(?i)(?P<name>(?:{_NAMES})(?![A-Za-z]))"
    r"(?P<gap>['\"\])]{0,4}\s{0,8}(?:==|!=|=|:)\s{0,8}(?:b(?=['\"]))?)"
    r"(?P<value>\"[^\"\n]{1,4096}\"?|'[^'\n]{1,4096}'?|(?=[^\s]{0,64}[0-9])[^\s,;'\")\]}]{5,})"
)
"""`api_key == 'x'`, `"token": "x"`, `HF_TOKEN=x1234`, `G['PASSWORD'] == 'x'`."""

_SPECIAL = re.compile(
    r"(?i)(?:pad|eos|bos|unk|sep|cls|mask|image|special|next|num|start|end|stop|max|min|last|"
    r"first|prev|current|input|output|new|per|an?|the|special_tokens)[_\s.'\"\]\[]{1,3}$"
)
"""What precedes "token" when it is a piece of text for a language model, not a credential."""

QUOTED_VALUE = re.compile(r"(?<![\[\w])(['\"])(?!<redacted>)[^'\"\n]{1,4096}\1(?!\])")
"""A literal of text; not the key of a subscript, which is a name."""

OPAQUE_WORD = re.compile(
    r"\s*(?=[^\s]{0,64}[0-9])(?=[^\s]{0,64}[A-Za-z])[^\s()\[\]{}<>=.'\"]{6,}\s*\Z"
)
"""One word with letters and digits, shown as a value without quotes."""

_LITERAL = re.compile(
    r"(?:[-+]?[0-9]{1,6}(?:\.[0-9]{0,20})?(?:e[-+]?[0-9]{1,3})?|true|false|none|null|yes|no|on|off)\Z",
    re.IGNORECASE,
)

_ALWAYS_SECRET = frozenset(
    {"secret", "secrets", "password", "passwd", "passphrase", "apikey", "credential", "credentials"}
)

_OFTEN_SECRET = frozenset({"key", "keys", "token", "pass", "cookie", "auth", "dsn", "pat"})

_HARMLESS_WORDS = (
    "pad eos bos unk sep cls mask image special next num start end stop max min sort group dict "
    "state primary foreign cache query value kv attention attn layer head hook module map feature "
    "metric seed rng jax count id ids index limit length len dim size per"
)

_HARMLESS_BESIDE = frozenset(_HARMLESS_WORDS.split())
"""Parts that make a doubtful name an innocent one: "pad_token", "sort_key", "kv_keys"."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


@functools.lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether the value of a variable, option or environment variable of this name is secret.

    Cached: the receipts of many ranks hold the same names.
    """
    parts = {part.lower() for part in _CAMEL.split(name[-256:]) if part}
    if parts & _ALWAYS_SECRET:
        return True
    return bool(parts & _OFTEN_SECRET) and not parts & _HARMLESS_BESIDE


def is_harmless_literal(value: str) -> bool:
    """Numbers, booleans and None are no secrets, whatever their name is."""
    return bool(_LITERAL.match(value.strip()))


def names_special_token(text: str, start: int) -> bool:
    """Whether the word before a "token" makes it one of a tokenizer: "pad_token"."""
    return bool(_SPECIAL.search(text[max(0, start - 24) : start]))


RANDOM_RUN = re.compile(
    rf"(?:(?<![A-Za-z0-9+/_.\\-])|{_AFTER_ESCAPE})(?!-|(?<=[\[;])[0-9]{{1,3}}[m;])[A-Za-z0-9+/_-]{{24,}}={{0,2}}"
)
"""Candidates for randomness. Nothing must follow: where one begins it is also consumed."""

_PIECE = re.compile(r"[_-]")


def looks_random(run: str) -> bool:
    """Whether a run of characters is too random for a word, path, identifier or hex digest.

    Upper case, lower case and digits must all occur, change places as often as in random text, and
    carry at least 4 bits a character. Identifiers fall apart into short pieces at "_" and "-".
    """
    run = run.rstrip("=")
    if "/" in run and len(run) < 40:
        return False
    if max(len(piece) for piece in _PIECE.split(run)) < 20:
        return False
    letters = [_class_of(character) for character in run if character.isalnum()]
    if len(set(letters)) < 3:
        return False
    changes = sum(left != right for left, right in itertools.pairwise(letters))
    return changes >= 0.45 * (len(letters) - 1) and _bits_per_character(run) >= 4.0


def _class_of(character: str) -> str:
    return "digit" if character.isdigit() else "upper" if character.isupper() else "lower"


def _bits_per_character(text: str) -> float:
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values())
