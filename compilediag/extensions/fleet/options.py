"""Options and JSON documents that `stats` and `trend` share."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
import msgspec

from compilediag.commands.terminal import write_stderr
from compilediag.errors import UsageError
from compilediag.extensions.fleet.changes import LevelChange, Mark, State, Trend
from compilediag.extensions.fleet.entry import BadFile, ReceiptFilter
from compilediag.extensions.fleet.scan import Fleet, Progress, load_fleet
from compilediag.extensions.fleet.stats import Stats
from compilediag.json_document import Document
from compilediag.option_fields import argument, option
from compilediag.readers.lines import parse_unix_s
from compilediag.receipt.locate import RUNS_FOLDER

_UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_MAX_NAMES = 10
_EVERY = 500
"""Files between two reports of progress."""


@dataclass(frozen=True)
class FleetOptions:
    """The receipts of a folder that a command is about."""

    folder: str | None = argument(metavar="[DIR]", required=False, type=click.Path())
    configurations: tuple[str, ...] = option(
        "--configuration --lane NAME",
        "Only configurations with this name or pattern, such as gpt-*.",
        default=(),
        multiple=True,
    )
    presets: tuple[str, ...] = option(
        "--preset NAME", "Only those with this preset or pattern.", default=(), multiple=True
    )
    since: str | None = option(
        "--since WHEN", "Only receipts since then: 2026-11-01, 2026-11-01T14:00, 30d, 12h or 2w."
    )
    until: str | None = option(
        "--until WHEN", "Only receipts before then; same formats as --since."
    )


def parse_moment(option: str, text: str | None, now: float) -> float | None:
    """Parse a moment to seconds since the epoch: a day or time (UTC unless it says otherwise), or
    how long before `now`; None where no text is given.

    Raises:
        UsageError: the text is no time.
    """
    if text is None:
        return None
    before = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    if before is not None:
        return now - int(before[1]) * _UNITS[before[2]]
    moment_s = parse_unix_s(text)
    if moment_s is None:
        examples = "2026-11-01, 2026-11-01T14:00, 30d, 12h or 2w"
        raise UsageError(f"{option} {text!r} is no time: write {examples}")
    return moment_s


def load_receipts(options: FleetOptions) -> Fleet:
    """Load the receipts that the options choose.

    Raises:
        UsageError: a time cannot be read, there is no such folder, or no receipt that fits in it.
    """
    now = time.time()
    since_s = parse_moment("--since", options.since, now)
    until_s = parse_moment("--until", options.until, now)
    receipt_filter = ReceiptFilter(options.configurations, options.presets, since_s, until_s)
    root = RUNS_FOLDER if options.folder is None else options.folder
    if options.folder is None and not os.path.isdir(root):
        advice = "name a folder of receipts, or start with `compilediag run`"
        raise UsageError(f"there is no {root} here: {advice}")

    def report_progress(done: int, total: int) -> None:
        """Write a line on a terminal while many files are read."""
        if total >= 2 * _EVERY and done % _EVERY == 0:
            write_stderr(f"\r\x1b[Kreading receipts {done:,} of {total:,}")
        if total >= 2 * _EVERY and done == total - 1:
            write_stderr("\r\x1b[K")

    progress: Progress = report_progress if sys.stderr.isatty() else lambda done, total: None
    fleet = load_fleet(root, receipt_filter.wants, progress)
    if not fleet.entries:
        # Why nothing is chosen, with what is there instead.
        entries = load_fleet(root).entries
        if not entries:
            others = f" ({len(fleet.problems)} other JSON files)" if fleet.problems else ""
            raise UsageError(f"there is no receipt in {root}{others}")
        names = sorted({entry.configuration.name for entry in entries})
        shown = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
        span = f"{entries[0].created[:10]} to {entries[-1].created[:10]}"
        none = f"none of the {len(entries):,} receipts in {root} fits"
        raise UsageError(f"{none}: configurations {shown}; {span}")
    return fleet


def make_fleet_fields(fleet: Fleet) -> dict[str, Any]:
    """Make the fields of a `FleetDocument`, which `stats` and `trend` share."""
    return {
        "folder": fleet.root,
        "receipts": len(fleet.entries),
        "not_counted": fleet.problems,
        "notes": (),
        "files_read": fleet.files_read,
    }


# --- what --json prints --------------------------------------------------------------------------


class FleetDocument(Document, frozen=True, kw_only=True):
    """The receipts that were read."""

    folder: str
    receipts: int
    not_counted: tuple[BadFile, ...]
    """Files that are no usable receipts."""
    notes: tuple[str, ...]
    files_read: int


class StatsDocument(FleetDocument, frozen=True, kw_only=True):
    """Each configuration summed up."""

    configurations: tuple[Stats, ...] = msgspec.field(name="lanes")


class TrendEvent(NamedTuple):
    """Changes of one configuration that began together."""

    lane: str
    first: Mark
    changes: tuple[LevelChange, ...]
    state: State


class TrendDocument(FleetDocument, frozen=True, kw_only=True):
    """Each configuration over time, and the changes by the receipt in which they began."""

    configurations: tuple[Trend, ...] = msgspec.field(name="lanes")
    events: tuple[TrendEvent, ...]
