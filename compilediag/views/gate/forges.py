"""A gate for GitHub and GitLab: an annotation on each line to blame, the most important first, and
a code quality report.

GitHub shows 10 annotations of a type for a step and drops the others without a word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from compilediag.compare.gate.judgement import Item, Judgement, Kind
from compilediag.views.format import count
from compilediag.views.gate.messages import (
    UPDATE,
    against,
    detail,
    fingerprinted,
    headline,
    home,
    in_turn,
    location,
    often,
    outcome,
    title,
)
from compilediag.views.style import RenderOptions

_GATE = "compilediag gate"
MAX_ERRORS = 9
MAX_NOTICES = 9
TITLE_CHARS = 200
TEXT_CHARS = 500
"""Of each of message, guard, fix and proof: an annotation's message may have 64 KiB."""
DESCRIPTION_CHARS = 500
MAX_BYTES = 10_000_000
"""A widget with more has no reader; a lane has hardly ever a hundred entries of 500 bytes."""

_SEVERITY: dict[Kind, str] = {"not_judged": "blocker", "fallback": "critical"}
"""All else is major: a gate fails for it."""


def annotate(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """At most nine errors and ten notices, over all lanes."""
    failures = in_turn(judgements)
    lines = [_error(judgement, item, options) for judgement, item in failures[:MAX_ERRORS]]
    notices: list[str] = []
    if len(failures) > MAX_ERRORS:
        left = count(len(failures) - MAX_ERRORS, "more failure")
        notices.append(_command("notice", _GATE, f"{left}: see the job summary or the log"))
    for judgement in judgements:
        notices += _notices(judgement, options)
    if len(notices) > MAX_NOTICES:
        left = count(len(notices) - MAX_NOTICES, "more notice")
        notices[MAX_NOTICES:] = [_command("notice", _GATE, f"{left}: see the log")]
    if not judgements:
        lines.append(_command("error", _GATE, "nothing was judged, which is no pass"))
    return "\n".join([*lines, *notices]) + "\n"


def _error(judgement: Judgement, item: Item, options: RenderOptions) -> str:
    parts = [*detail(item, options, TEXT_CHARS), f"lane: {options.text(judgement.lane, 200)}"]
    found = location(item, options)
    properties = {} if found is None else {"file": found.path, "line": str(found.line)}
    return _command("error", options.text(title(item), TITLE_CHARS), "\n".join(parts), properties)


def _notices(judgement: Judgement, options: RenderOptions) -> list[str]:
    """That a lane passed, that it is better, and its notices."""
    lane = f"lane {options.text(judgement.lane, 200)}"
    notices: list[tuple[str, str]] = []
    if outcome(judgement) == "good" and not judgement.improvements:
        standard = options.text(against(judgement), 300)
        sentence = f"{lane} against {standard}" if standard else lane
        notices.append((headline(judgement), sentence))
    if judgement.improvements:
        better = [options.text(item.message, 200) for item in judgement.improvements[:9]]
        more = len(judgement.improvements) - len(better)
        better += [f"and {more:,} more"] if more else []
        name = headline(judgement)
        if judgement.failures:
            name = f"compilediag gate: {count(len(judgement.improvements), 'improvement')}"
        notices.append((name, "\n".join([lane, *better, f"keep it: {UPDATE}"])))
    notices += [(_GATE, f"{lane}: {options.text(text)}") for text in judgement.notices]
    # A gate that only fails for being better has no failure to show: its verdict is the error.
    kind = "notice" if judgement.passed or judgement.failures else "error"
    return [
        _command(kind if index == 0 else "notice", options.text(name, TITLE_CHARS), text)
        for index, (name, text) in enumerate(notices)
    ]


def _command(kind: str, name: str, message: str, properties: dict[str, str] | None = None) -> str:
    """One workflow command; its texts cannot end it, nor start another."""
    fields = {**(properties or {}), "title": name}
    sentence = ",".join(f"{key}={_property(value)}" for key, value in fields.items())
    return f"::{kind} {sentence}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# --- GitLab --------------------------------------------------------------------------------------


def report_quality(judgements: Sequence[Judgement], options: RenderOptions) -> str:
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
