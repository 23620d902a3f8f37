"""Why a verdict is blind, in plain words and with the numbers that disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.lookups import BLIND_RULES, numbered
from compilediag.views.style import RenderOptions
from compilediag.views.text import hanging_indent
from compilediag.views.training import is_note

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt

MOST_REASONS = 4

_IN_OTHER_WORDS = {
    "CD901": "torch.compile compiled nothing that could be seen",
    "CD902": "a part of the record was lost",
    "CD903": "what torch reports in one place contradicts what it reports in another",
}


def why_blind(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Every reason with its remedy, as indented lines; nothing unless the verdict is blind."""
    if receipt.verdict != "blind":
        return []
    lines: list[str] = []
    for reason, remedy in reasons(receipt)[:MOST_REASONS]:
        lines += hanging_indent(options.text(reason), options.width, "  why: ", "       ")
        if remedy:
            fix = hanging_indent(
                options.text(remedy), options.width, "       fix: ", "            "
            )
            lines += [options.styled(line, "cyan") for line in fix]
    meaning = 'A count of 0 here means "not seen"; it does not mean "did not happen".'
    return [*lines, *hanging_indent(meaning, options.width, "  ", "  ")]


def reasons(receipt: Receipt) -> list[tuple[str, str | None]]:
    """Each reason for blindness with what to do about it: findings first, then what they left."""
    parts: dict[str, str | None] = {}
    for _, item in numbered(receipt):
        if item.rule in BLIND_RULES:
            words = item.title or _IN_OTHER_WORDS[item.rule]
            parts[f"{words} ({item.rule})"] = item.fix.summary
    evidence = receipt.completeness
    for text in (*evidence.reasons, *evidence.differences):
        if not is_note(text) and not any(text in known for known in parts):
            parts[text] = None
    if not parts and not receipt.compile.compiles:
        parts[_IN_OTHER_WORDS["CD901"]] = None
    return list(parts.items())
