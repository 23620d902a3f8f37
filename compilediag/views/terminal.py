"""Documents on a terminal: wrapped sentences, plain tables, lists; numbers to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from compilediag.views.document import (
    MAX_PARTS,
    Block,
    Card,
    Listing,
    Overview,
    Paragraph,
    Preformatted,
    Table,
    Text,
)
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
    return list(block.lines) if isinstance(block, Preformatted) else render_card(block, options)


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
    lines = [options.paint(_render_row(head, widths, right, options), "dim")]
    lines += [_render_row(row, widths, right, options) for row in rows]
    return lines + format_more(hidden, ": compilediag show --json")


def _render_row(
    row: Sequence[str], widths: Sequence[int], right: Sequence[bool], options: RenderOptions
) -> str:
    cells: list[str] = []
    for cell, width, is_right in zip(row, widths, right, strict=True):
        shown = options.truncate(cell, width, keep_end=True)
        filled = pad(shown, width)
        cells.append(filled[len(shown) :] + shown if is_right else filled)
    return (GAP + GAP.join(cells)).rstrip()


# --- findings ------------------------------------------------------------------------------------


def render_card(card: Card, options: RenderOptions) -> list[str]:
    """Render one finding on a screen: title; file and line, when, who writes it; what else the same
    common cause changed; what to change, and what that costs; without an edit."""
    lines = render_title(card, options)
    # For what is in a library the program's own line comes first, and the library's behind it on a
    # line of its own.
    also = f"and from {pluralize(card.other_lines, 'other line')}" if card.other_lines > 0 else ""
    parts = [card.changed, card.line, also, card.when, card.passed]
    below = card.calls and card.library
    parts += [] if below else [*card.written, *card.library]
    lines += options.wrap_parts([text for text in parts if text], INDENT)
    if below:
        behind = [*card.library, *card.written]
        lines += options.wrap_parts(behind, f"{INDENT}at ", f"{INDENT}   ")
    if card.parts:
        left = len(card.parts) - MAX_PARTS
        named = [*card.parts[:MAX_PARTS], *([f"+{left} more"] if left > 0 else [])]
        lines += options.wrap(f"with {', '.join(named)}", INDENT, INDENT + "  ")
    joined = f"{card.fix} ({card.caveat})" if card.caveat else card.fix
    fix = options.wrap(joined, f"{INDENT}{card.label}: ", style="cyan")
    if card.caveat and (len(fix) > 1 or "(" in card.caveat):
        fix = options.wrap(card.fix, f"{INDENT}{card.label}: ", style="cyan")
        fix += options.wrap(card.caveat, f"{INDENT}note: ", style="cyan")
    lines += fix
    # The change that is proved to remove it and what it did, else what should: one line, however
    # long, to be copied.
    if card.proof is None:
        settings = card.settings[:1]
        lines += [options.paint(f"{INDENT}no edit: {setting}", "cyan") for setting in settings]
        return lines
    lines.append(options.paint(f"{INDENT}proved: {card.proof.change}", "green"))
    seen = [card.proof.effect, pluralize(card.proof.runs, "run")]
    return lines + options.wrap_parts([text for text in seen if text], f"{INDENT}        ")


def format_change(card: Card, options: RenderOptions) -> str:
    """Format the variable and how it changed: `pos.pe  [1, 16] → [8, 16]`."""
    if card.before is None:
        return card.variable
    others = " (and others)" if card.others else ""
    return f"{card.variable}  {card.before} {options.arrow} {card.after}{others}".strip()


def render_title(card: Card, options: RenderOptions) -> list[str]:
    """Render line one: number, code, title, variable, its change; its cost at the right edge."""
    prefix = f"{card.number:>3}  {card.rule} "
    room = options.width - len(prefix) - (len(card.cost) + 2 if card.cost else 0)
    detail = format_change(card, options)
    joined = f"{card.title}: {detail}" if detail else card.title
    styled = f"{options.paint(f'{card.number:>3}', 'bold')}  "
    styled += options.paint(card.rule, _SEVERITY[card.severity]) + " "
    if measure_width(joined) <= room:
        line = f"{pad(joined, room)}  {card.cost}" if card.cost else joined
        return [styled + options.paint(card.title, "bold") + line[len(card.title) :]]
    # Too long for one line: the change gets its own, where more of it can be read.
    head = pad(options.truncate(card.title, room), room) + (f"  {card.cost}" if card.cost else "")
    return [styled + options.paint(head, "bold"), *options.wrap(detail, INDENT)[:2]]
