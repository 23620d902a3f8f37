"""`compilediag analyze`: receipts of traces, text logs and run directories, from anywhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.help import Command
from compilediag.commands.params import PATH
from compilediag.commands.terminal import write
from compilediag.errors import UsageError
from compilediag.views.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from compilediag.readers.inputs import Source
    from compilediag.readers.train_logs.patterns import LinePattern
    from compilediag.runs.offline.many_ranks import ReceiptOptions


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
    directory of compilediag, or a folder that holds any of them; or the URI of one. Ranks get a
    receipt each and one together.
    """
    view = _view(views)
    if cluster is not None:
        _check_nothing_works_here(tlparse, jobs, patterns, warmup)
    from compilediag.commands.show import drawn
    from compilediag.readers.train_logs.patterns import shapes_with
    from compilediag.runs.offline.sources import find_sources, workers_worth

    shapes = None if patterns is None else patterns_with(patterns)
    sources = find_sources(paths, shapes)
    lane = name or _lane(paths)
    from compilediag.runs.offline.many_ranks import options_here

    if cluster is not None:
        from compilediag.commands.analyze_cluster import connected

        with connected(cluster) as client:
            folder = _folder(output)
            _on_cluster(client, sources, options_here(lane, world_size, folder))
    else:
        folder = _folder(output)
        asked = options_here(lane, world_size, folder, warmup)
        with _workers(jobs or workers_worth(sources)) as executor:
            _here(sources, asked, executor, shapes, tlparse=tlparse)
    if output is None:
        from compilediag.receipt.locate import point_latest

        point_latest(folder)
    write(drawn(view, folder if output is not None else None))


def _view(views: dict[str, bool]) -> str:
    """The one that is asked for; "" for the verdict."""
    chosen = [view for view, asked in views.items() if asked]
    if len(chosen) > 1:
        raise UsageError(
            "--all, --frames, --timeline, --steps, --ranks, --md and --json are different views; "
            "give one"
        )
    return chosen[0] if chosen else ""


def _check_nothing_works_here(
    tlparse: bool, jobs: int | None, patterns: str | None, warmup: int | None
) -> None:
    if tlparse or any(given is not None for given in (jobs, patterns, warmup)):
        raise UsageError(
            "--cluster reads elsewhere, --jobs, --tlparse, --patterns and --warmup work here; "
            "give one"
        )


def _folder(output: str | None) -> str:
    from compilediag.runs.run_directory import make_run_dir

    return make_run_dir(output, "analyze", now=time.time(), pid=os.getpid())


def _lane(paths: tuple[str, ...]) -> str:
    return os.path.basename(os.path.abspath(paths[0])) or "analyze"


def _workers(number: int) -> AbstractContextManager[Executor | None]:
    """Processes to work in; none where this one does the work alone."""
    if number < 2:
        return nullcontext()
    from compilediag.readers.parallel import pool_of

    return pool_of(number)


def _here(
    sources: tuple[Source, ...],
    asked: ReceiptOptions,
    executor: Executor | None,
    shapes: Sequence[LinePattern] | None,
    *,
    tlparse: bool,
) -> None:
    """Writes the receipts: all ranks together, and each where there are several."""
    from compilediag.receipt.file import write_receipt
    from compilediag.receipt.locate import receipt_in
    from compilediag.runs.offline.many_ranks import are_many, receipt_of_many

    if are_many(sources) and not tlparse:
        receipt = receipt_of_many(sources, asked, executor, shapes)
        write_receipt(receipt, receipt_in(asked.folder))
        return
    from compilediag.runs.offline.receipts import merged_receipt, rank_receipts
    from compilediag.runs.offline.sources import read_sources

    record = replace(read_sources(sources, executor, shapes), warmup=asked.warmup)
    receipt = merged_receipt(record, asked.name, asked.world_size, asked.folder)
    if tlparse:
        from compilediag.commands.analyze_tlparse import with_reports

        receipt, notes = with_reports(receipt, record, asked.folder)
        for note in notes:
            print(f"compilediag: {clean(note, limit=2000)}", file=sys.stderr)
    write_receipt(receipt, receipt_in(asked.folder))
    if len(record.ranks) > 1:
        for rank, receipt in rank_receipts(record, asked.name, executor):
            write_receipt(receipt, receipt_in(asked.folder, rank), flushed=False)


def _on_cluster(client: Any, sources: tuple[Source, ...], asked: ReceiptOptions) -> None:
    """Writes the same receipts as they come from the workers."""
    from compilediag.commands.analyze_cluster import receipts_on
    from compilediag.receipt.file import write_receipt
    from compilediag.receipt.locate import receipt_in

    for rank, receipt in receipts_on(client, sources, asked):
        write_receipt(receipt, receipt_in(asked.folder, rank), flushed=rank is None)
