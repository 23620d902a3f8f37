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

MOST_CHARS = 4_000_000
"""Of all texts together: GitLab reads no file over 30 MB, and a character has up to 4 bytes."""
MOST_LANES = 1000
TEXT_CHARS = 400
_ELEMENT = {"bad": "failure", "blind": "error"}


def render(judgements: Sequence[Judgement], look: RenderOptions) -> str:
    """One suite; what is escaped holds no character that XML 1.0 forbids."""
    shown = judgements[:MOST_LANES]
    kinds = [outcome(item) for item in shown] or ["blind"]
    counts = f'tests="{len(kinds)}" failures="{kinds.count("bad")}" errors="{kinds.count("blind")}"'
    room = MOST_CHARS // max(len(shown), 1) * 4 // 5
    cases = [line for item in shown for line in _case(item, look, room)]
    if not shown:
        cases = ['<testcase classname="compilediag.gate" name="no lane">']
        cases += ['<error message="nothing was judged, which is no pass"/>', "</testcase>"]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="compilediag gate" {counts}>',
        f'<testsuite name="compilediag gate" {counts}>',
        *cases,
        "</testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _case(judgement: Judgement, look: RenderOptions, room: int) -> list[str]:
    kind = outcome(judgement)
    lane = _safe(judgement.lane, look, 300)
    lines = [f'<testcase classname="compilediag.gate" name="{lane}">']
    element = _ELEMENT.get(kind)
    if element is not None:
        message = _safe(headline(judgement), look, 300)
        told = _failures(judgement, look, room)
        lines.append(f'<{element} message="{message}" type="compilediag.gate">{told}</{element}>')
    lines.append(f"<system-out>{_rest(judgement, look, room // 4)}</system-out>")
    return [*lines, "</testcase>"]


def _failures(judgement: Judgement, look: RenderOptions, room: int) -> str:
    """Every failure of the lane, as long as there is room."""
    told: list[str] = []
    for number, item in enumerate(judgement.failures, 1):
        lines = [f"{number}. {look.text(title(item), 200)}", *detail(item, look, TEXT_CHARS)]
        text = escape("\n   ".join(inert(line) for line in lines))
        room -= len(text)
        if room < 0:
            more = len(judgement.failures) - number + 1
            told.append(f"{more:,} more: compilediag gate --format json")
            break
        told.append(text)
    if judgement.strict:
        better = [f"better: {_safe(item.message, look)}" for item in judgement.improvements[:50]]
        told += better if sum(map(len, better)) <= room else []
        told += [f"a strict gate fails until the baseline holds it: {UPDATE}"]
    return "\n".join(told)


def _rest(judgement: Judgement, look: RenderOptions, room: int) -> str:
    """What does not fail: against what was judged, what is known, better or worth a notice."""
    told = [f"{headline(judgement)}; against {against(judgement) or 'nothing'}"]
    told += [f"known: {short(item)}" for item in judgement.known[:50]]
    told += [f"better: {item.message}" for item in judgement.improvements[:50]]
    told += [f"notice: {text}" for text in judgement.notices[:50]]
    lines: list[str] = []
    for text in told:
        line = escape(inert(look.text(text, TEXT_CHARS)))
        room -= len(line)
        if room < 0:
            return "\n".join([*lines, "more: compilediag gate --format json"])
        lines.append(line)
    return "\n".join(lines)


def _safe(text: str, look: RenderOptions, limit: int = TEXT_CHARS) -> str:
    return escape(look.text(text, limit))
