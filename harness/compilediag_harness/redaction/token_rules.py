"""Token rules: credentials that have a shape of their own, by our rules and by gitleaks' as data.

A rule is tried only where one of its keywords stands in the text, and every repetition in it is
bounded or the last thing, so that the time is linear in the text.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

AFTER_ESCAPE = r"(?<=[0-9;\[]m)|(?<=\\[abfnrtv0])|(?<=\\x[0-9a-fA-F]{2})"
"""Colour codes and control characters in `repr` end in a letter or digit, not of what follows."""


def compute_entropy(text: str) -> float:
    """Compute Shannon's entropy of a text, in bits a character."""
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values())


RULES_FILE = os.path.join(os.path.dirname(__file__), "gitleaks_rules.json")

START = rf"(?:(?<![A-Za-z0-9])|{AFTER_ESCAPE})"
"""Where a token may begin."""

_STARTS = re.compile(START)

Span = tuple[int, int, str]
"""(start, end, kind): a secret's place in a text, in characters, and what found it."""


class TokenRule(NamedTuple):
    """One kind of secret."""

    kind: str
    pattern: str
    """The secret is its first group that took part, or all of it."""
    entropy: float = 0.0
    """Least bits a character of the secret."""
    digits: bool = False
    """A secret without a digit is a word."""
    allowed: Sequence[str] = ()
    """What is no secret although it looks like one."""
    start: bool = True
    """It begins where a word may begin."""
    anywhere: bool = False
    """The keyword is not what it begins with."""

    def find(self, text: str, lowered: str, word: str) -> Iterator[Span]:
        """Find the secrets of this kind; `lowered` is the text in lower case, which has `word`."""
        pattern = _compile_pattern(self.pattern)
        begun = _find_all(pattern, text, lowered, word)
        for match in pattern.finditer(text) if self.anywhere else begun:
            if self.start and not _STARTS.match(text, match.start()):
                continue
            group = match.lastindex and next(i for i in range(1, 99) if match[i] is not None)
            start, end = match.span(group or 0)
            secret = text[start:end]
            if self.digits and not any(character.isdigit() for character in secret):
                continue
            if self.entropy and compute_entropy(secret) < self.entropy:
                continue
            if not any(_compile_pattern(pattern).search(secret) for pattern in self.allowed):
                yield start, end, self.kind


def _find_all(regex: re.Pattern[str], text: str, lower: str, word: str) -> Iterator[re.Match[str]]:
    """Iterate over the matches that begin with the word; none over another."""
    at = lower.find(word)
    while at >= 0:
        match = regex.match(text, at)
        if match is not None:
            yield match
        at = lower.find(word, at + 1 if match is None else max(match.end(), at + 1))


