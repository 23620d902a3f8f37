"""`compilediag stats`: the figures of many receipts together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from compilediag.commands.receipts import suffix_for
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import json_text, render_options, write, write_document
from compilediag.errors import UsageError
from compilediag.extensions.fleet.commands.fleet import (
    FleetOptions,
    notes_below,
    receipts_in,
    receipts_read,
)
from compilediag.extensions.fleet.entry import Entry, as_presets
from compilediag.extensions.fleet.folder import TABLE_SUFFIX
from compilediag.extensions.fleet.stats import stats_of
from compilediag.extensions.fleet.table import query, require_duckdb, write_table
from compilediag.extensions.fleet.views.stats import render_stats
from compilediag.option_fields import flag, option
from compilediag.views.document import Table
from compilediag.views.terminal import render


@dataclass(frozen=True)
class StatsOptions(FleetOptions):
    """Which receipts to sum up, and how."""

    last: int | None = option("--last N", "Only the newest N of each lane.", type=click.IntRange(1))
    by: str = option(
        "--by",
        "One line per lane (default), or one for all lanes of a preset.",
        default="lane",
        type=click.Choice(["lane", "preset"]),
    )
    export: str | None = option(
        "--export FILE", "Write the receipts as a table: a .parquet path or URI."
    )
    sql: str | None = option("--sql QUERY", "Query the table `receipts` in DuckDB's SQL.")
    as_json: bool = flag("--json", "Print the figures as JSON.")


@subcommand(
    "stats",
    StatsOptions,
    examples="""\
  compilediag stats receipts/                       one line per lane
  compilediag stats receipts/ --lane 'gpt-*' --since 30d
  compilediag stats receipts/ --json                with smallest, largest and newest values
  compilediag stats receipts/ --export s3://bucket/receipts.parquet
  compilediag stats receipts.parquet --sql 'SELECT lane, max(recompiles) FROM receipts GROUP BY 1'
""",
)
def command(options: StatsOptions) -> None:
    """Sum up a folder of receipts.

    For each lane: median throughput, step time and goodput, peak memory, and how many of the last
    100 runs passed their checks. DIR is a folder that contains receipt files or runs at any depth
    (default .compilediag), a URI such as s3://bucket/runs, or a .parquet table written by --export.
    Tables need the extra `store`.
    """
    table = options.export is not None or options.sql is not None
    if table:
        _check_table(options)
    fleet = receipts_in(options, options.last)
    if table:
        write(_in_table(fleet.entries, options))
        return
    entries = as_presets(fleet.entries) if options.by == "preset" else fleet.entries
    lanes = stats_of(entries, options.last)
    if options.as_json:
        from compilediag.extensions.fleet.documents import StatsDocument

        found = StatsDocument(schema="compilediag.stats", lanes=lanes, **receipts_read(fleet))
        write_document(found)
        return
    following = f"\n  next: compilediag trend{suffix_for(options.folder)}\n"
    write(render_stats(lanes, render_options()) + notes_below(fleet) + following)


def _check_table(options: StatsOptions) -> None:
    """Before any receipt is read."""
    if options.export is not None and options.sql is not None:
        raise UsageError("--export writes the table and --sql queries it: give one")
    if options.export is not None and not options.export.endswith(TABLE_SUFFIX):
        raise UsageError(f"--export writes Parquet: name a file that ends with {TABLE_SUFFIX}")
    require_duckdb()


def _in_table(entries: Sequence[Entry], options: StatsOptions) -> str:
    """Writes the table, or queries it; what is to be printed."""
    screen = render_options()
    if options.export is not None:
        write_table(entries, options.export)
        return f"Wrote {screen.text(options.export)}: {len(entries):,} receipts\n"
    names, rows = query(entries, options.sql or "")
    if options.as_json:
        from compilediag.extensions.fleet.documents import RowsDocument
        from compilediag.json_document import builtins_of

        found = tuple(dict(zip(names, row, strict=True)) for row in rows)
        return json_text(builtins_of(RowsDocument(schema="compilediag.rows", rows=found)))
    cells = [["" if cell is None else screen.text(cell, 80) for cell in row] for row in rows]
    return render([Table([screen.text(name, 80) for name in names], cells)], screen)
