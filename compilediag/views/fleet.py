"""What the screens of many receipts share: files that are no receipts, moments, lists of counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compilediag.fleet.entry import KINDS, Problem
from compilediag.views.format import count
from compilediag.views.style import RenderOptions

SHOWN_PROBLEMS = 3
"""Files named of each kind; `--json` has them all."""


def moment(created: str, options: RenderOptions) -> str:
    """The time of a receipt to the minute, UTC."""
    return options.text(created[:16].replace("T", " "), 40)


def day(created: str, options: RenderOptions) -> str:
    """The day of a receipt, UTC."""
    return options.text(created[:10], 40)


def counted(counts: Mapping[str, int], options: RenderOptions) -> str:
    """Counts by name in one line: `5 failed, 2 killed`."""
    return ", ".join(f"{number:,} {options.text(name, 60)}" for name, number in counts.items())


def notes(problems: Sequence[Problem], parts: Sequence[str], options: RenderOptions) -> list[str]:
    """Files that are not counted, by kind and by name, and what else is to be known."""
    lines: list[str] = []
    for kind, words in KINDS.items():
        found = [item for item in problems if item.kind == kind]
        if found:
            lines += options.wrap(_named(found, words, options), "  ", "    ")
    if lines:
        lines.insert(0, options.styled(f"not counted: {count(len(problems), 'file')}", "bold"))
    for note in parts:
        lines += options.wrap(f"note: {options.text(note)}", "", "  ")
    return lines


def _named(found: Sequence[Problem], words: str, options: RenderOptions) -> str:
    names = ", ".join(options.path(item.path, 60) for item in found[:SHOWN_PROBLEMS])
    more = f" and {len(found) - SHOWN_PROBLEMS:,} more" if len(found) > SHOWN_PROBLEMS else ""
    why = f": {options.text(found[0].text, 160)}" if len(found) == 1 else ""
    return f"{len(found):,} {words}: {names}{more}{why}"
