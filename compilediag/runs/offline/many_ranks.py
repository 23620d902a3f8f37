"""Receipts of many ranks, read in this process, in those of this machine, or on a cluster.

A task reads a few traces, and each rank's receipt is written where it was read, if that is here.

A task returns the fingerprint of each rank, and the events of the lowest ranks where they are few.
The fingerprints decide which ranks the receipt of all lists, and the sources of these are read
again where needed: no process ever holds the events of all ranks.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from compilediag.diagnosis.ranks.divergence import MAX_EVENTS, MAX_RANKS, MIN_RANKS
from compilediag.diagnosis.ranks.summary import RankFingerprint, RankSummary
from compilediag.errors import UsageError
from compilediag.readers.inputs import Input, TrainLogReader
from compilediag.readers.parallel import map_ordered
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import get_receipt_path
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.offline.receipts import (
    Journals,
    RankPart,
    build_listed_receipt,
    build_summaries,
    choose_ranks,
    collect_parts,
    diagnose_rank,
    group_by_rank,
    merged_receipt,
    select_journals,
)
from compilediag.runs.offline.sources import (
    LoadedSources,
    collect_named_ranks,
    load_sources,
    parse_named_rank,
    read_source,
    select_readable,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

SOURCES_PER_TASK = 8
"""Submitting a task to a worker and fetching its result costs half of reading a small trace."""

MAX_RETURNED_EVENTS = MAX_EVENTS // MAX_RANKS
"""Most events of a source that a task returns."""

CONNECT_S = 20

RETRIES = 3
"""How often a task is tried again, beside those that a lost worker had: they are never lost."""


@dataclass(frozen=True, slots=True)
class ReceiptOptions:
    """Options of the receipts, beside the contents of the traces."""

    name: str
    world_size: int | None
    folder: str
    """Absolute, where the receipts lie: files are linked from there."""
    warmup: int | None = None
    """Steps of a trainer's output that are warm-up, if the user gives the count."""
    elsewhere: bool = False
    """Tasks run on other machines: the receipts of ranks come here, and are written here."""
    root: str = field(default_factory=os.getcwd)
    """The working directory: files below it are the user's own."""


def are_many(sources: Sequence[Input]) -> bool:
    """There are more ranks than a receipt lists in any case."""
    return len(select_readable(sources)) > MIN_RANKS


def build_receipt_of_many(
    sources: tuple[Input, ...],
    options: ReceiptOptions,
    executor: Executor | None = None,
    trainers: TrainLogReader | None = None,
) -> Receipt:
    """Build the receipt of all ranks; that of each rank is in the folder when this returns.

    Raises:
        OutputUnwritable: the folder or the disk does not take them.
    """
    readable = select_readable(sources)
    fingerprints, held = _read_all(readable, options, executor)

    def list_sources(part: RankPart) -> list[Input]:
        return [readable[index] for index in part.sources]

    # A rank with several sources did what all of them contain.
    parts = collect_parts(fingerprints)
    spread = [index for index, (part, _) in enumerate(parts) if len(part.sources) > 1]
    merges = [(parts[index][0], list_sources(parts[index][0])) for index in spread]
    merged = map_ordered(partial(_merge_sources, options=options), merges, executor)
    for index, (fingerprint, receipt) in zip(spread, merged, strict=True):
        _write(receipt, fingerprint, options)
        parts[index] = parts[index][0], fingerprint
    by_rank = {part.rank: part for part, _ in parts if part.rank is not None}

    @cache
    def read_summary(rank: int) -> RankSummary:
        part = by_rank[rank]
        read = map_ordered(read_source, list_sources(part), executor)
        return build_summaries(select_journals(part, read))[0]

    part_fingerprints = [fingerprint for _, fingerprint in parts]
    named = collect_named_ranks(sources)
    choice = choose_ranks(part_fingerprints, options.world_size, named, read_summary)
    listed = [part for index, (part, _) in enumerate(parts) if choice.is_listed(index)]
    again = sorted({index for part in listed for index in part.sources if index not in held})
    fresh = map_ordered(read_source, [readable[index] for index in again], executor)
    held.update(zip(again, fresh, strict=True))
    journals = [
        journal
        for part in listed
        for journal in select_journals(part, (held[index] for index in part.sources))
    ]
    loaded = load_sources(sources, journals, options.root, trainers)
    loaded = replace(loaded, warmup=options.warmup)
    if choice.unlisted is None:
        return merged_receipt(loaded, options.name, options.world_size, options.folder)
    return build_listed_receipt(loaded, options.name, choice, options.folder)


