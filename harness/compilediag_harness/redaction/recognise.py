"""Recognition of secrets in a text: tokens of a known form, and what stands beside a name.

A pure function of the text. Matching is linear: no expression has nested or unbounded repetition
that must be followed by something. What is not found is not judged safe, only not recognised.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Iterator

from compilediag_harness.redaction.token_rules import Span, find_tokens

_LITERAL = re.compile(
    r"(?:[-+]?[0-9]{1,6}(?:\.[0-9]{0,20})?(?:e[-+]?[0-9]{1,3})?|true|false|none|null|yes|no|on|off)\Z",
    re.IGNORECASE,
)

_ALWAYS = (
    "secret secrets password passwords passwd passphrase passcode apikey apikeys credential "
    "credentials apitoken authtoken accesstoken"
)
_ALWAYS_SECRET = frozenset(_ALWAYS.split())

_OFTEN = "key keys token pass cookie auth dsn pat pw webhook"
_OFTEN_SECRET = frozenset(_OFTEN.split())

_DOUBTFUL_ALONE = frozenset({"key", "keys", "pass", "pat"})
"""As the key of a mapping these words name an entry, a pass over a graph, a pattern."""

_HARMLESS_WORDS = (
    "pad eos bos unk sep cls mask image special next num start end stop max min sort group dict "
    "state primary foreign cache query value kv attention attn layer head hook module map feature "
    "metric seed rng jax count id index limit length len dim size per torch graph fx inductor "
    "proj triton node symbol tensor storage guard shard batch type sock file dir path url uri "
    "padding"
)

_HARMLESS_BESIDE = frozenset(_HARMLESS_WORDS.split())
"""Parts that make a doubtful name an innocent one, with or without a plural s: "pad_token",
"sort_key", "past_key_values"."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")

_SPECIAL = re.compile(
    r"(?i)(?:pad|eos|bos|unk|sep|cls|mask|image|special|next|num|start|end|stop|max|min|last|"
    r"first|prev|current|input|output|new|per|an?|the|special_tokens)[_\s.'\"\]\[]{1,3}$"
)
"""What precedes "token" when it is a piece of text for a language model, not a credential."""


@functools.lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """True if the value of a variable, option or environment variable of this name is secret."""
    parts = _split_name(name)
    if parts & _ALWAYS_SECRET:
        return True
    beside = {part.removesuffix("s") for part in parts} | parts
    return bool(parts & _OFTEN_SECRET) and not beside & _HARMLESS_BESIDE


def is_secret_key(name: str) -> bool:
    """True if what stands at this key of a mapping is secret."""
    return is_secret_name(name) and not _split_name(name) <= _DOUBTFUL_ALONE


def is_certainly_secret_name(name: str) -> bool:
    """True if a name is that of a secret also where torch speaks of its passes and keys."""
    return bool(_split_name(name) & _ALWAYS_SECRET)


@functools.lru_cache(maxsize=1024)
def _split_name(name: str) -> frozenset[str]:
    return frozenset(part.lower() for part in _CAMEL.split(name[-256:]) if part)


def is_harmless_literal(value: str) -> bool:
    """True if a text is a number, a boolean or None: no secret, whatever its name is."""
    return bool(_LITERAL.match(value.strip()))


MARK = "<redacted:"
"""The beginning of a placeholder."""

PLACEHOLDER = re.compile(r"<redacted:(?P<kind>[a-z0-9_-]{1,64})(?:#[0-9]{1,9})?>")


def is_redacted(text: str) -> bool:
    """True if a secret was taken out of a text; placeholders of older receipts have no kind."""
    return MARK in text or "<redacted>" in text


MIN_LENGTH = 6
"""A shorter text has no room for a secret that is recognised without its name."""

MAX_REMEMBERED = 1500
"""Longest text, in characters, whose spans are remembered."""

_PARAMETER = re.compile(
    r"(?i)[?&](?:[a-z_-]{0,24}(?:token|key|secret|signature|password)|sig)=([^&\s'\"<>]+)"
)
_OPTION = re.compile(
    r"--(?P<option>[A-Za-z][\w.-]{2,60})(?:\s{1,4}|['\"],\s{0,4}['\"])"
    r"(?P<secret>[^\s'\",\])<-][^\s'\",\])<]{2,511})"
)
"""An option and its value, on a command line or in a list of its words."""

_WORDS = "key password passwd passphrase passcode secret credential token"
_NAME_WORDS = _WORDS.split()
_KEY_BEFORE = re.compile(
    r"(?i)(?:api[_\s-]?|(?:access|secret|private|signing|encryption|account|shared|auth|ssh|hf)[_-]?)$"
)
"""What makes a "key" one that is secret."""

