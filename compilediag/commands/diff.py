"""`compilediag diff`: what changed between two receipts of one configuration."""

from __future__ import annotations

from dataclasses import dataclass

import click
from msgspec.structs import replace

from compilediag.commands.receipts import announce_page, format_suffix, load_receipt
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import get_render_options, write, write_document
from compilediag.errors import UsageError
from compilediag.option_fields import argument, flag, option

_SIDES = ("before", "after")


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """The receipts to compare."""

    before: str = argument(metavar="A", type=click.Path())
    after: str | None = argument(metavar="[B]", required=False, type=click.Path())
    changed_data: bool = flag(
        "--changed-data", "Compare the counts and causes of a fix that changes data or settings."
    )
    as_json: bool = flag("--json", "Print the comparison as JSON.")
    markdown: bool = flag("--md", "Print Markdown for a pull request.")
    html: str | None = option("--html FILE", "Write the comparison to FILE as one offline page.")


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
    different configurations (another precision, backend or preset) or of different work (samples,
    elements) are refused with exit code 2. With --changed-data they may differ in what a fix
    changes (padding, drop_last, other sizes, dynamic=, a setting, the name of the script): the
    first line names the difference, and counts and causes are compared, but not times and memory.
    """
    from compilediag.compare.diff import DiffDocument, compare

    if sum((options.as_json, options.markdown, options.html is not None)) > 1:
        raise UsageError("--json, --md and --html are different formats: choose one")
    (first, before), (second, after) = load_receipt(options.before), load_receipt(options.after)
    comparison = compare(before, after, other_data=options.changed_data)
    if options.as_json:
        changed = comparison.changed
        document = DiffDocument(schema="compilediag.diff", changed=changed, comparison=comparison)
        write_document(document)
        return
    from compilediag.views.diff import show_comparison
    from compilediag.views.style import RenderOptions

    screen = get_render_options()
    if options.markdown or options.html is not None:
        screen = RenderOptions(root=screen.root)
    overview = show_comparison(comparison, screen)
    if options.markdown:
        from compilediag.views.markdown import render_overview

        write(render_overview(overview))
        return
    following = f"\n  next: compilediag show{format_suffix(options.after)}\n"
    if options.html is not None:
        from compilediag.runs.offline.html_file import load_assets, write_page
        from compilediag.views.html.page import render_overview as page_of

        sides = zip(_SIDES, (first, second), (before.receipt_id, after.receipt_id), strict=True)
        rows = [(side, screen.clean(f"{path} ({identity})", 200)) for side, path, identity in sides]
        write_page(options.html, page_of(replace(overview, facts=rows), load_assets()))
        write(f"{announce_page(options.html)}\n{following}")
        return
    from compilediag.views.terminal import render_overview as screen_of

    write(screen_of(overview, screen) + following)
