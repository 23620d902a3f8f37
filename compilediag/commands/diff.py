"""`compilediag diff`: what changed between two receipts of one lane."""

from __future__ import annotations

from dataclasses import dataclass

import click

from compilediag.commands.receipts import load, suffix_for
from compilediag.commands.subcommand import argument, flag, subcommand
from compilediag.commands.terminal import render_options, write, write_json


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What to compare."""

    before: str = argument(metavar="A", type=click.Path())
    after: str | None = argument(metavar="[B]", required=False, type=click.Path())
    as_json: bool = flag("--json", "The comparison as JSON.")


@subcommand(
    "diff",
    DiffOptions,
    examples="""\
  compilediag diff .compilediag/20261120-before .compilediag/latest
  compilediag diff main.json                        against the latest run
""",
)
def command(options: DiffOptions) -> None:
    """Compare two receipts: counts, causes, graph breaks, frames.

    A and B are receipt files or folders of runs; B is the latest run by default. Receipts of
    different lanes (another precision, backend or preset) are refused with exit code 2.
    """
    from compilediag.compare.diff import compare

    found = compare(load(options.before)[1], load(options.after)[1])
    if options.as_json:
        from msgspec import to_builtins

        write_json({"changed": found.changed, **to_builtins(found)})
        return
    from compilediag.views.diff import render_comparison

    following = f"\n  next: compilediag show{suffix_for(options.after)}\n"
    write(render_comparison(found, render_options()) + following)
