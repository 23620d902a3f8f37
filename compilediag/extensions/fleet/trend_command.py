"""`compilediag trend`: what got slower or less stable, since which receipt and commit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import click

from compilediag.commands.receipts import suffix_for, written
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import render_options, write, write_document
from compilediag.errors import UsageError
from compilediag.extensions.fleet.changes import LaneTrend, events_of, order_of
from compilediag.extensions.fleet.measures import BY_NAME
from compilediag.extensions.fleet.options import (
    FleetOptions,
    TrendDocument,
    TrendEvent,
    notes_below,
    receipts_in,
    receipts_read,
)
from compilediag.extensions.fleet.trend import Rules, trend_of
from compilediag.extensions.fleet.trend_view import render_trend, render_trend_page
from compilediag.option_fields import flag, option


@dataclass(frozen=True)
class TrendOptions(FleetOptions):
    """The receipts to follow, and the changes to show."""

    last: int = option(
        "--last N",
        "Only the newest N of each lane (default 1000; 0: all).",
        default=1000,
        type=click.IntRange(0),
    )
    measures: tuple[str, ...] = option(
        "--measure NAME", "Follow only this measure; may be repeated.", default=(), multiple=True
    )
    at_least: float | None = option(
        "--at-least PERCENT",
        "Leave out smaller changes in timings and memory.",
        type=click.FloatRange(0, 1000),
    )
    any_status: bool = flag("--any-status", "Include failed and killed runs.")
    complete: bool = flag("--all", "Show every change, including those that were undone.")
    as_json: bool = flag("--json", "Print every series and change as JSON.")
    html: str | None = option("--html FILE", "Write the trend to FILE as one offline page.")


@subcommand(
    "trend",
    TrendOptions,
    examples="""\
  compilediag trend receipts/                       what got worse, and since when
  compilediag trend receipts/ --lane gpt-small --since 2026-09-01
  compilediag trend receipts/ --measure step_s --at-least 5
""",
)
def command(options: TrendOptions) -> None:
    """Report what got slower or less stable, and since which commit.

    Follows throughput, step time, goodput, compile seconds, memory, recompiles, graph breaks and
    checks of each lane over the receipts in DIR (default .compilediag). A change is shown if it
    lasts; docs/reference/stats.md explains how that is decided. The exit code is always 0.
    """
    for name in options.measures:
        if name not in BY_NAME:
            raise UsageError(f"there is no measure {name!r}; the measures are {', '.join(BY_NAME)}")
    rules = Rules(
        last=options.last or None,
        at_least=None if options.at_least is None else options.at_least / 100,
        any_status=options.any_status,
        measures=options.measures,
    )
    fleet = receipts_in(options, options.last)
    lanes = trend_of(fleet.entries, rules)
    if options.as_json and options.html is not None:
        raise UsageError("--json and --html are different formats: choose one")
    if options.as_json:
        events = tuple(
            TrendEvent(event.lane.label, event.first, event.changes, event.state)
            for lane in lanes
            for event in events_of(lane)
        )
        read = receipts_read(fleet)
        write_document(
            TrendDocument(schema="compilediag.trend", lanes=tuple(lanes), events=events, **read)
        )
        return
    following = _next(lanes, fleet.root, options.folder)
    if options.html is not None:
        from compilediag.runs.offline.html_file import assets, write_page

        write_page(options.html, render_trend_page(lanes, assets(), root=render_options().root))
        write(f"{written(options.html)}\n{notes_below(fleet)}\n  next: {following}\n")
        return
    screen = render_trend(lanes, render_options(), complete=options.complete)
    write(f"{screen}{notes_below(fleet)}\n  next: {following}\n")


def _next(lanes: Sequence[LaneTrend], root: str, folder: str | None) -> str:
    """Format the next command: a comparison of the receipts on both sides of the first change."""
    events = [event for lane in lanes for event in events_of(lane)]
    first = min(events, key=order_of, default=None)
    if first is None or first.state not in ("worse", "beginning"):
        return f"compilediag stats{suffix_for(folder)}"
    change = first.surest
    paths = (change.last_before.path, change.latest.path)
    line = "compilediag diff" + "".join(suffix_for(os.path.join(root, path)) for path in paths)
    # Names of files are text of others: they must not act on a terminal.
    safe = render_options().text(line, 1000)
    left, right = change.last_before.commit, change.latest.commit
    if left is None or right is None or left == right or not (left + right).isalnum():
        return safe
    return f"{safe}\n        git log --oneline {left[:12]}..{right[:12]}"
