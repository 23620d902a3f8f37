"""`compilediag diff`: what changed between two receipts of one lane."""

from __future__ import annotations

from dataclasses import dataclass

import click

from compilediag.commands.receipts import load, suffix_for
from compilediag.commands.subcommand import argument, flag, subcommand
from compilediag.commands.terminal import render_options, write, write_json
from compilediag.errors import UsageError


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What to compare."""

    before: str = argument(metavar="A", type=click.Path())
    after: str | None = argument(metavar="[B]", required=False, type=click.Path())
    changed_data: bool = flag(
        "--changed-data", "Compare counts and causes of a fix that changes data or settings."
    )
    as_json: bool = flag("--json", "The comparison as JSON.")
    markdown: bool = flag("--md", "Markdown for a pull request.")


@subcommand(
    "diff",
    DiffOptions,
    examples="""\
  compilediag diff .compilediag/20261120-before .compilediag/latest
  compilediag diff main.json                        against the latest run
  compilediag diff main.json --changed-data         the latest run pads, or drops the last batch
""",
)
def command(options: DiffOptions) -> None:
    """Compare two receipts: counts, causes, graph breaks, frames.

    A and B are receipt files or folders of runs; B is the latest run by default. Receipts of
    different lanes (another precision, backend or preset) or of other work (samples, elements) are
    refused with exit code 2. With --changed-data they may differ in what a fix changes (padding,
    drop_last, other sizes, dynamic=, a setting, the name of the script): the first line names it,
    counts and causes are compared, times and memory of other work are not.
    """
    from compilediag.compare.diff import compare

    if options.as_json and options.markdown:
        raise UsageError("--json and --md are two formats: choose one")
    before, after = load(options.before)[1], load(options.after)[1]
    found = compare(before, after, other_data=options.changed_data)
    if options.as_json:
        from msgspec import to_builtins

        write_json({"changed": found.changed, **to_builtins(found)})
        return
    if options.markdown:
        from compilediag.views.diff_markdown import render_markdown

        write(render_markdown(found, render_options().root))
        return
    from compilediag.views.diff import render_comparison

    following = f"\n  next: compilediag show{suffix_for(options.after)}\n"
    write(render_comparison(found, render_options()) + following)
