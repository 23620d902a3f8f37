"""Views as a terminal shows them, of receipts that are stored."""

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

from compilediag.compare.diff import Comparison
from compilediag.receipt.file import read_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.diff import show_comparison
from compilediag.views.document import Block
from compilediag.views.style import PLAIN, RenderOptions
from compilediag.views.terminal import render, render_overview

VIEWS = Path(__file__).resolve().parents[1] / "data" / "views"
CASES = ("findings", "clean", "blind", "disagree", "killed", "many", "hostile", "breaks")


def stored(name: str) -> Receipt:
    """A receipt of `tests/data/views`."""
    return read_receipt(VIEWS / f"{name}.json")


def screen(
    view: Callable[[Receipt, RenderOptions], Sequence[Block]],
    receipt: Receipt,
    options: RenderOptions = PLAIN,
) -> str:
    """A view of a receipt."""
    return render(view(receipt, options), options)


def comparison_screen(found: Comparison, options: RenderOptions = PLAIN) -> str:
    """A comparison."""
    return render_overview(show_comparison(found, options), options)


def acting(text: str) -> set[str]:
    """Characters that act on a terminal or hide, but the end of a line."""
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {char for char in text if unicodedata.category(char) in hidden} - {"\n"}
