"""Names whose values are secrets, and values that are none whatever their name is."""

from __future__ import annotations

import functools
import re

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
    "metric seed rng jax count id ids index limit length len dim size per torch graph fx inductor "
    "triton node symbol tensor storage guard shard batch type types sock file dir path url uri"
)

_HARMLESS_BESIDE = frozenset(_HARMLESS_WORDS.split())
"""Parts that make a doubtful name an innocent one: "pad_token", "sort_key", "kv_keys"."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")

_SPECIAL = re.compile(
    r"(?i)(?:pad|eos|bos|unk|sep|cls|mask|image|special|next|num|start|end|stop|max|min|last|"
    r"first|prev|current|input|output|new|per|an?|the|special_tokens)[_\s.'\"\]\[]{1,3}$"
)
"""What precedes "token" when it is a piece of text for a language model, not a credential."""


@functools.lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether the value of a variable, option or environment variable of this name is secret.

    Cached: the receipts of many ranks hold the same names.
    """
    parts = _parts(name)
    if parts & _ALWAYS_SECRET:
        return True
    return bool(parts & _OFTEN_SECRET) and not parts & _HARMLESS_BESIDE


def is_secret_key(name: str) -> bool:
    """Whether what stands at this key of a mapping is secret."""
    return is_secret_name(name) and not _parts(name) <= _DOUBTFUL_ALONE


def is_certainly_secret_name(name: str) -> bool:
    """Whether a name is that of a secret also where torch speaks of its passes and keys."""
    return bool(_parts(name) & _ALWAYS_SECRET)


@functools.lru_cache(maxsize=1024)
def _parts(name: str) -> frozenset[str]:
    return frozenset(part.lower() for part in _CAMEL.split(name[-256:]) if part)


def is_harmless_literal(value: str) -> bool:
    """Numbers, booleans and None are no secrets, whatever their name is."""
    return bool(_LITERAL.match(value.strip()))


def names_special_token(text: str, start: int) -> bool:
    """Whether the word before a "token" makes it one of a tokenizer: "pad_token"."""
    return bool(_SPECIAL.search(text[max(0, start - 24) : start]))
