"""Documents as Markdown for pull requests, step summaries and issues.

All text that comes from the target stands in code spans, where GitHub renders no markup, mention
or link; a `|` is escaped because it would end a table's cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from compilediag.project_urls import get_rule_url
from compilediag.views.document import (
    LINE_BREAK,
    LINE_CHARS,
    Block,
    Code,
    Linked,
    Listing,
    Overview,
    Paragraph,
    Table,
    Text,
)
from compilediag.views.style import PLAIN

MAX_LISTED = 30
"""Of one list or table."""
SIGNS = {"bad": "❌", "good": "✅", "blind": "❔", "warn": "⚠️"}


def render(blocks: Iterable[Block]) -> str:
    """Render blocks with an empty line between two, and a newline at the end."""
    return "\n".join(line for block in blocks for line in (*_render_block(block), ""))


def render_overview(overview: Overview, sign: str = "") -> str:
    """Render notes, the sentence as a heading behind a sign, and the blocks of all sections."""
    lines = [line for note in overview.notes for line in (escape_prose(note), "")]
    heading = " ".join(filter(None, ("###", sign, escape_prose(overview.sentence))))
    return "\n".join([*lines, heading, "", render(overview.blocks)])


def _render_block(block: Block) -> Iterable[str]:
    if isinstance(block, Paragraph):
        label = f"**{block.label}:** " if block.label else ""
        yield from [label + render_text(block.text)] if block.text else []
    elif isinstance(block, Listing):
        if block.title:
            yield from (f"**{block.title} ({len(block.items)})**", "")
        yield from (f"- {render_text(text)}" for text in block.items[:MAX_LISTED])
        if len(block.items) > MAX_LISTED:
            yield f"- and {len(block.items) - MAX_LISTED} more"
    elif isinstance(block, Table):
        yield from [f"**{block.title}**", ""] if block.title else []
        yield from render_table(block)
    else:
        yield from wrap_in_fence("\n".join(block.lines), "text")
    notes = block.notes if isinstance(block, Paragraph | Table) else ()
    yield from (line for note in notes for line in ("", escape_prose(note)))


def render_table(made: Table) -> list[str]:
    """Render head, rule and rows."""
    rule = "|".join("--:" if name in made.right else "---" for name in made.head)
    return [f"| {' | '.join(made.head)} |", f"|{rule}|", *map(render_row, made.rows)]


def render_row(row: Sequence[Text]) -> str:
    """Render the cells of a row."""
    return f"| {' | '.join(render_text(cell, cell=True) for cell in row)} |"


def render_text(text: Text, *, cell: bool = False) -> str:
    """Render the parts of a text: ours as prose, the target's as code."""
    shown = ""
    for part in (text,) if isinstance(text, str) else text:
        if isinstance(part, Code):
            shown += quote_code(part, cell=cell, limit=LINE_CHARS)
        elif isinstance(part, Linked):
            page = get_rule_url(part)
            shown += part if page is None else f"[{part}]({page})"
        else:
            shown += "<br>" if part == LINE_BREAK else escape_prose(part)
    return shown


def quote_code(text: str, *, cell: bool = True, limit: int = 300) -> str:
    """Quote a text of the target as a code span that nothing in it can end; `cell`: of a table."""
    shown = PLAIN.clean(text, limit)
    shown = shown.replace("|", "\\|") if cell else shown
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    blank = " " if longest else ""
    return f"{fence}{blank}{shown or ' '}{blank}{fence}"


def escape_prose(text: str) -> str:
    """Escape a sentence that may name things of the target: no markup, mention or link works."""
    shown = PLAIN.clean(text, 400)
    for sign in "\\`*_[]<>|#~":
        shown = shown.replace(sign, "\\" + sign)
    # An escaped @ still mentions people; an invisible break does not.
    return shown.replace("@", "@<!-- -->").replace("://", ":<!-- -->//")


def wrap_in_fence(text: str, language: str) -> list[str]:
    """Wrap a text in a block of code that no line of it can end."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [f"{fence}{language}", *text.rstrip("\n").splitlines(), fence]
