"""A gate for people: on a terminal the verdict first, then every failure, what is known, what is
better; as Markdown for a job's summary, never longer than GitHub takes.

In Markdown names, guards and sentences of the target stand in code spans, in which nothing is
markup, a mention or a link.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.diagnosis.codes import REGISTER
from compilediag.views import markdown
from compilediag.views.document import Block, Code, Linked, Listing, Paragraph, Table, Text
from compilediag.views.format import count, more, seconds
from compilediag.views.gate.messages import (
    LINE_CHARS,
    UPDATE,
    against,
    changed_counts,
    explain,
    headline,
    in_turn,
    inert,
    kind_of,
    often,
    outcome,
    place,
    short,
    title,
    worst_first,
)
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import INDENT
from compilediag.views.text import display_width

MAX_IN_FULL = 5
"""Failures of a lane that are shown with every detail; the others get a line each."""
MAX_LINES = 50
"""Of failures shown in one line; the other formats list them all."""
MAX_IMPROVEMENTS = 5
MAX_NOTICES = 10
MAX_LANES = 20
_STYLE = {"good": "green", "bad": "red", "blind": "yellow"}
MAX_BYTES = 1_000_000
"""GitHub refuses a step's summary of more than 1 MiB, whole."""
FAILURE_BYTES = 600_000
"""Of the rows of failures, which come before everything else about a lane."""
MAX_COUNTS = 20
MAX_CHARS = 300
"""Of a message, guard or fix."""


def draw(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Every lane, those that did not pass first; the first line is the verdict."""
    ordered = worst_first(judgements)
    lines = _overall(ordered, options)
    for judgement in ordered[:MAX_LANES]:
        lines += [*([""] if lines else []), *_lane_lines(judgement, options)]
    hidden = more(len(ordered) - MAX_LANES, " lanes: --format json", "")
    lines += ["", *hidden] if hidden else []
    return "\n".join(inert(line.rstrip()) for line in lines) + "\n"


def _overall(judgements: Sequence[Judgement], options: RenderOptions) -> list[str]:
    """A line on all lanes where there is not exactly one."""
    if len(judgements) == 1:
        return []
    if not judgements:
        sentence = f"{options.sign('blind')} nothing was judged, which is no pass"
        return [options.styled(sentence, "yellow")]
    kinds = [outcome(item) for item in judgements]
    bad = len(kinds) - kinds.count("good")
    sentence = "passed" if not bad else f"failed for {bad} of them"
    worst = "bad" if "bad" in kinds else kinds[0]
    line = f"{options.sign(worst)} gate of {count(len(kinds), 'lane')}: {sentence}"
    return [options.styled(line, _STYLE[worst])]


def _lane_lines(judgement: Judgement, options: RenderOptions) -> list[str]:
    lines = [
        *_head(judgement, options),
        *_failures(judgement.failures, options),
        *_known(judgement.known, options),
        *_improvements(judgement, options),
    ]
    for notice in judgement.notices[:MAX_NOTICES]:
        lines += options.wrap(options.text(notice), f"  {options.sign('warn')} ", "    ")
    hidden = len(judgement.notices) - MAX_NOTICES
    return lines + more(hidden, " notices: --format json", "    ")


def _head(judgement: Judgement, options: RenderOptions) -> list[str]:
    kind = outcome(judgement)
    sentence = f"{options.sign(kind)} {options.text(headline(judgement))}"
    lane = f"lane {options.text(judgement.lane, 120)}"
    standard = against(judgement)
    if standard:
        lane += f" against {options.text(standard, 300)}"
    if display_width(sentence) + 3 + display_width(lane) <= options.width:
        lines = [f"{options.styled(sentence, _STYLE[kind])}   {options.styled(lane, 'dim')}"]
    else:
        first, rest = sentence.partition(" ")[::2]
        lines = options.wrap(rest, f"{first} ", style=_STYLE[kind])
        lines += options.wrap(lane, "  ", "    ", style="dim")
    changed = [options.text(item) for item in changed_counts(judgement, options.arrow)]
    return lines + options.wrap_items(changed, "  ", style="dim")


def _failures(failures: Sequence[Item], options: RenderOptions) -> list[str]:
    lines: list[str] = []
    for number, item in enumerate(failures[:MAX_IN_FULL], 1):
        lines += ["", *_in_full(number, item, options)]
    rest = failures[MAX_IN_FULL:]
    lines += [""] if rest else []
    for number, item in enumerate(rest[:MAX_LINES], MAX_IN_FULL + 1):
        where = place(item, options, 40) or options.text(item.message, 200)
        sentence = f"{number:>3}  {options.text(title(item), 200)}{options.dot}{where}"
        lines.append(options.truncate(sentence, options.width))
    return lines + more(len(rest) - MAX_LINES, ": compilediag gate --format json", INDENT)


def _in_full(number: int, item: Item, options: RenderOptions) -> list[str]:
    """What failed; what is so; where, how often and its seconds; the guard; what to change."""
    head = options.truncate(f"{number:>3}  {options.text(title(item), 200)}", options.width)
    cost = f"cost {seconds(item.cost_s)}" if item.cost_s is not None else ""
    facts = (place(item, options, 60), often(item, options.arrow), cost, explain(item))
    lines = [
        options.styled(head, "bold"),
        *options.wrap(options.text(item.message), INDENT),
        *options.wrap_items([options.text(fact) for fact in facts if fact], INDENT),
    ]
    if item.guard and item.guard not in item.message:
        lines += options.wrap(options.text(item.guard), f"{INDENT}guard: ")
    if item.fix:
        lines += options.wrap(options.text(item.fix), f"{INDENT}fix: ", style="cyan")
    if item.proved:
        proved = options.text(item.proved, LINE_CHARS)
        lines += options.wrap(proved, f"{INDENT}proved: ", style="green")
    return lines


def _known(known: Sequence[Item], options: RenderOptions) -> list[str]:
    """All that the baseline allows, in one line."""
    if not known:
        return []
    sentence = ", ".join(options.text(short(item), 60) for item in known[:20])
    line = f"  {len(known):,} known and allowed: {sentence}"
    return ["", options.styled(options.truncate(line, options.width), "dim")]


def _improvements(judgement: Judgement, options: RenderOptions) -> list[str]:
    better = judgement.improvements
    if not better:
        return []
    lines = ["", options.styled(f"  better than the baseline ({len(better):,}):", "green")]
    for item in better[:MAX_IMPROVEMENTS]:
        lines += options.wrap(options.text(item.message, 300), "    ", "      ")
    lines += more(len(better) - MAX_IMPROVEMENTS, indent="    ")
    hint = "a strict gate fails until the baseline holds it" if judgement.strict else "keep it"
    return lines + options.wrap(f"{hint}: {UPDATE}", "    ", "      ")


# --- Markdown ------------------------------------------------------------------------------------


def draw_markdown(judgements: Sequence[Judgement], options: RenderOptions) -> str:
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
        room -= len(markdown.row_of(row).encode()) + 1
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
    sign = markdown.SIGNS[outcome(judgement)]
    return f"### {sign} {headline(judgement)}\n\n{markdown.render(blocks)}"
