"""`compilediag history trend`: what got slower or less stable, since which receipt and commit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import click

from compilediag.commands.receipts import format_suffix
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import get_render_options, write, write_document
from compilediag.errors import UsageError
from compilediag.extensions.fleet.changes import ChangeEvent, group_changes
from compilediag.extensions.fleet.measures import BY_NAME
from compilediag.extensions.fleet.options import (
    FleetOptions,
    TrendDocument,
    TrendEvent,
    load_receipts,
    make_fleet_fields,
)
from compilediag.extensions.fleet.stats import format_notes
from compilediag.extensions.fleet.trend import Rules, compute_trends
from compilediag.extensions.fleet.trend_view import list_events, render_trend
from compilediag.option_fields import flag, option


@dataclass(frozen=True)
class TrendOptions(FleetOptions):
    """The receipts to follow, and the changes to show."""

    last: int = option(
        "--last N",
        "Only the newest N of each configuration (default 1000; 0: all).",
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


@subcommand(
    "trend",
    TrendOptions,
    examples="""\
  compilediag history trend receipts/                       what got worse, and since when
  compilediag history trend receipts/ --configuration gpt-small --since 2026-09-01
  compilediag history trend receipts/ --measure step_s --at-least 5
""",
)
def command(options: TrendOptions) -> None:
    """Report what got slower or less stable, and since which commit.

    Follows throughput, step time, goodput, compile seconds, memory, recompiles, graph breaks and
    checks of each configuration over the receipts in DIR (default .compilediag). A change is shown
    if it lasts; docs/reference/stats.md explains how that is decided. The exit code is always 0.
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
    fleet = load_receipts(options)
    trends = compute_trends(fleet.entries, rules)
    if options.as_json:
        events = tuple(
            TrendEvent(event.trend.label, event.first, event.changes, event.state)
            for trend in trends
            for event in group_changes(trend)
        )
        read = make_fleet_fields(fleet)
        document = TrendDocument(
            schema="compilediag.trend", configurations=tuple(trends), events=events, **read
        )
        write_document(document)
        return
    following = _format_next(list_events(trends), fleet.root, options.folder)
    screen = get_render_options()
    text = render_trend(trends, screen, complete=options.complete)
    write(f"{text}{format_notes(fleet.problems, screen)}\n  next: {following}\n")


def _format_next(events: Sequence[ChangeEvent], root: str, folder: str | None) -> str:
    """Format the next command: a comparison of the receipts on both sides of the first change."""
    if not events or events[0].state not in ("worse", "beginning"):
        return f"compilediag history stats{format_suffix(folder)}"
    change = events[0].surest
    paths = (change.last_before.path, change.latest.path)
    line = "compilediag diff" + "".join(format_suffix(os.path.join(root, path)) for path in paths)
    # Names of files are text of others: they must not act on a terminal.
    safe = get_render_options().clean(line, 1000)
    left, right = change.last_before.commit, change.latest.commit
    if left is None or right is None or left == right or not (left + right).isalnum():
        return safe
    return f"{safe}\n        git log --oneline {left[:12]}..{right[:12]}"
