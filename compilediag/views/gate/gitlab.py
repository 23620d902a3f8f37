"""GitLab's code quality report: a JSON array with an entry for every failure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from compilediag.compare.gate.judgement import Item, Judgement, Kind
from compilediag.views.gate.messages import fingerprinted, home, in_turn, location, often, title
from compilediag.views.style import RenderOptions

DESCRIPTION_CHARS = 500
MAX_BYTES = 10_000_000
"""A widget with more has no reader; a lane has hardly ever a hundred entries of 500 bytes."""

_SEVERITY: dict[Kind, str] = {"not_judged": "blocker", "fallback": "critical"}
"""All else is major: a gate fails for it."""


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """The report. A lane that passed has no entry: the widget compares with the target branch."""
    entries: list[str] = []
    room = MAX_BYTES
    for judgement, item, digest in fingerprinted(in_turn(judgements)):
        entry = json.dumps(_entry(judgement, item, digest, options), indent=1)
        room -= len(entry)
        if room < 0:
            break
        entries.append(entry)
    return "[\n" + ",\n".join(entries) + "\n]\n" if entries else "[]\n"


def _entry(
    judgement: Judgement, item: Item, digest: str, options: RenderOptions
) -> dict[str, object]:
    found = location(item, options) or home(judgement, options)
    parts = [f"{title(item)}: {item.message}"]
    parts += [f"({often(item)})"] if often(item) else []
    parts += [f"Fix: {item.fix}"] if item.fix else []
    parts += [f"Proved: {item.proved}"] if item.proved else []
    return {
        "description": options.text(" ".join(parts), DESCRIPTION_CHARS),
        "check_name": options.text(f"compilediag/{item.rule}", 100),
        "fingerprint": digest,
        "severity": _SEVERITY.get(item.kind, "major"),
        "location": {"path": found.path, "lines": {"begin": found.line}},
    }
