"""JUnit XML: a test case a lane, with one failure that lists everything, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from compilediag.compare.gate.judgement import Judgement
from compilediag.views.gate.messages import (
    UPDATE,
    against,
    detail,
    headline,
    inert,
    outcome,
    short,
    title,
)
from compilediag.views.style import RenderOptions

MAX_CHARS = 4_000_000
"""Of all texts together: GitLab reads no file over 30 MB, and a character has up to 4 bytes."""
MAX_LANES = 1000
TEXT_CHARS = 400
_ELEMENT = {"bad": "failure", "blind": "error"}


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """One suite; what is escaped holds no character that XML 1.0 forbids."""
    shown = judgements[:MAX_LANES]
    kinds = [outcome(item) for item in shown] or ["blind"]
    counts = f'tests="{len(kinds)}" failures="{kinds.count("bad")}" errors="{kinds.count("blind")}"'
    room = MAX_CHARS // max(len(shown), 1) * 4 // 5
    cases = [line for item in shown for line in _case(item, options, room)]
    if not shown:
        cases = ['<testcase classname="compilediag.gate" name="no lane">']
        cases += ['<error message="nothing was judged, which is no pass"/>', "</testcase>"]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="compilediag gate" {counts}>',
        f'<testsuite name="compilediag gate" {counts}>',
        *cases,
        "</testsuite>\n</testsuites>\n",
    ]
    return "\n".join(lines)


def _case(judgement: Judgement, options: RenderOptions, room: int) -> list[str]:
    kind = outcome(judgement)
    lane = _safe(judgement.lane, options, 300)
    lines = [f'<testcase classname="compilediag.gate" name="{lane}">']
    element = _ELEMENT.get(kind)
    if element is not None:
        message = _safe(headline(judgement), options, 300)
        attributes = f'message="{message}" type="compilediag.gate"'
        details = _failures(judgement, options, room)
        lines.append(f"<{element} {attributes}>{details}</{element}>")
    lines.append(f"<system-out>{_rest(judgement, options, room // 4)}</system-out>")
    return [*lines, "</testcase>"]


def _failures(judgement: Judgement, options: RenderOptions, room: int) -> str:
    """Every failure of the lane, as long as there is room."""
    parts: list[str] = []
    for number, item in enumerate(judgement.failures, 1):
        lines = [f"{number}. {options.text(title(item), 200)}", *detail(item, options, TEXT_CHARS)]
        text = escape("\n   ".join(inert(line) for line in lines))
        room -= len(text)
        if room < 0:
            more = len(judgement.failures) - number + 1
            parts.append(f"{more:,} more: compilediag gate --format json")
            break
        parts.append(text)
    if judgement.strict:
        better = [f"better: {_safe(item.message, options)}" for item in judgement.improvements[:50]]
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
        line = escape(inert(options.text(text, TEXT_CHARS)))
        room -= len(line)
        if room < 0:
            return "\n".join([*lines, "more: compilediag gate --format json"])
        lines.append(line)
    return "\n".join(lines)


def _safe(text: str, options: RenderOptions, limit: int = TEXT_CHARS) -> str:
    return escape(options.text(text, limit))
