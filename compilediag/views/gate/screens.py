"""Formats of a gate for people: on a terminal the verdict first, then every failure, what is known,
what is better; as Markdown for a job's summary, never longer than GitHub takes.

In Markdown names, guards and sentences of the target stand in code spans, in which nothing is
markup, a mention or a link.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.gate.judgement import Judgement
from compilediag.diagnosis.codes import REGISTER
from compilediag.views import markdown
from compilediag.views.document import Block, Code, Linked, Listing, Paragraph, Table, Text
from compilediag.views.format import count, more, seconds
from compilediag.views.gate.messages import (
    LINE_CHARS,
    UPDATE,
    against,
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
"""Failures of a configuration shown with every detail; the others get a line each."""
MAX_LINES = 50
"""Failures shown in one line; the other formats list them all."""
MAX_IMPROVEMENTS = 5
MAX_NOTICES = 10
MAX_LANES = 20
_STYLE = {"good": "green", "bad": "red", "blind": "yellow"}
MAX_BYTES = 1_000_000
"""GitHub refuses a step's summary of more than 1 MiB, whole."""
FAILURE_BYTES = 600_000
"""Size of the rows of failures, which come before all else about a configuration."""
MAX_COUNTS = 20
MAX_CHARS = 300
"""Longest message, guard or fix."""


