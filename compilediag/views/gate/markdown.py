"""A job summary in Markdown: the counts and every failure, never longer than GitHub takes.

Names, guards and sentences of the target stand in code spans, in which nothing is markup, a
mention or a link.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.diagnosis.codes import REGISTER
from compilediag.views.document import Block, Code, Linked, Listing, Paragraph, Table, Text
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
from compilediag.views.markdown import SIGNS, row_of
from compilediag.views.markdown import render as render_blocks
from compilediag.views.style import RenderOptions

MAX_BYTES = 1_000_000
"""GitHub refuses a step's summary of more than 1 MiB, whole."""
FAILURE_BYTES = 600_000
"""Of the rows of failures, which come before everything else about a lane."""
MAX_COUNTS = 20
MAX_CHARS = 300
"""Of a message, guard or fix."""


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Every lane under its verdict; what is cut is counted, with where to find it."""
    ordered = worst_first(judgements)
    rows, left = _rows(ordered, options)
    lines = [] if judgements else ["### ❔ nothing was judged, which is no pass"]
    room = MAX_BYTES
    for index, judgement in enumerate(ordered):
        sentence = _lane(judgement, rows[index])
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


_Rows = list[tuple[Text, ...]]


def _rows(judgements: Sequence[Judgement], options: RenderOptions) -> tuple[list[_Rows], int]:
    """The rows of each lane's failures, as far as there is room, and how many are left out."""
    rows: list[_Rows] = [[] for _ in judgements]
    places = {id(judgement): index for index, judgement in enumerate(judgements)}
    failures = in_turn(judgements)
    room = FAILURE_BYTES
    for number, (judgement, item) in enumerate(failures):
        own = rows[places[id(judgement)]]
        row = _row(len(own) + 1, item, options)
        room -= len(row_of(row).encode()) + 1
        if room < 0:
            return rows, len(failures) - number
        own.append(row)
    return rows, 0


def _row(number: int, item: Item, options: RenderOptions) -> tuple[Text, ...]:
    why = [Code(options.text(item.message, MAX_CHARS))]
    if item.guard and item.guard not in item.message:
        why += [" guard: ", Code(options.text(item.guard, MAX_CHARS))]
    where = (Code(place(item, options)),) if item.file else ()
    cost = seconds(item.cost_s) if item.cost_s is not None else ""
    fix: list[str] = [Code(options.text(item.fix, MAX_CHARS))] if item.fix else []
    fix += ["; proved: ", Code(options.text(item.proved, LINE_CHARS))] if item.proved else []
    fix += [" (", Code(explain(item)), ")"] if explain(item) else []
    return str(number), _what(item), tuple(why), where, often(item), cost, tuple(fix)


def _what(item: Item) -> tuple[str, ...]:
    """The code, with a link to its page where it is one of ours, and what it is of what."""
    subject = item.variable or item.function
    known = REGISTER.get(item.rule)
    named: tuple[str, ...] = ()
    if known is not None:
        named = (Linked(known.code), " ")
    elif item.rule and item.kind in ("count", "limit"):
        named = (Code(item.rule.replace("_", " ")), " ")
    return (*named, kind_of(item), *((" ", Code(subject)) if subject else ()))


def _lane(judgement: Judgement, rows: Sequence[Sequence[Text]]) -> str:
    standard = against(judgement)
    lane = ("lane ", Code(judgement.lane), *((" against ", Code(standard)) if standard else ()))
    blocks: list[Block] = [Paragraph((*lane, ", receipt ", Code(judgement.receipt_id)))]
    if rows:
        head = ("#", "what", "why", "where", "how often", "cost", "fix")
        blocks.append(Table(head, rows, right=("#", "cost")))
    if judgement.improvements:
        better = [Code(item.message) for item in judgement.improvements]
        blocks.append(Listing("Better than the baseline", better))
        blocks.append(Paragraph(("Keep it: ", Code(UPDATE))))
    if judgement.counts and judgement.baseline:
        counts = [
            (Code(item.name.replace("_", " ")), f"{item.before:,}", f"{item.after:,}")
            for item in judgement.counts[:MAX_COUNTS]
        ]
        blocks.append(Table(("count", "before", "after"), counts, right=("before", "after")))
    known = [
        (Code(short(item)), ": ", Code(item.reason) if item.reason else "no reason given")
        for item in judgement.known
    ]
    lists = (("Known and allowed", known), ("Notices", [Code(text) for text in judgement.notices]))
    blocks += [Listing(name, items) for name, items in lists if items]
    sign = SIGNS[outcome(judgement)]
    return f"### {sign} {headline(judgement)}\n\n{render_blocks(blocks)}"
