"""`compilediag analyze`: receipts of traces, text logs and run directories, from anywhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from compilediag.commands.arguments import PATH
from compilediag.commands.help import Command
from compilediag.commands.screen import write
from compilediag.errors import UsageError
from compilediag.views.text import clean

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from compilediag.readers.inputs import Source
    from compilediag.records import Record


@click.command(
    name="analyze",
    cls=Command,
    epilog="""\b
Examples:
  compilediag analyze traces/                       what TORCH_TRACE=traces/ wrote, all ranks
  compilediag analyze rank_0.log.gz rank_1.log.zst --ranks
  compilediag analyze torch_logs.txt                the output of TORCH_LOGS=recompiles
  compilediag analyze train.log --steps             what a trainer printed: steps, throughput
  compilediag analyze s3://bucket/traces            whatever fsspec knows: s3, gs, hf, https
""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=PATH)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    help="Folder for the receipts; .compilediag/<time>-analyze-<pid> by default.",
)
@click.option("--name", metavar="NAME", help="Lane of the receipts; the first PATH's by default.")
@click.option(
    "--world-size",
    metavar="N",
    type=click.IntRange(1, 10_000_000),
    help="Ranks there should be; by default as many as the highest rank implies.",
)
@click.option(
    "-j",
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 1024),
    help="Processes that read; by default one a core, and one where there is little to read.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Read on the workers of a Dask cluster; the address of its scheduler: tcp://host:8786.",
)
@click.option(
    "--patterns",
    metavar="FILE",
    type=PATH,
    help="TOML file with the lines of trainers that are not known; see docs/trainlog.md.",
)
@click.option(
    "--warmup",
    metavar="N",
    type=click.IntRange(0, 1_000_000_000),
    help="Steps of a trainer's output that are warm-up; found by themselves by default.",
)
@click.option("--tlparse", is_flag=True, help="Link tlparse's reports of the traces.")
@click.option("--all", "complete", is_flag=True, help="Every finding and note, not one screen.")
@click.option("--frames", is_flag=True, help="Per frame: compiles, guards, room below the limit.")
@click.option("--timeline", is_flag=True, help="Compile by compile: seconds, cause.")
@click.option("--steps", is_flag=True, help="Step times, and the steps that took long.")
@click.option("--ranks", is_flag=True, help="Rank by rank, and where ranks do not do the same.")
@click.option("--md", "markdown", is_flag=True, help="Markdown for a pull request.")
@click.option("--json", "as_json", is_flag=True, help="The receipt itself.")
def command(
    paths: tuple[str, ...],
    *,
    output: str | None,
    name: str | None,
    world_size: int | None,
    jobs: int | None,
    cluster: str | None,
    patterns: str | None,
    warmup: int | None,
    tlparse: bool,
    **views: bool,
) -> None:
    """Explain traces and logs of runs that are over, from any machine.

    PATH is a file of TORCH_TRACE or TORCH_LOGS (plain, .gz or .zst), what a trainer printed, a run
    directory of compilediag, or a folder that holds any of them; or the URI of one, with the extra
    `store`. Ranks get a receipt each and one together.
    """
    chosen = [view for view, asked in views.items() if asked]
    if len(chosen) > 1:
        raise UsageError(
            "--all, --frames, --timeline, --steps, --ranks, --md and --json are different views; "
            "give one"
        )
    here = (tlparse, jobs is not None, patterns is not None, warmup is not None)
    if cluster is not None and any(here):
        raise UsageError(
            "--cluster reads elsewhere, --jobs, --tlparse, --patterns and --warmup work here; "
            "give one"
        )
    from compilediag.commands.show import drawn
    from compilediag.offline import find_sources, read_sources, workers_worth
    from compilediag.readers.train_shapes import shapes_with

    shapes = shapes_with(patterns)
    sources = find_sources(paths, shapes)
    lane = name or _lane(paths)
    if cluster is not None:
        folder = _on_cluster(cluster, sources, output, lane, world_size)
    else:
        with _workers(jobs or workers_worth(sources)) as executor:
            record = read_sources(sources, executor, shapes)
            record = replace(record, warmup=warmup)
            folder = _here(record, output, lane, world_size, executor, tlparse=tlparse)
    if output is None:
        from compilediag.receipt.locate import point_latest

        point_latest(folder)
    write(drawn(chosen[0] if chosen else "", folder if output is not None else None))


def _folder(output: str | None) -> str:
    from compilediag.supervisor.output import make_run_dir

    return make_run_dir(output, "analyze", now=time.time(), pid=os.getpid())


def _lane(paths: tuple[str, ...]) -> str:
    return os.path.basename(os.path.abspath(paths[0])) or "analyze"


def _workers(number: int) -> AbstractContextManager[Executor | None]:
    """Processes to work in; none where this one does the work alone."""
    if number < 2:
        return nullcontext()
    from compilediag.pooled import pool_of

    return pool_of(number)


def _here(
    record: Record,
    output: str | None,
    name: str,
    world_size: int | None,
    executor: Executor | None,
    *,
    tlparse: bool,
) -> str:
    """Writes the receipts: all ranks together, and each where there are several; their folder."""
    from compilediag.offline import merged_receipt, rank_receipts
    from compilediag.receipt.file import write_receipt
    from compilediag.receipt.locate import RECEIPT_NAME

    folder = _folder(output)
    receipt = merged_receipt(record, name, world_size, folder)
    if tlparse:
        from compilediag.commands.analyze_tlparse import with_reports

        receipt, notes = with_reports(receipt, record, folder)
        for note in notes:
            print(f"compilediag: {clean(note, limit=2000)}", file=sys.stderr)
    write_receipt(receipt, os.path.join(folder, RECEIPT_NAME))
    if len(record.ranks) > 1:
        for rank, receipt in rank_receipts(record, name, executor):
            write_receipt(receipt, os.path.join(folder, f"rank-{rank}", RECEIPT_NAME))
    return folder


def _on_cluster(
    address: str,
    sources: tuple[Source, ...],
    output: str | None,
    name: str,
    world_size: int | None,
) -> str:
    """Writes the same receipts as they come from the workers; the folder they lie in."""
    from compilediag.commands.analyze_cluster import asked_here, connected, receipts_on
    from compilediag.receipt.file import write_receipt
    from compilediag.receipt.locate import RECEIPT_NAME

    with connected(address) as client:
        folder = _folder(output)
        for rank, receipt in receipts_on(client, sources, asked_here(name, world_size, folder)):
            part = "" if rank is None else f"rank-{rank}"
            write_receipt(receipt, os.path.join(folder, part, RECEIPT_NAME))
    return folder