_GAP = r"['\"\])\\]{0,8}\s{0,8}(?:==|!=|=|:)\s{0,8}(?:b(?=['\"]))?\\{0,3}"
_NAMED = (
    r"(?P<value>\"[^\"\n]{1,4096}\"?|'[^'\n]{1,4096}'?"
    r"|(?=[^\s]{0,64}[0-9])[^\s,;'\"()\[\]{}]{5,})"
)
_SAID = (
    r"(?:['\"]?\s{1,4}|\s{0,4}\()(?:[a-z]{1,12}[\s:]{1,4}){0,3}\\{0,3}"
    r"(?P<quote>['\"`])(?P<value>[^'\"`\n]{3,512})(?P=quote)"
)
_NAME = rf"(?i:{'|'.join(_NAME_WORDS)}|credentials)(?![A-Za-z])"  # `tokens` are those of a text
_NAMED_VALUE, _SPOKEN = re.compile(_NAME + _GAP + _NAMED), re.compile(_NAME + _SAID)
"""From the last word of the name on: `api_key == 'x'`, `"token": "x"`, `HF_TOKEN=x1234`,
`G['PASSWORD'] == 'x'`, also where quotes are escaped, as in JSON; and `wrong password 'x'`, `the
password is "x"`, in the text of an exception."""

_DOTTED_NAME = re.compile(r"[A-Za-z_]\w{0,64}(?:\.[A-Za-z_]\w{0,64})+\Z")

_HEX_KEY = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")
_HEX_CONTEXT = re.compile(r"(?i)wandb|weights.{0,5}biases")
_DIGEST_BEFORE = re.compile(
    r"(?i)(?:commit|sha-?1?|rev(?:ision)?|git|hash|digest|version|head|tree|blob|parent)"
    r"[^A-Za-z0-9\n]{0,4}$"
)
_CONTEXT_CHARS = 80


def find_secrets(text: str) -> tuple[Span, ...]:
    """Find the secrets of a text in their order, none over another.

    Returns:
        (start, end, kind) of each, in characters.
    """
    if len(text) < MIN_LENGTH:
        return ()
    # Cached: the receipts of many ranks, and the guards of a run, hold the same texts.
    return (_find_secrets if len(text) <= MAX_REMEMBERED else _find_secrets.__wrapped__)(text)


@functools.lru_cache(maxsize=2048)
def _find_secrets(text: str) -> tuple[Span, ...]:
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters become two in lower case
        lowered = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
    spans = sorted(_iterate_spans(text, lowered), key=lambda span: (span[0], -span[1]))
    done = [match.span() for match in PLACEHOLDER.finditer(text)] if spans and MARK in text else []
    joined: list[Span] = []
    # Invariant: the result is sorted and disjoint, else a replacement leaves the end of a secret.
    for start, end, kind in spans:
        after = bisect_left(done, (end, 0))
        if after and done[after - 1][1] > start:  # it holds a part of a placeholder
            continue
        if joined and start < joined[-1][1]:  # as one: no end of a secret is left
            first, last, name = joined[-1]
            joined[-1] = (first, max(last, end), name)
        else:
            joined.append((start, end, kind))
    return tuple(joined)


def _iterate_spans(text: str, lowered: str) -> Iterator[Span]:
    yield from find_tokens(text, lowered)
    for word in _NAME_WORDS:
        at = lowered.find(word)
        while at >= 0:
            span = _find_named_value(text, at, word)
            if span is not None:
                yield span
            at = lowered.find(word, at + 1 if span is None else max(at, span[1]) + 1)
    if "=" in text and ("?" in text or "&" in text):
        yield from ((*match.span(1), "query_parameter") for match in _PARAMETER.finditer(text))
    for match in _OPTION.finditer(text) if "--" in text else ():
        value = match["secret"]
        shown = value.isupper() and value.isalpha()  # "--token TOKEN" of a help text
        if is_secret_name(match["option"]) and not shown and not is_harmless_literal(value):
            yield *match.span("secret"), "secret_name"
    # Bare keys of W&B: 40 hex digits, like a commit, so only beside its name.
    beside = "wandb" in lowered or "biases" in lowered
    for match in _HEX_KEY.finditer(text) if beside else ():
        before = text[max(match.start() - _CONTEXT_CHARS, 0) : match.start()]
        if _HEX_CONTEXT.search(before) and not _DIGEST_BEFORE.search(before):
            yield *match.span(), "wandb"


def _find_named_value(text: str, at: int, word: str) -> Span | None:
    """Find the secret beside a name that ends with a word of secrets; None where there is none."""
    before = text[max(at - 24, 0) : at]
    if word == "key" and not _KEY_BEFORE.search(before):
        return None
    if word == "token" and _SPECIAL.search(before):
        return None
    match = _NAMED_VALUE.match(text, at)
    if match is None and word != "token":
        match = _SPOKEN.match(text, at)
    if match is None:
        return None
    # Without its quotes, and without a backslash that belongs to the closing one.
    start, value = match.start("value"), match["value"]
    if match.re is _NAMED_VALUE and value[0] in "\"'":
        start, value = start + 1, value[1:].removesuffix(value[0])
    value = value.rstrip("\\")
    end = start + len(value)
    if match[0][-1] not in "'\"`":
        # An unquoted expression is none: a call, a subscript, `token = torch.float32`.
        dotted = word in ("key", "token") and _DOTTED_NAME.match(value) is not None
        if dotted or text[end : end + 1] in ("(", "["):
            return None
    return (start, end, "secret_name") if value and not is_harmless_literal(value) else None
