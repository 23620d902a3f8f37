"""A gate for forges: for GitHub an annotation on each line to blame, the most important first; for
GitLab a code quality report; for both, and others, JUnit XML.

GitHub shows 10 annotations of a type for a step and drops the others without a word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from compilediag.compare.gate.judgement import Judgement, Kind
from compilediag.views.format import count
from compilediag.views.gate.messages import (
    UPDATE,
    against,
    detail,
    fingerprinted,
    headline,
    home,
    in_turn,
    inert,
    location,
    often,
    outcome,
    short,
    title,
)
from compilediag.views.style import RenderOptions

_GATE = "compilediag gate"
MAX_ERRORS = 9
MAX_NOTICES = 9
TITLE_CHARS = 200
TEXT_CHARS = 500
"""Of each of message, guard, fix and proof: an annotation's message may have 64 KiB."""


def annotate(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """At most nine errors and ten notices, over all lanes."""
    failures = in_turn(judgements)
    lines: list[str] = []
    for judgement, item in failures[:MAX_ERRORS]:
        parts = [*detail(item, options, TEXT_CHARS), f"lane: {options.text(judgement.lane, 200)}"]
        found = location(item, options)
        place = {} if found is None else {"file": found.path, "line": str(found.line)}
        name = options.text(title(item), TITLE_CHARS)
        lines.append(_command("error", name, "\n".join(parts), place))
    notices: list[str] = []
    if len(failures) > MAX_ERRORS:
        left = count(len(failures) - MAX_ERRORS, "more failure")
        notices.append(_command("notice", _GATE, f"{left}: see the job summary or the log"))
    for judgement in judgements:
        # That a lane passed, that it is better, and its notices.
        lane, better = f"lane {options.text(judgement.lane, 200)}", judgement.improvements
        told: list[tuple[str, str]] = []
        if better:
            texts = [options.text(item.message, 200) for item in better[:9]]
            texts += [f"and {len(better) - 9:,} more"] if len(better) > 9 else []
            name = headline(judgement)
            if judgement.failures:
                name = f"compilediag gate: {count(len(better), 'improvement')}"
            told.append((name, "\n".join([lane, *texts, f"keep it: {UPDATE}"])))
        elif outcome(judgement) == "good":
            standard = options.text(against(judgement), 300)
            told.append((headline(judgement), f"{lane} against {standard}" if standard else lane))
        told += [(_GATE, f"{lane}: {options.text(text)}") for text in judgement.notices]
        # A gate that only fails for being better has no failure to show: its verdict is the error.
        kind = "notice" if judgement.passed or judgement.failures else "error"
        notices += [
            _command("notice" if index else kind, options.text(name, TITLE_CHARS), text)
            for index, (name, text) in enumerate(told)
        ]
    if len(notices) > MAX_NOTICES:
        left = count(len(notices) - MAX_NOTICES, "more notice")
        notices[MAX_NOTICES:] = [_command("notice", _GATE, f"{left}: see the log")]
    if not judgements:
        lines.append(_command("error", _GATE, "nothing was judged, which is no pass"))
    return "\n".join([*lines, *notices]) + "\n"


def _command(kind: str, name: str, message: str, place: dict[str, str] | None = None) -> str:
    """One workflow command; its texts cannot end it, nor start another."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    fields = {**(place or {}), "title": name}
    properties = (
        f"{key}={data(value).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in fields.items()
    )
    return f"::{kind} {','.join(properties)}::{data(message)}"


# --- GitLab --------------------------------------------------------------------------------------

DESCRIPTION_CHARS = 500
MAX_BYTES = 10_000_000
"""A widget with more has no reader; a lane has hardly ever a hundred entries of 500 bytes."""

_SEVERITY: dict[Kind, str] = {"not_judged": "blocker", "fallback": "critical"}
"""All else is major: a gate fails for it."""


def report_quality(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """The report. A lane that passed has no entry: the widget compares with the target branch."""
    entries: list[str] = []
    room = MAX_BYTES
    for judgement, item, digest in fingerprinted(in_turn(judgements)):
        found = location(item, options) or home(judgement, options)
        parts = [f"{title(item)}: {item.message}"]
        parts += [f"({often(item)})"] if often(item) else []
        parts += [f"Fix: {item.fix}"] if item.fix else []
        parts += [f"Proved: {item.proved}"] if item.proved else []
        fields = {
            "description": options.text(" ".join(parts), DESCRIPTION_CHARS),
            "check_name": options.text(f"compilediag/{item.rule}", 100),
            "fingerprint": digest,
            "severity": _SEVERITY.get(item.kind, "major"),
            "location": {"path": found.path, "lines": {"begin": found.line}},
        }
        entry = json.dumps(fields, indent=1)
        room -= len(entry)
        if room < 0:
            break
        entries.append(entry)
    return "[\n" + ",\n".join(entries) + "\n]\n" if entries else "[]\n"


# --- JUnit ---------------------------------------------------------------------------------------

MAX_CHARS = 4_000_000
"""Of all texts together: GitLab reads no file over 30 MB, and a character has up to 4 bytes."""
MAX_LANES = 1000
CASE_CHARS = 400
_ELEMENT = {"bad": "failure", "blind": "error"}


def render_junit(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """One suite, a test case a lane, with one failure that lists everything, or an error. What is
    escaped holds no character that XML 1.0 forbids."""
    shown = judgements[:MAX_LANES]
    kinds = [outcome(item) for item in shown] or ["blind"]
    counts = f'tests="{len(kinds)}" failures="{kinds.count("bad")}" errors="{kinds.count("blind")}"'
    room = MAX_CHARS // max(len(shown), 1) * 4 // 5
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="compilediag gate" {counts}>',
        f'<testsuite name="compilediag gate" {counts}>',
    ]
    for judgement, kind in zip(shown, kinds, strict=False):
        lane = escape(options.text(judgement.lane, 300))
        lines.append(f'<testcase classname="compilediag.gate" name="{lane}">')
        element = _ELEMENT.get(kind)
        if element is not None:
            message = escape(options.text(headline(judgement), 300))
            attributes = f'message="{message}" type="compilediag.gate"'
            failures = _failures(judgement, options, room)
            lines.append(f"<{element} {attributes}>{failures}</{element}>")
        rest = _rest(judgement, options, room // 4)
        lines += [f"<system-out>{rest}</system-out>", "</testcase>"]
    if not shown:
        lines.append('<testcase classname="compilediag.gate" name="no lane">')
        lines += ['<error message="nothing was judged, which is no pass"/>', "</testcase>"]
    return "\n".join([*lines, "</testsuite>\n</testsuites>\n"])


def _failures(judgement: Judgement, options: RenderOptions, room: int) -> str:
    """Every failure of the lane, as long as there is room."""
    parts: list[str] = []
    for number, item in enumerate(judgement.failures, 1):
        lines = [f"{number}. {options.text(title(item), 200)}", *detail(item, options, CASE_CHARS)]
        text = escape("\n   ".join(inert(line) for line in lines))
        room -= len(text)
        if room < 0:
            more = len(judgement.failures) - number + 1
            parts.append(f"{more:,} more: compilediag gate --format json")
            break
        parts.append(text)
    if judgement.strict:
        texts = (options.text(item.message, CASE_CHARS) for item in judgement.improvements[:50])
        better = [f"better: {escape(text)}" for text in texts]
        parts += better if sum(map(len, better)) <= room else []
        parts += [f"a strict gate fails until the baseline holds it: {UPDATE}"]
    return "\n".join(parts)


def _rest(judgement: Judgement, options: RenderOptions, room: int) -> str:
    """What does not fail: against what was judged, what is known, better or worth a notice."""
    parts = [f"{headline(judgement)}; against {against(judgement) or 'nothing'}"]
    parts += [f"known: {short(item)}" for item in judgement.known[:50]]
    parts += [f"better: {item.message}" for item in judgement.improvements[:50]]
    parts += [f"notice: {text}" for text in judgement.notices[:50]]
    lines: list[str] = []
    for text in parts:
        line = escape(inert(options.text(text, CASE_CHARS)))
        room -= len(line)
        if room < 0:
            return "\n".join([*lines, "more: compilediag gate --format json"])
        lines.append(line)
    return "\n".join(lines)
