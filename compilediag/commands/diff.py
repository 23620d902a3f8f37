"""`compilediag diff`: what changed between two receipts of one lane."""

from __future__ import annotations

import click

from compilediag.commands.help import Command
from compilediag.commands.params import PATH
from compilediag.commands.terminal import look, write


@click.command(
    name="diff",
    cls=Command,
    epilog="""\b
Examples:
  compilediag diff .compilediag/20261120-before .compilediag/latest
  compilediag diff main.json                        against the latest run
""",
)
@click.argument("before", metavar="A", type=PATH)
@click.argument("after", metavar="[B]", required=False, type=PATH)
@click.option("--json", "as_json", is_flag=True, help="The comparison as JSON.")
def command(before: str, after: str | None, *, as_json: bool) -> None:
    """Compare two receipts: counts, causes, graph breaks, frames.

    A and B are receipt files or folders of runs; B is the latest run by default. Receipts of
    different lanes (another precision, backend or preset) are refused with exit code 2.
    """
    from compilediag.commands.receipts import load, suffix_for
    from compilediag.compare.diff import compare

    found = compare(load(before)[1], load(after)[1])
    if as_json:
        import json

        from msgspec import to_builtins

        plain = {"changed": found.changed, **to_builtins(found)}
        write(json.dumps(plain, indent=1, default=str) + "\n")
        return
    from compilediag.views.diff import render_comparison

    following = f"\n  next: compilediag show{suffix_for(after)}\n"
    write(render_comparison(found, look()) + following)
