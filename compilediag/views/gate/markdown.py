"""A job summary in Markdown: the counts and every failure, never longer than GitHub takes.

Names, guards and sentences of the target stand in code spans, in which nothing is markup, a
mention or a link.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.diagnosis.codes import REGISTER
from compilediag.project_urls import rule_page
from compilediag.views.format import count, seconds
from compilediag.views.gate.messages import (
    LINE_CHARS,
    UPDATE,
    against,
    explain,
    headline,
    in_turn,
    kind_of,
    often,
    outcome,
    place,
    short,
    worst_first,
)
from compilediag.views.markdown import code
from compilediag.views.style import RenderOptions

MAX_BYTES = 1_000_000
"""GitHub refuses a step's summary of more than 1 MiB, whole."""
FAILURE_BYTES = 600_000
"""Of the rows of failures, which come before everything else about a lane."""
MAX_LINES = 20
_SIGN = {"bad": "❌", "good": "✅", "blind": "❔"}
_HEAD = ["| # | what | why | where | how often | cost | fix |", "|--:|---|---|---|---|--:|---|"]


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Every lane under its verdict; what is cut is counted, with where to find it."""
    ordered = worst_first(judgements)
    rows, left = _rows(ordered, options)
    lines = [] if judgements else ["### ❔ nothing was judged, which is no pass"]
    room = MAX_BYTES
    for index, judgement in enumerate(ordered):
        sentence = "\n".join(_lane(judgement, rows[index], options))
        room -= len(sentence.encode()) + 1
        if room < 0:
            more = count(len(ordered) - index, "more lane")
            lines += [f"**{more}**: `compilediag gate --format json` has them all.", ""]
            break
        lines.append(sentence)
    if left:
        more = count(left, "more failure")
        lines += [f"**{more}**: `compilediag gate --format json` has them all.", ""]
    return "\n".join(lines) + "\n"


def _rows(judgements: Sequence[Judgement], options: RenderOptions) -> tuple[list[list[str]], int]:
    """The rows of each lane's failures, as far as there is room, and how many are left out."""
    rows: list[list[str]] = [[] for _ in judgements]
    places = {id(judgement): index for index, judgement in enumerate(judgements)}
    failures = in_turn(judgements)
    room = FAILURE_BYTES
    for number, (judgement, item) in enumerate(failures):
        own = rows[places[id(judgement)]]
        row = _row(len(own) + 1, item, options)
        room -= len(row.encode()) + 1
        if room < 0:
            return rows, len(failures) - number
        own.append(row)
    return rows, 0


def _row(number: int, item: Item, options: RenderOptions) -> str:
    why = code(item.message)
    if item.guard and item.guard not in item.message:
        why += f" guard: {code(item.guard)}"
    where = code(place(item, options)) if item.file else ""
    cost = seconds(item.cost_s) if item.cost_s is not None else ""
    fix = code(item.fix) if item.fix else ""
    if item.proved:
        fix += f"; proved: {code(item.proved, limit=LINE_CHARS)}"
    more = explain(item)
    fix += f" (`{more}`)" if more else ""
    cells = (str(number), _what(item), why, where, often(item), cost, fix)
    return "| " + " | ".join(cells) + " |"


def _what(item: Item) -> str:
    """The code, with a link to its page where it is one of ours, and what it is of what."""
    known = REGISTER.get(item.rule)
    named = f"{_linked(known.code)} " if known is not None else ""
    if not named and item.rule and item.kind in ("count", "limit"):
        named = f"{code(item.rule.replace('_', ' '))} "
    subject = item.variable or item.function
    return f"{named}{kind_of(item)}" + (f" {code(subject)}" if subject else "")


def _linked(rule: str) -> str:
    page = rule_page(rule)
    return rule if page is None else f"[{rule}]({page})"


def _lane(judgement: Judgement, rows: list[str], options: RenderOptions) -> list[str]:
    lines = [f"### {_SIGN[outcome(judgement)]} {headline(judgement)}", ""]
    standard = against(judgement)
    sentence = f"lane {_line(judgement.lane)}" + (f" against {_line(standard)}" if standard else "")
    lines += [f"{sentence}, receipt {_line(judgement.receipt_id)}", ""]
    if rows:
        lines += [*_HEAD, *rows, ""]
    if judgement.improvements:
        better = [_line(item.message) for item in judgement.improvements]
        lines += [*_list("Better than the baseline", better), f"Keep it: `{UPDATE}`", ""]
    if judgement.counts and judgement.baseline:
        lines += _counts(judgement)
    lines += _list("Known and allowed", [_known(item) for item in judgement.known])
    return [*lines, *_list("Notices", [_line(text) for text in judgement.notices])]


def _counts(judgement: Judgement) -> list[str]:
    lines = ["| count | before | after |", "|---|--:|--:|"]
    for item in judgement.counts[:MAX_LINES]:
        name, after = code(item.name.replace("_", " ")), f"{item.after:,}"
        lines.append(f"| {name} | {item.before:,} | {f'**{after}**' if item.change else after} |")
    return [*lines, ""]


def _known(item: Item) -> str:
    return _line(short(item)) + (f": {_line(item.reason)}" if item.reason else ": no reason given")


def _line(text: str) -> str:
    """A code span outside a table, where a `|` ends nothing."""
    return code(text, cell=False)


def _list(name: str, parts: Sequence[str]) -> list[str]:
    """A list under its name; nothing where it is empty."""
    if not parts:
        return []
    lines = [f"**{name} ({len(parts):,})**", "", *(f"- {text}" for text in parts[:MAX_LINES])]
    lines += [f"- and {len(parts) - MAX_LINES:,} more"] if len(parts) > MAX_LINES else []
    return [*lines, ""]
