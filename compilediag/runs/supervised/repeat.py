"""The newest run, to be made once more: its command line, and what has changed since."""

from __future__ import annotations

from compilediag.errors import ReceiptNotFound, UsageError
from compilediag.receipt.file import read_receipt
from compilediag.receipt.locate import find_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.digests import sha256_of
from compilediag_harness.redaction.recognise import is_redacted


def newest(example: str) -> tuple[str, Receipt]:
    """The receipt of the newest run of this folder, whose command line can be run again, and its
    path. `example` is the command with a program, for messages.

    Raises:
        UsageError: there is none, or it cannot be repeated.
        ReceiptUnreadable: its receipt is damaged.
    """
    try:
        path = find_receipt()
    except ReceiptNotFound as error:
        raise UsageError(
            f"there is no run to repeat here: name the program, `{example}`"
        ) from error
    receipt = read_receipt(path)
    _require_repeatable(receipt.header.run.argv_redacted, f"name the program: `{example}`")
    return path, receipt


def _require_repeatable(words: tuple[str, ...], name_it: str) -> None:
    if not words:
        raise UsageError(f"the last receipt has no command line to repeat: {name_it}")
    if any(map(is_redacted, words)):
        raise UsageError(
            "the command line of the last run cannot be repeated, since a secret in it was "
            f"replaced when it was recorded: {name_it}"
        )
    if words[0] == "-":
        raise UsageError(f"the last run read its program from stdin: {name_it}")


def changed_files(receipt: Receipt) -> list[str]:
    """Files of the program that are not what they were in a run, or are gone."""
    changed: list[str] = []
    for name, digest in receipt.header.provenance.source_sha256.items():
        try:
            with open(name, "rb") as file:
                same = sha256_of(file) == digest
        except OSError:
            same = False
        if not same:
            changed.append(name)
    return changed
