"""Two receipts compared, as Markdown for pull requests and step summaries."""

from __future__ import annotations

from compilediag.compare.diff import Comparison
from compilediag.views.diff import (
    MAX_ITEMS,
    changed_data_sentence,
    count_cells,
    figures,
    lists_of,
    summary_parts,
)
from compilediag.views.markdown import code, prose
from compilediag.views.style import RenderOptions


def render_markdown(found: Comparison, root: str = "") -> str:
    """What was accepted as changed, the changed counts, and every list that changed."""
    options = RenderOptions(root=root)
    other = changed_data_sentence(found.changed_data, options)
    lines = [prose(other), ""] if other is not None else []
    changed = " · ".join(summary_parts(found, options)) or "the same counts"
    lines += [f"### {prose(changed)}", ""]
    lines += _table(("count", "before", "after", "change"), [count_cells(i) for i in found.counts])
    for title, entries in lists_of(found, options):
        if not entries:
            continue
        lines += ["", f"**{title} ({len(entries)})**", ""]
        lines += [f"- {code(text, cell=False)}" for text in entries[:MAX_ITEMS]]
        if len(entries) > MAX_ITEMS:
            lines.append(f"- and {len(entries) - MAX_ITEMS} more")
    for title, rows in figures(found):
        lines += ["", f"**{title}**", "", *_table(("figure", "before", "after"), rows)]
    return "\n".join(lines) + "\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    rule = "|".join(("---", *("--:" for _ in head[1:])))
    body = [f"| {' | '.join((code(row[0]), *row[1:]))} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{rule}|", *body]
