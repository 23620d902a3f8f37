"""`compilediag trend`: what got slower or less stable, since which receipt and commit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.fleet_options import choice_of, fleet_options, receipts_in
from compilediag.commands.help import Command
from compilediag.commands.terminal import look, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compilediag.fleet.changes import Change, LaneTrend


@click.command(
    name="trend",
    cls=Command,
    epilog="""\b
Examples:
  compilediag trend receipts/                       what got worse, and since when
  compilediag trend receipts/ --lane gpt-small --since 2026-09-01
  compilediag trend receipts/ --measure step_s --at-least 5
""",
)
@fleet_options
@click.option(
    "--last",
    type=click.IntRange(0),
    default=1000,
    metavar="N",
    help="Only the newest N of each lane (default 1000; 0: all).",
)
@click.option("--measure", "measures", multiple=True, metavar="NAME", help="Only this one; again.")
@click.option(
    "--at-least",
    type=click.FloatRange(0, 1000),
    metavar="PERCENT",
    help="Leave out smaller changes of timings and memory.",
)
@click.option("--any-status", is_flag=True, help="Follow failed and killed runs as well.")
@click.option("--all", "complete", is_flag=True, help="Every change, also those that were undone.")
@click.option("--json", "as_json", is_flag=True, help="Every series and change as JSON.")
def command(
    folder: str | None,
    *,
    last: int,
    measures: tuple[str, ...],
    at_least: float | None,
    any_status: bool,
    complete: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Say what got slower or less stable, since which receipt and commit.

    Throughput, step time, goodput, compile seconds, memory, recompiles, graph breaks and checks of
    each lane, followed over the receipts in DIR (default .compilediag). A change is told when it
    lasts: docs/trend.md says how that is decided. The exit code is 0 whatever is found.
    """
    from compilediag.fleet.trend import Rules, trend_of

    rules = Rules(
        last=last or None,
        at_least=None if at_least is None else at_least / 100,
        any_status=any_status,
        measures=_known(measures),
    )
    fleet = receipts_in(folder, choice_of(given), last if given["indexed"] else None)
    lanes = trend_of(fleet.entries, rules)
    if as_json:
        from compilediag.commands.fleet_json import trend_as_json

        write(trend_as_json(lanes, fleet))
        return
    from compilediag.views.fleet import notes
    from compilediag.views.trend import render_trend

    told = notes(fleet.problems, fleet.notes, look())
    below = "\n" + "\n".join(told) + "\n" if told else ""
    screen = render_trend(lanes, look(), complete=complete)
    write(f"{screen}{below}\n  next: {_next(lanes, fleet.root, folder)}\n")


def _known(measures: tuple[str, ...]) -> tuple[str, ...]:
    from compilediag.errors import UsageError
    from compilediag.fleet.measures import BY_NAME

    for name in measures:
        if name not in BY_NAME:
            raise UsageError(f"there is no measure {name!r}; the measures are {', '.join(BY_NAME)}")
    return measures


def _next(lanes: Sequence[LaneTrend], root: str, folder: str | None) -> str:
    """The two receipts on both sides of the first change on the screen, compared."""
    from compilediag.commands.receipts import suffix_for
    from compilediag.fleet.changes import events_of, order_of

    events = [event for lane in lanes for event in events_of(lane)]
    first = min(events, key=order_of, default=None)
    if first is None or first.state not in ("worse", "beginning"):
        return f"compilediag stats{suffix_for(folder)}"
    change = first.surest
    paths = (change.last_before.path, change.latest.path)
    told = "compilediag diff" + "".join(suffix_for(os.path.join(root, path)) for path in paths)
    # Names of files are text of others: they must not act on a terminal.
    return f"{look().text(told, 1000)}{_log(change)}"


def _log(change: Change) -> str:
    """The commits between both, for who has the repository at hand."""
    left, right = change.last_before.commit, change.latest.commit
    if left is None or right is None or left == right or not (left + right).isalnum():
        return ""
    return f"\n        git log --oneline {left[:12]}..{right[:12]}"
