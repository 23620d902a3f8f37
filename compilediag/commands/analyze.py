"""`compilediag analyze`: receipts of traces, text logs and run directories, from anywhere."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import click
from msgspec.structs import replace as changed

from compilediag import extension_points
from compilediag.commands.show import Views, render_views
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import write, write_message
from compilediag.errors import UsageError
from compilediag.option_fields import argument, flag, option
from compilediag.readers.inputs import TRACE, TrainLogReader
from compilediag.readers.storage import copy_files, is_uri
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import get_receipt_path, link_latest
from compilediag.runs.offline import find_sources, merged_receipt, rank_receipts, read_sources
from compilediag.runs.run_directory import get_run_name, list_reports, make_artifact, make_run_dir
from compilediag.runs.tools.tlparse import link_reports
from compilediag_harness.redaction.redactor import list_secret_values


@dataclass(frozen=True)
class ReadOptions:
    """Sources to read, and how."""

    paths: tuple[str, ...] = argument(
        default=(), metavar="PATH...", nargs=-1, required=True, type=click.Path()
    )
    output: str | None = option(
        "-o --output DIR", "Folder for the receipts; default: .compilediag/<time>-analyze-<pid>."
    )
    name: str | None = option(
        "--name NAME", "Configuration of the receipts; default: the name of the first PATH."
    )
    world_size: int | None = option(
        "--world-size N",
        "Number of ranks; by default as many as the highest rank implies.",
        type=click.IntRange(1, 10_000_000),
    )
    patterns: str | None = option(
        "--patterns FILE",
        "TOML file that describes the lines of other trainers; see docs/howto/trainlog.md.",
        type=click.Path(),
    )
    warmup: int | None = option(
        "--warmup N",
        "Warm-up steps of a trainer's output; found automatically by default.",
        type=click.IntRange(0, 1_000_000_000),
    )
    tlparse: bool = flag("--tlparse", "Link tlparse's reports of the traces.")


@dataclass(frozen=True)
class AnalyzeOptions(Views, ReadOptions):
    """Sources to read, and which view of them to show."""


@subcommand(
    "analyze",
    AnalyzeOptions,
    examples="""\
  compilediag analyze traces/                       what TORCH_TRACE=traces/ wrote, all ranks
  compilediag analyze rank_0.log.gz rank_1.log.zst --ranks
  compilediag analyze torch_logs.txt                the output of TORCH_LOGS=recompiles
  compilediag analyze train.log --steps             what a trainer printed: steps, throughput
  compilediag analyze s3://bucket/traces            any URI of fsspec: s3, gs, hf, https
""",
)
def command(options: AnalyzeOptions) -> None:
    """Explain the traces and logs of finished runs, from any machine.

    PATH is a file written by TORCH_TRACE or TORCH_LOGS (plain, .gz or .zst), the output of a
    trainer, a run directory of compilediag, or a folder that contains any of them; or a URI. Each
    rank gets a receipt, and all ranks together get one.
    """
    views = options.choose_views()
    trainers = None
    if options.patterns is not None:
        reader_of = extension_points.load(extension_points.TRAIN_LOG_READER, "--patterns")
        trainers = reader_of(options.patterns)
    folder = _write_receipts(options, trainers)
    if options.output is None:
        link_latest(folder)
    write(render_views(views, folder if options.output is not None else None))


def _write_receipts(options: ReadOptions, trainers: TrainLogReader | None) -> str:
    """Write the receipts: all ranks together, each where there are several; return the folder."""
    make_dir = partial(make_run_dir, options.output, "analyze", now=time.time(), pid=os.getpid())
    if any(map(is_uri, options.paths)):
        folder = make_dir()
        sources = find_sources(_copy_from_uris(options.paths, folder), trainers)
    else:
        sources = find_sources(options.paths, trainers)
        folder = make_dir()
    folder_name = os.path.basename(os.path.abspath(options.paths[0]))
    name = options.name or get_run_name(folder_name) or folder_name or "analyze"
    record = replace(read_sources(sources), warmup=options.warmup)
    receipt = merged_receipt(record, name, options.world_size, folder)
    if options.tlparse:
        logs = [source.path for source in record.sources if source.kind == TRACE]
        linked = link_reports(logs, folder, list_secret_values((), os.environ))
        for note in linked.notes:
            write_message(note)
        links = (make_artifact(path, folder) for path in list_reports(folder))
        receipt = changed(
            receipt,
            artifacts=(*receipt.artifacts, *links),
            extensions={**receipt.extensions, **linked.extensions},
        )
    write_receipt(receipt, get_receipt_path(folder))
    if len(record.ranks) > 1:
        for rank, own in rank_receipts(record, name):
            write_receipt(own, get_receipt_path(folder, rank), flushed=False)
    return folder


def _copy_from_uris(paths: Sequence[str], folder: str) -> list[str]:
    """Copy what lies at URIs into a folder of the receipts, so that these can link it."""
    try:
        return [
            copy_files(path, os.path.join(folder, "copied", str(number))) if is_uri(path) else path
            for number, path in enumerate(paths, start=1)
        ]
    except UsageError:
        shutil.rmtree(folder, ignore_errors=True)  # ours and new
        raise
