"""What a gate is asked about: receipts with their lanes, and the baseline."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct

from compilediag.commands.receipts import load
from compilediag.compare.gate.baseline_file import find_lock
from compilediag.errors import UsageError
from compilediag.receipt.schema.receipt import Receipt


class Lane(Struct, frozen=True):
    """One receipt and the lane it is judged in."""

    name: str
    receipt: Receipt
    where: str | None
    """As it was given; None: the latest run."""


def lanes_of(given: Sequence[str], name: str | None) -> tuple[Lane, ...]:
    """A lane for each receipt; the latest run without one.

    Raises:
        UsageError: two receipts would be one lane.
        ReceiptNotFound, ReceiptUnreadable: as `load`.
    """
    if name is not None and len(given) > 1:
        raise UsageError("--lane names the lane of one receipt: give one, or leave --lane away")
    if name is not None and not name.strip():
        raise UsageError("--lane is empty: say the lane's name")
    found: dict[str, Lane] = {}
    for where in given or (None,):
        _, receipt = load(where)
        lane = Lane(name or receipt.header.lane.name, receipt, where)
        other = found.setdefault(lane.name, lane)
        if other is not lane:
            raise UsageError(
                f"{other.where} and {where} are both of the lane {lane.name!r}: judge them one "
                "after the other, or name lanes apart with `compilediag run --name`"
            )
    return tuple(found.values())


def baseline_path(given: str | None) -> str | None:
    """The baseline's file: the one that was named, else the one of this folder or repository."""
    return given if given is not None else find_lock(os.getcwd())


def shown_path(path: str) -> str:
    """The path as a person would type it here."""
    folder = os.getcwd().rstrip("/") + "/"
    return path.removeprefix(folder)