def draw(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render every configuration, those that did not pass first; line one is the verdict."""
    ordered = worst_first(judgements)
    lines: list[str] = []
    if not ordered:
        sentence = f"{options.sign('blind')} nothing was judged, which is no pass"
        lines.append(options.styled(sentence, "yellow"))
    elif len(ordered) > 1:
        kinds = [outcome(item) for item in ordered]
        bad = len(kinds) - kinds.count("good")
        sentence = "passed" if not bad else f"failed for {bad} of them"
        worst = "bad" if "bad" in kinds else kinds[0]
        line = f"{options.sign(worst)} gate of {count(len(kinds), 'lane')}: {sentence}"
        lines.append(options.styled(line, _STYLE[worst]))
    for judgement in ordered[:MAX_LANES]:
        lines += [*([""] if lines else []), *_head(judgement, options)]
        # What failed; what is so; where, how often and its seconds; the guard; what to change.
        # Those beyond `MAX_IN_FULL` get a line each.
        failures = judgement.failures
        for number, item in enumerate(failures[: MAX_IN_FULL + MAX_LINES], 1):
            head = f"{number:>3}  {options.text(title(item), 200)}"
            if number > MAX_IN_FULL:
                lines += [""] if number == MAX_IN_FULL + 1 else []
                where = place(item, options, 40) or options.text(item.message, 200)
                lines.append(options.truncate(f"{head}{options.dot}{where}", options.width))
                continue
            cost = f"cost {seconds(item.cost_s)}" if item.cost_s is not None else ""
            facts = (place(item, options, 60), often(item, options.arrow), cost, explain(item))
            lines += ["", options.styled(options.truncate(head, options.width), "bold")]
            lines += options.wrap(options.text(item.message), INDENT)
            lines += options.wrap_items([options.text(fact) for fact in facts if fact], INDENT)
            if item.guard and item.guard not in item.message:
                lines += options.wrap(options.text(item.guard), f"{INDENT}guard: ")
            if item.fix:
                lines += options.wrap(options.text(item.fix), f"{INDENT}fix: ", style="cyan")
            if item.proved:
                proved = options.text(item.proved, LINE_CHARS)
                lines += options.wrap(proved, f"{INDENT}proved: ", style="green")
        hidden = len(failures) - MAX_IN_FULL - MAX_LINES
        lines += more(hidden, ": compilediag gate --format json", INDENT)
        lines += _what_is_right(judgement, options)
    hidden = more(len(ordered) - MAX_LANES, " lanes: --format json", "")
    lines += ["", *hidden] if hidden else []
    return "\n".join(inert(line.rstrip()) for line in lines) + "\n"


def _head(judgement: Judgement, options: RenderOptions) -> list[str]:
    kind = outcome(judgement)
    sentence = f"{options.sign(kind)} {options.text(headline(judgement))}"
    standard = options.text(against(judgement), 300)
    lane = f"lane {options.text(judgement.lane, 120)}" + (standard and f" against {standard}")
    if display_width(sentence) + 3 + display_width(lane) <= options.width:
        lines = [f"{options.styled(sentence, _STYLE[kind])}   {options.styled(lane, 'dim')}"]
    else:
        first, rest = sentence.partition(" ")[::2]
        lines = options.wrap(rest, f"{first} ", style=_STYLE[kind])
        lines += options.wrap(lane, "  ", "    ", style="dim")
    changed = [
        options.text(f"{_plain(each.name)} {each.before:,} {options.arrow} {each.after:,}")
        for each in judgement.counts
        if each.change
    ]
    return lines + options.wrap_items(changed, "  ", style="dim")


def _what_is_right(judgement: Judgement, options: RenderOptions) -> list[str]:
    """Render all that the baseline allows, in one line; what is better; the notices."""
    lines: list[str] = []
    if known := judgement.known:
        sentence = ", ".join(options.text(short(item), 60) for item in known[:20])
        line = f"  {len(known):,} known and allowed: {sentence}"
        lines += ["", options.styled(options.truncate(line, options.width), "dim")]
    if better := judgement.improvements:
        head = f"  better than the baseline ({len(better):,}):"
        lines += ["", options.styled(head, "green")]
        for item in better[:MAX_IMPROVEMENTS]:
            lines += options.wrap(options.text(item.message, 300), "    ", "      ")
        lines += more(len(better) - MAX_IMPROVEMENTS, indent="    ")
        hint = "a strict gate fails until the baseline holds it" if judgement.strict else "keep it"
        lines += options.wrap(f"{hint}: {UPDATE}", "    ", "      ")
    for notice in judgement.notices[:MAX_NOTICES]:
        lines += options.wrap(options.text(notice), f"  {options.sign('warn')} ", "    ")
    hidden = len(judgement.notices) - MAX_NOTICES
    return lines + more(hidden, " notices: --format json", "    ")


def _plain(name: str) -> str:
    return name.replace("_", " ")


# --- Markdown ------------------------------------------------------------------------------------


def draw_markdown(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render each configuration under its verdict; what is cut is counted, with where to find
    it."""
    ordered = worst_first(judgements)
    rows: dict[int, list[tuple[Text, ...]]] = {id(judgement): [] for judgement in ordered}
    failures = in_turn(ordered)
    left, room = 0, FAILURE_BYTES
    for number, (judgement, item) in enumerate(failures):
        own = rows[id(judgement)]
        # What it is of what, the code with a link to its page where it is one of ours; why,
        # where, how often, its cost, the fix.
        subject = item.variable or item.function
        known = REGISTER.get(item.rule)
        what: list[str] = []
        if known is not None:
            what = [Linked(known.code), " "]
        elif item.rule and item.kind in ("count", "limit"):
            what = [Code(_plain(item.rule)), " "]
        what += [kind_of(item), *([" ", Code(subject)] if subject else [])]
        why = [Code(options.text(item.message, MAX_CHARS))]
        if item.guard and item.guard not in item.message:
            why += [" guard: ", Code(options.text(item.guard, MAX_CHARS))]
        where = (Code(place(item, options)),) if item.file else ()
        cost = seconds(item.cost_s) if item.cost_s is not None else ""
        fix: list[str] = [Code(options.text(item.fix, MAX_CHARS))] if item.fix else []
        fix += ["; proved: ", Code(options.text(item.proved, LINE_CHARS))] if item.proved else []
        fix += [" (", Code(explain(item)), ")"] if explain(item) else []
        cells = (tuple(what), tuple(why), where, often(item), cost, tuple(fix))
        row = (str(len(own) + 1), *cells)
        room -= len(markdown.row_of(row).encode()) + 1
        if room < 0:
            left = len(failures) - number
            break
        own.append(row)
    lines = [] if judgements else ["### ❔ nothing was judged, which is no pass"]
    cut: list[str] = []
    room = MAX_BYTES
    for index, judgement in enumerate(ordered):
        sentence = _lane(judgement, rows[id(judgement)])
        room -= len(sentence.encode()) + 1
        if room < 0:
            cut.append(count(len(ordered) - index, "more lane"))
            break
        lines.append(sentence)
    cut += [count(left, "more failure")] if left else []
    for each in cut:
        lines += [f"**{each}**: `compilediag gate --format json` has them all.", ""]
    return "\n".join(lines) + "\n"


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
            (Code(_plain(item.name)), f"{item.before:,}", f"{item.after:,}")
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
