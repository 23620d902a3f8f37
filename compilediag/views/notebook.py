"""A receipt as an HTML fragment for a notebook's cell: verdict, counts and a table of findings.

No script, no address, and colours of the notebook itself, so that it reads in light and dark; the
text passes through the escaping of every view, and then through HTML's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.document import (
    LINE_BREAK,
    Block,
    Code,
    Listing,
    Paragraph,
    Preformatted,
    Table,
    Text,
)
from compilediag.views.format import count
from compilediag.views.style import RenderOptions
from compilediag.views.summary import summarize

_CELL_FILE = re.compile(r"&lt;ipython-input-\w+-\w+&gt;|[^\s<>]*/ipykernel_\d+/\d+\.py")
"""Files of cells, in IPython and in its kernel, as they stand in HTML."""
_CELL = ' style="text-align:left;vertical-align:top;white-space:normal"'


def render_notebook(
    receipt: Receipt,
    *,
    root: str = "",
    cell_of: Callable[[str], str | None] = lambda file: None,
    calls: int = 0,
) -> str:
    """The fragment; files below `root` are shown relative to it. `cell_of` gives the name of a cell
    by its file, None for a file that is no cell's; `calls` are of compiled callables, whether or
    not they compiled."""
    options = RenderOptions(root=root)
    # All that is wrong is that nothing was compiled: a cell that is run again.
    nothing = not receipt.compile.frames and receipt.status == "complete"
    if calls and nothing and {item.rule for item in receipt.findings} <= {"CD901"}:
        warm = f"nothing compiled in {count(calls, 'call')} of compiled functions"
        sentence = f"✓ {warm}: all was compiled before"
        return f'<div class="compilediag"><p><strong>{sentence}</strong></p></div>'
    found = summarize(receipt, options)
    head = f"<p><strong>{options.sign(found.kind)} {escape(found.sentence)}</strong></p>"
    body = head + "".join(map(_block, found.blocks))
    shown = _CELL_FILE.sub(lambda found: cell_of(unescape(found[0])) or found[0], body)
    return f'<div class="compilediag">{shown}</div>'


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        label = f"<strong>{escape(block.label)}:</strong> " if block.label else ""
        return f"<p>{label}{_words(block.text)}</p>"
    if isinstance(block, Listing):
        return f"<ul>{''.join(f'<li>{_words(each)}</li>' for each in block.items)}</ul>"
    if isinstance(block, Table):
        head = "".join(f'<th scope="col"{_CELL}>{escape(name)}</th>' for name in block.head)
        rows = ("".join(f"<td{_CELL}>{_words(cell)}</td>" for cell in row) for row in block.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in block.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
    if isinstance(block, Preformatted):
        return f"<pre>{escape(LINE_BREAK.join(block.lines))}</pre>"
    return f"<p>{_words(block.what)}</p>"


def _words(text: Text) -> str:
    shown = ""
    for part in (text,) if isinstance(text, str) else text:
        safe = "<br>" if part == LINE_BREAK else escape(part)
        shown += f"<code>{safe}</code>" if isinstance(part, Code) else safe
    return shown