def _read_all(
    readable: Sequence[Input], options: ReceiptOptions, executor: Executor | None
) -> tuple[list[list[RankFingerprint]], dict[int, Journals]]:
    """Read the fingerprints of each source, and the journals of some; receipts are written."""
    lowest = find_lowest_ranks(readable)
    numbered = [(source, index in lowest) for index, source in enumerate(readable)]
    begins = range(0, len(numbered), SOURCES_PER_TASK)
    tasks = (numbered[begin : begin + SOURCES_PER_TASK] for begin in begins)
    fingerprints: list[list[RankFingerprint]] = []
    held: dict[int, Journals] = {}
    for several in map_ordered(partial(_read_some, options=options), tasks, executor):
        for made, journals in several:
            for fingerprint, receipt in made:
                _write(receipt, fingerprint, options)
            if journals:
                held[len(fingerprints)] = journals
            fingerprints.append([fingerprint for fingerprint, _ in made])
    return fingerprints, held


def find_lowest_ranks(readable: Sequence[Input]) -> frozenset[int]:
    """Find the sources that are probably listed, by index: the lowest ranks, by file name."""
    ranks = [parse_named_rank(source) for source in readable]
    order = sorted(range(len(readable)), key=lambda at: (ranks[at] is None, ranks[at] or 0, at))
    return frozenset(order[:MAX_RANKS])


@contextmanager
def connect_workers(address: str) -> Generator[Executor, None, None]:
    """Connect to the Dask cluster whose scheduler is at `address`: "tcp://host:8786". Its workers
    must see the sources under the same paths, or open their URIs.

    Raises:
        UsageError: dask is not installed here, or the scheduler does not answer.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise UsageError(
            "--cluster needs dask, which is not installed: pip install 'compilediag[dask]', here "
            "and on the workers; --jobs N needs nothing"
        ) from None
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error) or type(error).__name__
        raise UsageError(f"no dask scheduler answers at {address}: {why}") from error
    with client:
        yield client.get_executor(pure=False, retries=RETRIES)


# Invariant: what follows runs in workers, so its arguments and results are picklable.


PartResult = tuple[RankFingerprint, "Receipt | None"]
"""Of a rank or process, as if there were no other source; the receipt is None where it is written
already, and of a process without a rank."""


def _read_some(
    tasks: Sequence[tuple[Input, bool]], options: ReceiptOptions
) -> list[tuple[list[PartResult], Journals]]:
    """Read sources, each with a flag to return its journals, unless they are too large."""
    results: list[tuple[list[PartResult], Journals]] = []
    for source, returned in tasks:
        journals = read_source(source)
        few = sum(len(journal.events) for journal in journals) <= MAX_RETURNED_EVENTS
        made = [_diagnose_part(part, options) for part in group_by_rank(journals)]
        results.append((made, journals if returned and few else ()))
    return results


def _merge_sources(task: tuple[RankPart, Sequence[Input]], options: ReceiptOptions) -> PartResult:
    """Diagnose a rank with several sources."""
    part, sources = task
    return _diagnose_part(select_journals(part, map(read_source, sources)), options)


def _diagnose_part(journals: Journals, options: ReceiptOptions) -> PartResult:
    """Make the fingerprint of a part, and the receipt of a rank where that is not written here."""
    loaded = LoadedSources(tuple(journals), root=options.root)
    fingerprint, receipt = diagnose_rank(loaded, options.name)
    if options.elsewhere:
        return fingerprint, receipt
    _write(receipt, fingerprint, options)
    return fingerprint, None


def _write(receipt: Receipt | None, fingerprint: RankFingerprint, options: ReceiptOptions) -> None:
    """Write a rank's receipt, not waiting for the disk: after a power failure all is read again."""
    if receipt is not None and fingerprint.rank is not None:
        write_receipt(receipt, get_receipt_path(options.folder, fingerprint.rank), flushed=False)
