"""A receipt as an HTML fragment for a notebook's cell: verdict, counts and a table of findings.

No script, no address, and colours of the notebook itself, so that it reads in light and dark; the
text passes through the escaping of every view, and then through HTML's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape
from typing import TYPE_CHECKING

from compilediag.views.finding_rows import changed_by, detail_of, title_of, when
from compilediag.views.format import count, seconds
from compilediag.views.headline import ending, headline, reasons
from compilediag.views.lookups import main_findings, notes
from compilediag.views.place import first_line
from compilediag.views.style import RenderOptions

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord
    from compilediag.receipt.schema.receipt import Receipt

MAX_FINDINGS = 30
_SIGN = {"bad": "✗", "good": "✓", "blind": "?", "warn": "!"}
_COLUMNS = ("#", "rule", "what", "where", "when", "cost", "fix")
_CELL_FILE = re.compile(r"&lt;ipython-input-\w+-\w+&gt;|[^\s<>]*/ipykernel_\d+/\d+\.py")
"""Files of cells, in IPython and in its kernel, as they stand in HTML."""
_CELL = "text-align:left;vertical-align:top;white-space:normal"


def render_notebook(
    receipt: Receipt,
    *,
    root: str = "",
    cell_of: Callable[[str], str | None] = lambda file: None,
    calls: int = 0,
) -> str:
    """The fragment.

    Args:
        receipt: what to show.
        root: files below this folder are shown relative to it.
        cell_of: the name of a cell by its file, None for a file that is no cell's.
        calls: of compiled callables, whether or not they compiled.
    """
    options = RenderOptions(root=root)
    if calls and _is_silent(receipt):
        warm = f"nothing compiled in {count(calls, 'call')} of compiled functions"
        sentence = f"✓ {warm}: all was compiled before"
        return f'<div class="compilediag"><p><strong>{sentence}</strong></p></div>'
    fragment = _fragment(receipt, options)
    return _CELL_FILE.sub(lambda found: cell_of(unescape(found[0])) or found[0], fragment)


def _is_silent(receipt: Receipt) -> bool:
    """Whether all that is wrong is that nothing was compiled: a cell that is run again."""
    nothing = not receipt.compile.frames and receipt.status == "complete"
    return nothing and {item.rule for item in receipt.findings} <= {"CD901"}


def _fragment(receipt: Receipt, options: RenderOptions) -> str:
    head = headline(receipt)
    parts = [f"<p><strong>{_SIGN[head.kind]} {_text(head.sentence, options)}</strong></p>"]
    parts.append(f"<p>{_text(' · '.join(head.counts), options)}</p>")
    ended = ending(receipt)
    if ended is not None:
        parts.append(f"<p>{_text(ended, options)}</p>")
    if receipt.verdict == "blind":
        why = "".join(f"<li>{_text(reason, options)}</li>" for reason, _ in reasons(receipt))
        parts.append(f"<ul>{why}</ul><p>A count of 0 here means &quot;not seen&quot;.</p>")
    parts += _table(receipt, options)
    return f'<div class="compilediag">{"".join(parts)}</div>'


def _table(receipt: Receipt, options: RenderOptions) -> list[str]:
    findings = [*main_findings(receipt), *notes(receipt)]
    if not findings:
        return []
    head = "".join(f'<th scope="col" style="{_CELL}">{name}</th>' for name in _COLUMNS)
    rows = "".join(_row(*pair, receipt, options) for pair in findings[:MAX_FINDINGS])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    more = len(findings) - MAX_FINDINGS
    return [table, f"<p>and {more} more findings</p>"] if more > 0 else [table]


def _row(number: int, finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    what = [title_of(finding), detail_of(finding, receipt, options)]
    where = [first_line(finding, options), changed_by(finding, receipt, options)]
    cost = seconds(finding.cost_s) if finding.cost_s is not None else ""
    cells = [
        str(number),
        _text(finding.rule, options),
        "<br>".join(_text(text, options) for text in what if text),
        "<br>".join(f"<code>{_text(text, options)}</code>" for text in where if text),
        _text(when(finding), options),
        _text(cost, options),
        _text(finding.fix.summary, options),
    ]
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _text(text: str, options: RenderOptions) -> str:
    return escape(options.text(text), quote=True)
