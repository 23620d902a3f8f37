"""What `stats` and `trend` are asked about: a folder, lanes, a stretch of time."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.params import PATH
from compilediag.errors import UsageError
from compilediag.receipt.locate import RUNS_FOLDER

if TYPE_CHECKING:
    from compilediag.fleet.folder import Fleet, Progress
    from compilediag.fleet.lanes import Choice

_UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_SHOWN_LANES = 10
_EVERY = 500
"""Files between two words of progress."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def fleet_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The argument and the options of both commands."""
    for decorate in reversed(_options()):
        function = decorate(function)
    return function


def _options() -> list[Decorator]:
    lane = "Only lanes of this name or pattern, such as gpt-*."
    preset = "Only lanes of this preset or pattern."
    since = "Only receipts from then on: 2026-11-01, 2026-11-01T14:00, 30d, 12h or 2w."
    until = "Only receipts before then; as --since."
    indexed = "With one --lane and --last: ask the index, without a look at every file."
    return [
        click.argument("folder", metavar="[DIR]", required=False, type=PATH),
        click.option("--lane", "lanes", multiple=True, metavar="NAME", help=lane),
        click.option("--preset", "presets", multiple=True, metavar="NAME", help=preset),
        click.option("--since", metavar="WHEN", help=since),
        click.option("--until", metavar="WHEN", help=until),
        click.option("--indexed", is_flag=True, help=indexed),
    ]


def choice_of(given: dict[str, Any]) -> Choice:
    """The choice that the options make.

    Raises:
        UsageError: a moment cannot be read, or the index is to answer what it cannot.
    """
    from compilediag.fleet.lanes import Choice

    if given["indexed"] and (len(given["lanes"]) != 1 or set(given["lanes"][0]) & set("*?[")):
        raise UsageError("--indexed answers for one lane: name it with --lane, without a pattern")
    now = time.time()
    return Choice(
        lanes=given["lanes"],
        presets=given["presets"],
        since_s=seconds_of("--since", given["since"], now),
        until_s=seconds_of("--until", given["until"], now),
    )


def seconds_of(option: str, text: str | None, now: float) -> float | None:
    """A moment in seconds since the epoch: a day or time (UTC unless it says otherwise), or how
    long before `now`.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None
    before = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    if before is not None:
        return now - int(before[1]) * _UNITS[before[2]]
    try:
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r} is no time: write 2026-11-01, 2026-11-01T14:00, 30d, 12h or 2w"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def receipts_in(folder: str | None, choice: Choice, indexed: int | None = None) -> Fleet:
    """The receipts that are asked for.

    Args:
        folder: where they are; None for the runs of this folder.
        choice: which of them.
        indexed: so many of the lane, the newest, from the index alone where it can answer; every
            file is looked at otherwise.

    Raises:
        UsageError: there is no such folder, or none of its receipts is asked for.
    """
    from compilediag.fleet.folder import fleet_at, newest

    root = RUNS_FOLDER if folder is None else folder
    if folder is None and not os.path.isdir(root):
        raise UsageError(
            f"there is no {root} here: name a folder of receipts, or start with `compilediag run`"
        )
    found = newest(root, choice.lanes[0], indexed) if indexed and not choice.until_s else None
    if found is None:
        found = fleet_at(root, choice.wants, _progress())
    fleet = found._replace(entries=choice.of(found.entries))
    if not fleet.entries:
        raise UsageError(_nothing(root, found, choice))
    return fleet


def _nothing(root: str, found: Fleet, choice: Choice) -> str:
    """Why there is nothing to tell, with what is there instead."""
    from compilediag.fleet.folder import fleet_at

    entries = fleet_at(root).entries
    if not entries:
        others = f" ({len(found.problems)} other JSON files)" if found.problems else ""
        return f"there is no receipt in {root}{others}"
    lanes = sorted({entry.lane.name for entry in entries})
    shown = ", ".join(lanes[:_SHOWN_LANES]) + (", ..." if len(lanes) > _SHOWN_LANES else "")
    span = f"{entries[0].created[:10]} to {entries[-1].created[:10]}"
    return f"none of the {len(entries):,} receipts in {root} fits: lanes {shown}; {span}"


def _progress() -> Progress:
    """Words on a terminal while many files are read for the first time."""
    if not sys.stderr.isatty():
        return lambda done, total: None

    def tell(done: int, total: int) -> None:
        if total >= 2 * _EVERY and done % _EVERY == 0:
            sys.stderr.write(f"\r\x1b[Kreading receipts {done:,} of {total:,}")
        if total >= 2 * _EVERY and done == total - 1:
            sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    return tell
