"""Why a verdict is blind, in plain words and with the numbers that disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.lookups import BLIND_RULES, numbered
from compilediag.views.style import RenderOptions
from compilediag.views.text import hang
from compilediag.views.training import is_note

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt

MOST_REASONS = 4

_IN_OTHER_WORDS = {
    "CD901": "torch.compile compiled nothing that could be seen",
    "CD902": "a part of the record was lost",
    "CD903": "what torch reports in one place contradicts what it reports in another",
}


def why_blind(receipt: Receipt, look: RenderOptions) -> list[str]:
    """Every reason with its remedy, as indented lines; nothing unless the verdict is blind."""
    if receipt.verdict != "blind":
        return []
    lines: list[str] = []
    for reason, remedy in reasons(receipt)[:MOST_REASONS]:
        lines += hang(look.text(reason), look.width, "  why: ", "       ")
        if remedy:
            fix = hang(look.text(remedy), look.width, "       fix: ", "            ")
            lines += [look.styled(line, "cyan") for line in fix]
    meaning = 'A count of 0 here means "not seen"; it does not mean "did not happen".'
    return [*lines, *hang(meaning, look.width, "  ", "  ")]


def reasons(receipt: Receipt) -> list[tuple[str, str | None]]:
    """Each reason for blindness with what to do about it: findings first, then what they left."""
    told: dict[str, str | None] = {}
    for _, item in numbered(receipt):
        if item.rule in BLIND_RULES:
            words = item.title or _IN_OTHER_WORDS[item.rule]
            told[f"{words} ({item.rule})"] = item.fix.summary
    evidence = receipt.completeness
    for text in (*evidence.reasons, *evidence.differences):
        if not is_note(text) and not any(text in known for known in told):
            told[text] = None
    if not told and not receipt.compile.compiles:
        told[_IN_OTHER_WORDS["CD901"]] = None
    return list(told.items())
