"""The receipts of a test session, as one page."""

from __future__ import annotations

from collections.abc import Mapping

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.document import Table
from compilediag.views.format import count
from compilediag.views.headline import headline
from compilediag.views.html.page import Assets, render_page
from compilediag.views.html.report import cards
from compilediag.views.style import RenderOptions

HEAD = ("test", "verdict", "frames", "compiles", "recompiles", "graph breaks", "eager fallbacks")
MAX_TESTS = 40
"""Whose findings are shown; the table has all."""
_WORST = ("bad", "blind", "warn", "good")


def render_session(
    receipts: Mapping[str, Receipt],
    assets: Assets,
    *,
    suffixes: Mapping[str, str],
    root: str = "",
) -> str:
    """The page.

    Args:
        receipts: by the name of the test.
        assets: templates, style and script.
        suffixes: what commands need to find the receipt of a test, by its name.
        root: files below this folder are shown relative to it.
    """
    options = RenderOptions(root=root)
    rows = [
        (options.text(name, 200), headline(each).sentence, *map(str, _counts(each)))
        for name, each in receipts.items()
    ]
    found = [
        (name, each, cards(each, options, {}))
        for name, each in receipts.items()
        if any(item.severity != "info" for item in each.findings)
    ]
    kinds = [headline(each).kind for each in receipts.values()]
    return render_page(
        assets,
        "session.html.j2",
        {},
        title="tests",
        kind=min(kinds, key=_WORST.index, default="good"),
        sentence=f"{count(len(receipts), 'watched test')}, {len(found):,} with findings",
        made=Table(HEAD, rows, "tests", right=HEAD[2:]),
        tests=[
            {
                "name": options.text(name, 200),
                "sentence": headline(each).sentence,
                "cards": own,
                "suffix": options.text(suffixes.get(name, ""), 1000),
            }
            for name, each, own in found[:MAX_TESTS]
        ],
        left_out=max(0, len(found) - MAX_TESTS),
    )


def _counts(receipt: Receipt) -> tuple[int, ...]:
    seen = receipt.compile
    return seen.frames, seen.compiles, seen.recompiles, seen.graph_breaks, seen.eager_fallbacks
