"""Views as a terminal shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compilediag.compare.diff import Comparison
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.diff import comparison
from compilediag.views.document import Block
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import render, render_overview

WIDE = RenderOptions(width=100)


def screen(
    view: Callable[[Receipt, RenderOptions], Sequence[Block]],
    receipt: Receipt,
    options: RenderOptions = WIDE,
) -> str:
    """A view of a receipt."""
    return render(view(receipt, options), options)


def comparison_screen(found: Comparison, options: RenderOptions = WIDE) -> str:
    """A comparison."""
    return render_overview(comparison(found, options), options)
