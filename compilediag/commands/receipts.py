"""Finds and reads the receipt a command was asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from compilediag.receipt.file import read_receipt
from compilediag.receipt.locate import find_receipt
from compilediag.receipt.schema.receipt import SCHEMA_VERSION
from compilediag.receipt.versions import is_newer

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt


_BESIDE_LETTERS = str.maketrans("", "", "/._-")
"""Removes what stands in most paths and needs no quotes either."""


def load(where: str | None) -> tuple[str, Receipt]:
    """The receipt of a file, of a run's folder, or (None) of the latest run, with its path. A note
    on stderr names the version of a file that may say more.

    Raises:
        ReceiptNotFound: there is none.
        ReceiptUnreadable: the file is no receipt, or of a newer major version.
    """
    path = find_receipt(where)
    receipt = read_receipt(path)
    if is_newer(receipt):
        click.echo(
            f"note: {path} has schema version {receipt.schema_version}, this compilediag reads "
            f"{SCHEMA_VERSION}: fields that are new in it are not shown",
            err=True,
        )
    return path, receipt


def suffix_for(where: str | None) -> str:
    """What the next commands need to find the same receipt again: a blank and the path, quoted."""
    if where is None:
        return ""
    if where.isascii() and where.translate(_BESIDE_LETTERS).isalnum():
        return f" {where}"
    import shlex

    return " " + shlex.quote(where)