@functools.lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when a keyword of it was met: most never are."""
    return re.compile(pattern)


_W = "[A-Za-z0-9_-]"
_SOME_DIGIT = "(?=[A-Za-z_-]{0,40}[0-9])"
_HF = "(?:[A-Za-z0-9]{20,}|(?=[A-Za-z]{0,18}[0-9])[A-Za-z0-9]{8,})(?![A-Za-z0-9_])"
"""Of any length with a digit; `hf_transfer` and `hf_LlamaForCausalLM` are names."""

_OWN: tuple[tuple[str, str, str], ...] = (
    ("github", "gh", r"gh[pousr]_[A-Za-z0-9]{10,}"),
    ("github", "github_pat_", r"github_pat_[A-Za-z0-9_]{10,}"),
    ("sk", "sk-", rf"sk-{_SOME_DIGIT}[A-Za-z0-9_-]{{12,}}"),
    ("aws", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}"),
    ("aws", "agpa aida aroa", r"(?:AGPA|AIDA|AROA)[0-9A-Z]{12,}"),
    ("slack", "xox xapp-", r"(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{8,}"),
    ("slack-webhook", "hooks.slack.com", r"hooks\.slack\.com/[a-z]{4,12}/([A-Za-z0-9+/_-]{8,})"),
    ("discord-webhook", "com/api/webhooks/", rf"com/api/webhooks/([0-9]{{5,30}}/{_W}{{16,}})"),
    ("gitlab", "gl", rf"gl(?:pat|dt|rt|cbt|ptt|agent)-{_W}{{10,}}(?:\.[0-9a-z]{{2,12}}){{0,2}}"),
    ("npm", "npm_", r"npm_[A-Za-z0-9]{20,}"),
    ("pypi", "pypi-", rf"pypi-{_W}{{20,}}"),
    ("google", "aiza", rf"AIza{_W}{{20,}}"),
    ("google", "ya29.", rf"ya29\.{_W}{{10,}}"),
    ("google", "gocspx-", rf"GOCSPX-{_W}{{16,}}"),
    ("databricks", "dapi", r"dapi[0-9a-f]{30,}"),
    ("nvidia", "nvapi-", rf"nvapi-{_W}{{16,}}"),
    ("replicate", "r8_", r"r8_[A-Za-z0-9]{20,}"),
    ("stripe", "sk_ rk_", r"[rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    ("stripe", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
    ("digitalocean", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{20,}"),
    ("wandb", "wandb_v1_", r"wandb_v1_[A-Za-z0-9_]{20,}"),
    ("vault", "hvs. hvb. hvr.", rf"hv[sbr]\.{_W}{{12,}}(?:\.{_W}{{1,512}}){{0,3}}"),
    ("sendgrid", "sg.", rf"SG\.{_W}{{8,128}}\.{_W}{{8,}}"),
    ("doppler", "dp.", r"dp\.[a-z]{2,5}\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{24,}"),
    ("terraform", ".atlasv1.", r"[A-Za-z0-9]{8,20}\.atlasv1\.[A-Za-z0-9_=-]{16,}"),
    ("twilio", "sk", r"SK[0-9a-f]{32}(?![0-9a-zA-Z])"),
    ("mailchimp", "-us", r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9a-zA-Z])"),
    ("new-relic", "nrak- nrjs- nrii- nrra- nriq-", rf"NR(?:AK|JS|II|RA|IQ)-{_W}{{16,}}"),
    ("new-relic-license", "nral", r"[0-9a-f]{36}NRAL(?![0-9a-zA-Z])"),
    ("supabase", "sbp_", r"sbp_(?:v0_)?[0-9a-f]{20,}"),
    ("supabase", "sb_secret_", rf"sb_secret_{_W}{{16,}}"),
    ("runpod", "rpa_", r"rpa_[A-Za-z0-9]{20,}"),
    ("groq", "gsk_", r"gsk_[A-Za-z0-9]{20,}"),
    ("xai", "xai-", r"xai-[A-Za-z0-9]{20,}"),
    ("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{20,}"),
    ("langsmith", "lsv2_", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}"),
    ("pinecone", "pcsk_", r"pcsk_[A-Za-z0-9_]{20,}"),
    ("fireworks", "fw_", r"fw_(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{20,}"),
    ("together", "tgp_v1_", rf"tgp_v1_{_W}{{20,}}"),
    ("tailscale", "tskey-", rf"tskey-{_W}{{16,}}"),
    ("docker", "dckr_", rf"dckr_(?:pat|oat)_{_W}{{16,}}"),
    ("linear", "lin_api_", r"lin_api_[A-Za-z0-9]{20,}"),
    ("telegram", ":aa", rf"[0-9]{{6,12}}:AA{_W}{{30,}}"),
    ("hugging-face", "hf_ api_org_", rf"(?:hf|api_org)_{_HF}"),
)  # fmt: skip
"""Kind, keywords, and the shape of a token; looser in length than gitleaks, whose rules are to find
whole tokens in source code."""

_KEYWORD_INSIDE = frozenset({"terraform", "mailchimp", "new-relic-license", "telegram"})
"""Kinds whose keyword is not what a token begins with."""

_SURROUNDED = {
    "-----begin": TokenRule(
        "private_key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\]*",
        start=False,
    ),
    "://": TokenRule("url_userinfo", r"://(?![A-Za-z]{1,16}@)([^\s/@'\"<>]{1,512})@", start=False),
    "eyj": TokenRule("jwt", r"eyJ[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]*){0,2}"),
    "bearer": TokenRule("bearer", r"(?i)bearer\s{1,4}([A-Za-z0-9._~+/=-]{8,})", start=False),
    "authorization": TokenRule(
        "bearer",
        r"(?i)authorization['\"]?\s{0,4}[:=,]\s{0,4}['\"]?(?:basic|token|apikey)"
        r"\s{1,4}([A-Za-z0-9._~+/=-]{8,})",
        start=False,
    ),
    "password": TokenRule(
        "secret_name",  # a line of .netrc
        r"(?i)password\s{1,4}((?=[^\s]{0,64}[0-9])[^\s'\",;:<>()=]{6,})(?![^\s])",
    ),
}
"""By what each of these begins with."""


@functools.cache
def _load_rules() -> tuple[tuple[str, tuple[TokenRule, ...]], ...]:
    """Load all rules, by each of their keywords, which are in lower case."""
    by_keyword = {word: [rule] for word, rule in _SURROUNDED.items()}
    for kind, words, shape in _OWN:
        for word in words.split():
            rule = TokenRule(kind, shape, anywhere=kind in _KEYWORD_INSIDE)
            by_keyword.setdefault(word, []).append(rule)
    with open(RULES_FILE, encoding="utf-8") as file:
        document: dict[str, Any] = json.load(file)
    for raw_rule in document["rules"]:
        words, kind = raw_rule.pop("keywords"), raw_rule.pop("id")
        given: dict[str, Any] = {"start": False, **raw_rule}
        rule = TokenRule(kind, **given)
        for word in words:
            by_keyword.setdefault(word, []).append(rule)
    return tuple((word, tuple(rules)) for word, rules in by_keyword.items())


def find_tokens(text: str, lowered: str) -> Iterator[Span]:
    """Find tokens of known shapes; `lowered` is the text in lower case, of the same length."""
    for word, rules in _load_rules():
        if word in lowered:
            for rule in rules:
                yield from rule.find(text, lowered, word)
