"""Documents on a terminal: wrapped sentences, plain tables, lists; numbers to the right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import compress

from compilediag.views.document import Block, Card, Listing, Overview, Paragraph, Table, Text
from compilediag.views.format import format_more, pluralize
from compilediag.views.style import RenderOptions
from compilediag.views.text import measure_width, pad

GAP = "  "
WIDE = 80
"""Columns of a terminal that has room for every column of a table."""
BAR_CHARS = 30
INDENT = "     "
MAX_LISTED = 30
"""Of one list."""

MAX_ADVICE = 2
"""Lines of advice below a finding, on a narrow terminal more; `explain` has all of it."""
_CLAUSE = re.compile(r"; |, (?=(?:or|but|because|which|so that) )|(?<!with): (?=[a-z])| \(")
_SEVERITY = {"error": "red", "warning": "yellow", "info": "dim"}


def render(blocks: Iterable[Block], options: RenderOptions) -> str:
    """Render blocks as text with a newline at its end."""
    return "\n".join(line.rstrip() for line in render_lines(blocks, options)) + "\n"


def render_overview(overview: Overview, options: RenderOptions) -> str:
    """Render the notes, the sentence, and the blocks of all sections."""
    lines = [line for note in overview.notes for line in options.wrap(note, "", "  ", style="bold")]
    # A sentence is broken between its parts where that is possible.
    lines += options.wrap_parts(overview.sentence.split(options.dot), style="bold")
    return "\n".join([*lines, "", *render_lines(overview.blocks, options)]) + "\n"


def render_lines(blocks: Iterable[Block], options: RenderOptions) -> list[str]:
    """Render the lines of blocks, an empty one between two."""
    drawn = [_render_block(block, options) for block in blocks]
    return [line for lines in drawn for line in ("", *lines)][1:]


def _render_block(block: Block, options: RenderOptions) -> list[str]:
    if isinstance(block, Paragraph):
        head = f"{block.label}: " if block.label else ""
        lines = options.wrap(head + join_parts(block.text), style=block.style) if block.text else []
        return lines + _wrap_notes(block.notes, options)
    if isinstance(block, Listing):
        lines = [options.paint(f"{block.title} ({len(block.items)})", "bold")]
        lines += _wrap_notes([join_parts(text) for text in block.items[:MAX_LISTED]], options)
        return lines + format_more(len(block.items) - MAX_LISTED, block.more)
    if isinstance(block, Table):
        title = options.wrap(block.title, "", "  ") if block.title else []
        return [*title, *render_table(block, options), *_wrap_notes(block.notes, options)]
    return list(block.lines)


def join_parts(text: Text) -> str:
    """Join the parts of a text without markup."""
    return text if isinstance(text, str) else "".join(text)


def _wrap_notes(notes: Iterable[str], options: RenderOptions) -> list[str]:
    return [line for note in notes for line in options.wrap(note, "  ", "    ")]


def render_table(made: Table, options: RenderOptions) -> list[str]:
    """Render the lines of a table: columns as wide as their widest cell; the head is dim."""
    hidden = 0 if made.limit is None else len(made.rows) - made.limit
    head = list(made.head)
    rows = [[join_parts(cell) for cell in row] for row in made.rows]
    if made.bars:
        block = "#" if options.ascii_only else "█"
        head.append("")
        rows = [
            [*row, block * round(BAR_CHARS * share)]
            for row, share in zip(rows, made.shares or [0.0] * len(rows), strict=True)
        ]
    if options.width < WIDE and made.wide_only:
        visible = [name not in made.wide_only for name in head]
        head, *rows = (list(compress(row, visible)) for row in (head, *rows))
    rows = rows[: made.limit]
    widths = [max(measure_width(row[index]) for row in (head, *rows)) for index in range(len(head))]
    over = sum(widths) + len(GAP) * len(widths) - options.width
    if over > 0 and made.shrink:
        index = head.index(made.shrink)
        widths[index] = max(widths[index] - over, len(made.shrink), 8)
    right = [name in made.right for name in head]
    made_rows = [_render_row(row, widths, right, made, options) for row in (head, *rows)]
    lines = [options.paint(made_rows[0], "dim"), *made_rows[1:]]
    return lines + format_more(hidden, ": compilediag show --json")


def _render_row(
    row: Sequence[str],
    widths: Sequence[int],
    right: Sequence[bool],
    made: Table,
    options: RenderOptions,
) -> str:
    cells: list[str] = []
    for cell, width, is_right in zip(row, widths, right, strict=True):
        shown = options.truncate(cell, width, keep_end=not made.keep_start)
        filled = pad(shown, width)
        cells.append(filled[len(shown) :] + shown if is_right else filled)
    return (GAP + GAP.join(cells)).rstrip()


# --- findings ------------------------------------------------------------------------------------


def render_card(card: Card, options: RenderOptions, *, whole: bool = False) -> list[str]:
    """Render one finding on a screen: what happened; the line with the history of its value, and
    who changed it; what to change, in two lines, or `whole`."""
    lines = render_title(card, options)
    others = card.other_lines
    count = pluralize(len(others), "other line")
    also = f"and from {count if others[1:] else others[0]}" if others else ""
    below = card.calls and card.library
    parts = [card.line, also]
    if card.excerpt.place:  # the source says the rest
        own = card.line.startswith(card.excerpt.place)
        parts = [card.excerpt.place, also, "" if own else f"guarded at {card.line}"]
    parts += [] if below else card.library
    lines += options.wrap_parts([text for text in parts if text], INDENT)
    if below:
        lines += options.wrap_parts(card.library, f"{INDENT}at ", f"{INDENT}   ")
    lines += render_excerpt(card, options)
    changed = next((line.text.strip() for line in card.change.lines if line.blamed), "")
    if changed:
        text = f"{card.changed or f'changed at {card.change.place}'}: {changed}"
        lines.append(INDENT + options.truncate(text, options.width - len(INDENT)))
    elif who := card.changed or next(iter(card.written), ""):
        lines += options.wrap(who, INDENT)
    lines += options.wrap(card.relation, INDENT) if card.relation else []
    if card.proof is not None:
        lines.append(options.paint(f"{INDENT}proved: {card.proof.change}", "green"))
        seen = [card.proof.effect, pluralize(card.proof.runs, "run")]
        return lines + options.wrap_parts([text for text in seen if text], f"{INDENT}        ")
    joined = f"{card.fix} ({card.caveat})" if card.caveat else card.fix
    label = f"{INDENT}{card.label}: "
    advice = options.wrap(joined, label, style="cyan")  # a recipe however long, to be copied
    most = MAX_ADVICE * max(1, WIDE // options.width)
    if len(advice) > most and card.label != "fix" and not whole:
        # Whole clauses, as many as fit; the first one in a line more.
        more = f" (explain {card.number})"
        clauses = _drop_clauses(card.fix)
        tries = [options.wrap(text + more, label, style="cyan") for text in clauses]
        advice = next((lines for lines in tries if len(lines) <= most), tries[-1])
        while len(advice) > most + 1 and clauses[-1]:
            clauses[-1] = clauses[-1][:-4].rstrip()
            advice = options.wrap(clauses[-1] + options.ellipsis + more, label, style="cyan")
    settings = card.settings[:1] if whole else ()
    return [*lines, *advice, *(options.paint(f"{INDENT}no edit: {x}", "cyan") for x in settings)]


def _drop_clauses(advice: str) -> list[str]:
    """List an advice, and what is left of it without its last clauses, the longest first."""
    shorter = (advice[: found.start()] for found in _CLAUSE.finditer(advice))
    whole = [text for text in shorter if text.count("(") == text.count(")")]
    return [advice, *reversed(whole)]


def render_excerpt(card: Card, options: RenderOptions) -> list[str]:
    """Render the line, the one above, and what the value was; without a source the values."""
    lines = card.excerpt.lines
    at = next((n for n, line in enumerate(lines) if line.blamed), None)
    if at is None:
        return options.wrap(card.history, INDENT, style="dim") if card.history else []
    shown = [line for line in lines[max(0, at - 1) : at + 1] if line.blamed or line.text.strip()]
    margin = min(len(line.text) - len(line.text.lstrip()) for line in shown)
    digits = len(str(shown[-1].number))
    drawn: list[str] = []
    for line in shown:
        mark = options.marker if line.blamed else " " * len(options.marker)
        text = f"   {mark} {line.number:>{digits}} {options.bar} {line.text[margin:]}"
        drawn.append(
            options.paint(options.truncate(text, options.width), "" if line.blamed else "dim")
        )
    if card.history:
        indent = len(shown[-1].text) - len(shown[-1].text.lstrip()) - margin
        gutter = " " * (5 + digits + 1)
        text = f"{gutter}{options.bar} {' ' * indent}{card.history}"
        drawn.append(options.paint(options.truncate(text, options.width), "yellow"))
    return drawn


def render_title(card: Card, options: RenderOptions) -> list[str]:
    """Render what happened, and its cost, time and key at the right edge or on their own line."""
    number = f"{card.number:>3}  "
    facts = options.dot.join(text for text in (card.cost, card.when) if text)
    right = f"{facts}  {card.key}" if facts else card.key
    styled = options.paint(f"{card.number:>3}", "bold") + "  "
    room = options.width - len(number)
    painted = options.paint(right, _SEVERITY[card.severity])
    if measure_width(card.sentence) + 2 + measure_width(right) <= room:
        gap = " " * (room - measure_width(card.sentence) - measure_width(right))
        return [styled + options.paint(card.sentence, "bold") + gap + painted]
    head = options.wrap(card.sentence, number)
    if head[2:]:
        head = [head[0], options.truncate(f"{head[1]} {head[2].strip()}", options.width)]
    lines = [styled + options.paint(head[0][len(number) :], "bold")]
    lines += [options.paint(line, "bold") for line in head[1:]]
    return lines + options.wrap_parts([text for text in (facts, card.key) if text], INDENT)
