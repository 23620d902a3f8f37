"""Finds and reads the receipt a command was asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.receipt.file import read_receipt
from compilediag.receipt.locate import find_receipt

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt


_BESIDE_LETTERS = str.maketrans("", "", "/._-")
"""Removes what stands in most paths and needs no quotes either."""


def load(where: str | None) -> tuple[str, Receipt]:
    """The receipt of a file, of a run's folder, or (None) of the latest run, with its path.

    Raises:
        ReceiptNotFound: there is none.
        ReceiptUnreadable: the file is no receipt, or of a newer major version.
    """
    path = find_receipt(where)
    return path, read_receipt(path)


def suffix_for(where: str | None) -> str:
    """What the next commands need to find the same receipt again: a blank and the path, quoted."""
    if where is None:
        return ""
    if where.isascii() and where.translate(_BESIDE_LETTERS).isalnum():
        return f" {where}"
    import shlex

    return " " + shlex.quote(where)
