"""The newest run, to be made once more: its command line, what has changed since, and what of it
`run --witness` follows."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass

from compilediag.errors import ReceiptNotFound, UsageError
from compilediag.readers.storage import sha256_of
from compilediag.receipt.file import read_receipt
from compilediag.receipt.locate import find_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.base.process_options import ProcessOptions, WitnessPlan
from compilediag_harness.redaction.recognise import is_redacted

_MAX_CHARS = 64 << 10
"""Of the plan in the environment: with more, all that is guarded is watched."""


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
    words, name_it = receipt.header.run.argv_redacted, f"name the program: `{example}`"
    if not words:
        raise UsageError(f"the last receipt has no command line to repeat: {name_it}")
    if any(map(is_redacted, words)):
        raise UsageError(
            "the command line of the last run cannot be repeated, since a secret in it was "
            f"replaced when it was recorded: {name_it}"
        )
    if words[0] == "-":
        raise UsageError(f"the last run read its program from stdin: {name_it}")
    return path, receipt


def changed_files(receipt: Receipt) -> list[str]:
    """Files of the program that are not what they were in a run, or are gone."""
    changed: list[str] = []
    for name, digest in receipt.header.provenance.source_sha256.items():
        found = None
        with contextlib.suppress(OSError), open(name, "rb") as file:
            found = sha256_of(file)
        if found != digest:
            changed.append(name)
    return changed


@dataclass(frozen=True, slots=True)
class Again:
    """A run that is made once more."""

    words: tuple[str, ...]
    """TARGET and its arguments."""
    plan: WitnessPlan
    sentence: str
    """For the user: what is run, and what is followed."""


def last_run() -> Again:
    """The newest run of this folder.

    Raises:
        UsageError: there is none, it cannot be repeated, or it recorded nothing to witness.
        ReceiptUnreadable: its receipt is damaged.
    """
    path, receipt = newest("compilediag run --witness train.py")
    words = receipt.header.run.argv_redacted
    plan = plan_of(receipt)
    if not plan.steps:
        raise UsageError(
            f"the last run, {os.path.dirname(path)}, recorded no recompile: nothing to witness"
        )
    sentence = f"once more, following lines: {shlex.join(words)}"
    changed = changed_files(receipt)
    if changed:
        plan = WitnessPlan()
        sentence += f" ({changed[0]} has changed since: every step is followed)"
    return Again(words, plan, sentence)


def plan_of(receipt: Receipt) -> WitnessPlan:
    """The steps in which a run recompiled, and the guards that were false then."""
    again = [item for item in receipt.compile.events if item.kind == "recompile"]
    return WitnessPlan(
        frozenset(item.step for item in again if item.step is not None),
        frozenset(cause.source for item in again for cause in item.causes if cause.source),
    )


def limited(plan: WitnessPlan) -> WitnessPlan:
    """The plan, or as much of it as an environment variable can hold."""
    if len(ProcessOptions(witness=plan).encode()) > _MAX_CHARS:
        plan = WitnessPlan(plan.steps)
    return plan if len(ProcessOptions(witness=plan).encode()) <= _MAX_CHARS else WitnessPlan()
