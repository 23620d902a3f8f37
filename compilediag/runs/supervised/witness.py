"""What `run --witness` is about: of the last run its command line, and what was found in it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from compilediag.errors import UsageError
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.repeat import changed_files, newest
from compilediag_harness.base.process_options import ProcessOptions, WitnessPlan

_MAX_CHARS = 64 << 10
"""Of the plan in the environment: with more, all that is guarded is watched."""


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
