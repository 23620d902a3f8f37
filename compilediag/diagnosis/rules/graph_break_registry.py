"""The categories of torch's graph-break ids, read when the first break is."""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

Patterns = tuple[tuple[str, re.Pattern[str]], ...]
"""A category, and the text of a break of that category."""


@dataclass(frozen=True, slots=True)
class BreakCategories:
    """Graph-break id to category over torch 2.8 to 2.15, and what to do where an id is missing."""

    ids: dict[str, str]
    """"GB0124" to "data_dependent_value"."""
    codes: dict[str, str]
    """"data_dependent_value" to "CD202"."""
    consequences: dict[str, str]
    """Ids that are no cause by themselves, to the code that stands for them."""
    generic: frozenset[str]
    """Ids that torch uses for unrelated causes: only the debug context distinguishes them."""
    by_context: Patterns
    by_title: Patterns
    by_legacy_title: Patterns
    """Titles of torch 2.7 without an explanation below."""


@cache
def categories() -> BreakCategories:
    """The table that ships with the package."""
    text = pkgutil.get_data("compilediag.diagnosis.rules", "gb_categories.json")
    assert text is not None, "a file of the package"
    data: dict[str, Any] = json.loads(text)

    def patterns(key: str, flags: int = 0) -> Patterns:
        return tuple((rule["category"], re.compile(rule["pattern"], flags)) for rule in data[key])

    return BreakCategories(
        ids=data["ids"],
        codes=data["codes"],
        consequences=data["consequence_ids"],
        generic=frozenset(data["generic_ids"]),
        by_context=patterns("context_refinements"),
        by_title=patterns("rules", re.IGNORECASE),
        by_legacy_title=patterns("legacy_titles"),
    )
