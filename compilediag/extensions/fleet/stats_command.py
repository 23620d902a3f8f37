"""`compilediag history stats`: the figures of many receipts together."""

from __future__ import annotations

from dataclasses import dataclass

import click

from compilediag.commands.receipts import format_suffix
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import get_render_options, write, write_document
from compilediag.extensions.fleet.entry import merge_by_preset
from compilediag.extensions.fleet.options import (
    FleetOptions,
    StatsDocument,
    load_receipts,
    make_fleet_fields,
)
from compilediag.extensions.fleet.stats import compute_stats, format_notes, render_stats
from compilediag.option_fields import flag, option


@dataclass(frozen=True)
class StatsOptions(FleetOptions):
    """The receipts to sum up, and how."""

    last: int | None = option(
        "--last N", "Only the newest N of each configuration.", type=click.IntRange(1)
    )
    by: str = option(
        "--by",
        "One line per configuration (default), or one for all those of a preset.",
        default="configuration",
        type=click.Choice(["configuration", "lane", "preset"]),
    )
    as_json: bool = flag("--json", "Print the figures as JSON.")


@subcommand(
    "stats",
    StatsOptions,
    examples="""\
  compilediag history stats receipts/                       one line per configuration
  compilediag history stats receipts/ --configuration 'gpt-*' --since 30d
  compilediag history stats receipts/ --json                with smallest, largest and newest values
""",
)
def command(options: StatsOptions) -> None:
    """Sum up a folder of receipts.

    For each configuration: median throughput, step time and goodput, peak memory, and how many of
    the last 100 runs passed their checks. DIR is a folder that contains receipt files or runs at
    any depth (default .compilediag), or a URI such as s3://bucket/runs.
    """
    fleet = load_receipts(options)
    entries = merge_by_preset(fleet.entries) if options.by == "preset" else fleet.entries
    stats = compute_stats(entries, options.last)
    if options.as_json:
        read = make_fleet_fields(fleet)
        write_document(StatsDocument(schema="compilediag.stats", configurations=stats, **read))
        return
    following = f"\n  next: compilediag history trend{format_suffix(options.folder)}\n"
    screen = get_render_options()
    write(render_stats(stats, screen) + format_notes(fleet.problems, screen) + following)
