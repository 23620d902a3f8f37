"""`compilediag stats`: what many receipts say together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.fleet_options import choice_of, fleet_options, receipts_in
from compilediag.commands.help import Command
from compilediag.commands.terminal import look, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compilediag.fleet.entry import Entry


@click.command(
    name="stats",
    cls=Command,
    epilog="""\b
Examples:
  compilediag stats receipts/                       a line a lane
  compilediag stats receipts/ --lane 'gpt-*' --since 30d
  compilediag stats receipts/ --json                with smallest, largest and newest values
  compilediag stats receipts/ --export s3://bucket/receipts.parquet
  compilediag stats receipts.parquet --sql 'SELECT lane, max(recompiles) FROM receipts GROUP BY 1'
""",
)
@fleet_options
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the newest N of each lane.")
@click.option(
    "--by",
    type=click.Choice(["lane", "preset"]),
    default="lane",
    help="A line a lane (default), or one for all lanes of a preset.",
)
@click.option(
    "--export", metavar="FILE", help="Write the receipts as a table: a .parquet path or URI."
)
@click.option("--sql", metavar="QUERY", help="Ask the table `receipts` a question in DuckDB's SQL.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
def command(
    folder: str | None,
    *,
    last: int | None,
    by: str,
    export: str | None,
    sql: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Sum up a folder of receipts.

    Per lane: median throughput, step time and goodput, peak memory, and how many of the last 100
    runs passed their checks. DIR is a folder of receipt files or of runs, at any depth (default
    .compilediag), a URI such as s3://bucket/runs, or a .parquet table that --export wrote. Tables
    need the extra `store`.
    """
    from compilediag.fleet.lanes import as_presets
    from compilediag.fleet.stats import stats_of

    if export is not None or sql is not None:
        _check_table(export, sql)
    fleet = receipts_in(folder, choice_of(given), last if given["indexed"] else None)
    if export is not None or sql is not None:
        write(_in_table(fleet.entries, export, sql or "", as_json=as_json))
        return
    entries = as_presets(fleet.entries) if by == "preset" else fleet.entries
    lanes = stats_of(entries, last)
    if as_json:
        from compilediag.commands.fleet_json import stats_as_json

        write(stats_as_json(lanes, fleet))
        return
    from compilediag.commands.receipts import suffix_for
    from compilediag.views.fleet import notes
    from compilediag.views.stats import render_stats

    told = notes(fleet.problems, fleet.notes, look())
    below = "\n" + "\n".join(told) + "\n" if told else ""
    following = f"\n  next: compilediag trend{suffix_for(folder)}\n"
    write(render_stats(lanes, look()) + below + following)


def _check_table(export: str | None, sql: str | None) -> None:
    """Before any receipt is read."""
    from compilediag.errors import UsageError
    from compilediag.fleet.folder import TABLE_SUFFIX
    from compilediag.fleet.table import require_duckdb

    if export is not None and sql is not None:
        raise UsageError("--export writes the table and --sql asks it: give one")
    if export is not None and not export.endswith(TABLE_SUFFIX):
        raise UsageError(f"--export writes Parquet: name a file that ends with {TABLE_SUFFIX}")
    require_duckdb()


def _in_table(entries: Sequence[Entry], export: str | None, sql: str, *, as_json: bool) -> str:
    """Writes the table, or asks it; what is to be printed."""
    from compilediag.fleet.table import query, write_table

    if export is not None:
        write_table(entries, export)
        return f"Wrote {look().text(export)}: {len(entries):,} receipts\n"
    names, rows = query(entries, sql)
    if as_json:
        import json

        plain = [dict(zip(names, row, strict=True)) for row in rows]
        return json.dumps(plain, indent=1, default=str) + "\n"
    from compilediag.views.table import table

    screen = look()
    cells = [["" if cell is None else screen.text(cell, 80) for cell in row] for row in rows]
    return "\n".join(table([screen.text(name, 80) for name in names], cells, screen)) + "\n"
