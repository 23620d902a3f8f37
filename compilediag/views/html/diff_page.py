"""Two receipts compared, as one page."""

from __future__ import annotations

from compilediag.compare.diff import Comparison
from compilediag.views.diff import (
    changed_data_sentence,
    count_cells,
    figures,
    lists_of,
    summary_parts,
)
from compilediag.views.html.page import Assets, render_page
from compilediag.views.html.parts import MAX_ROWS, Section, table
from compilediag.views.style import RenderOptions

_SIDES = ("before", "after")


def render_diff(
    found: Comparison, names: tuple[str, str], assets: Assets, *, root: str = ""
) -> str:
    """The page.

    Args:
        found: what changed.
        names: of the two receipts.
        assets: templates, style and script.
        root: files below this folder are shown relative to it.
    """
    options = RenderOptions(root=root)
    accepted = changed_data_sentence(found.changed_data, options)
    changed = [item for item in lists_of(found, options) if item[1]]
    counts = [count_cells(item) for item in found.counts]
    sections = [
        Section(
            "counts",
            "Counts",
            "Counts",
            tables=(
                table(
                    "counts",
                    ("count", *_SIDES, "change"),
                    counts,
                    right=("before", "after", "change"),
                ),
            ),
        ),
        Section(
            "changes",
            "Changes",
            "What came, went or changed",
            () if changed else ("Nothing beside the counts above.",),
            lists=tuple(
                (f"{title} ({len(items)})", tuple(items[:MAX_ROWS])) for title, items in changed
            ),
        ),
        Section(
            "figures",
            "Figures",
            "What was measured",
            tables=tuple(
                table(
                    title,
                    ("figure", *_SIDES),
                    [(options.text(name, 60), *sides) for name, *sides in rows],
                    right=_SIDES,
                )
                for title, rows in figures(found)
            ),
        ),
    ]
    return render_page(
        assets,
        "sections.html.j2",
        {},
        title="two receipts compared",
        kind="warn" if found.changed else "good",
        sentence=options.dot.join(summary_parts(found, options)) or "The same counts",
        facts=[
            (side, f"{options.text(name, 200)} ({options.text(identity, 40)})")
            for side, name, identity in zip(
                _SIDES, names, (found.before_id, found.after_id), strict=True
            )
        ],
        notes=[] if accepted is None else [accepted],
        sections=[each for each in sections if each.tables or each.lists or each.sentences],
    )
