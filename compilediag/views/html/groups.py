"""The steps of a run, and ranks side by side."""

from __future__ import annotations

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.html.parts import Section, heated, table
from compilediag.views.ranks import HEAD, headline, rank_row, render_ranks
from compilediag.views.steps import render_steps
from compilediag.views.style import RenderOptions


def steps(receipt: Receipt, options: RenderOptions) -> Section | None:
    """Phases, long steps, reads of tensors and spans, as `show --steps` has them."""
    if receipt.steps is None and not receipt.timings:
        return None
    text = render_steps(receipt, options)
    return Section("step-times", "Step times", "Where the steps' time went", text=text)


def ranks(receipt: Receipt, options: RenderOptions) -> Section | None:
    """A heat map of the ranks, and where they do not do the same."""
    found = receipt.ranks
    if found is None or not found.rows:
        return None
    made = table("ranks", HEAD, [rank_row(row) for row in found.rows], right=HEAD)
    rows = found.rows[: len(made.rows)]
    columns = (
        (),
        [row.compiles for row in rows],
        [row.recompiles for row in rows],
        [row.graph_breaks for row in rows],
        [row.eager_fallbacks for row in rows],
        [row.compile_s for row in rows],
        (),
        [row.step_median_s for row in rows],
    )
    return Section(
        "ranks",
        "Ranks",
        "Ranks",
        (f"{headline(found)}.",),
        tables=(heated(made, columns),),
        text=render_ranks(receipt, options) if found.divergences or found.stragglers else "",
    )
