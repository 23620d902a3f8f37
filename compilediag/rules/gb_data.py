"""The categories of torch's graph-break ids, read once when this module is imported."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class BreakCategories:
    """Graph-break id to category over torch 2.8 to 2.15, and what to do where an id is missing."""

    ids: dict[str, str]
    """"GB0124" to "data_dependent_value"."""
    codes: dict[str, str]
    """"data_dependent_value" to "CD202"."""
    consequences: dict[str, str]
    """Ids that are no cause by themselves, to the code that stands for them."""
    generic: frozenset[str]
    """Ids that torch uses for unrelated causes: only the debug context tells."""
    context_patterns: tuple[tuple[str, str], ...]
    title_patterns: tuple[tuple[str, str], ...]
    legacy_patterns: tuple[tuple[str, str], ...]
    """Titles of torch 2.7 without an explanation below."""

    # Compiled on first use: reading a receipt needs the codes, never the patterns.
    @cached_property
    def by_context(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        return _compiled(self.context_patterns)

    @cached_property
    def by_title(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        return _compiled(self.title_patterns, re.IGNORECASE)

    @cached_property
    def by_legacy_title(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        return _compiled(self.legacy_patterns)


def _compiled(
    patterns: tuple[tuple[str, str], ...], flags: int = 0
) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((category, re.compile(pattern, flags)) for category, pattern in patterns)


def _load() -> BreakCategories:
    text = resources.files("compilediag.rules").joinpath("gb_categories.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)

    def patterns(key: str) -> tuple[tuple[str, str], ...]:
        return tuple((rule["category"], rule["pattern"]) for rule in data[key])

    return BreakCategories(
        ids=data["ids"],
        codes=data["codes"],
        consequences=data["consequence_ids"],
        generic=frozenset(data["generic_ids"]),
        context_patterns=patterns("context_refinements"),
        title_patterns=patterns("rules"),
        legacy_patterns=patterns("legacy_titles"),
    )


CATEGORIES = _load()
