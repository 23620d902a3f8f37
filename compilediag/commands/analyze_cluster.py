"""`analyze --cluster`: one task a trace on the workers of a Dask cluster, merged by a tree.

Events stay on the workers. What comes here is the receipt of all ranks, which is bounded, and then
the receipt of one rank after the other.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compilediag.errors import UsageError
from compilediag.offline import Record, merged_receipt, rank_receipt, read_source, record_of
from compilediag.readers.inputs import RUN, TRACE, Source
from compilediag.readers.journal import Journal
from compilediag.receipt.schema import Receipt

JOINED = 16
"""Results that one task of the tree puts together."""

CONNECT_S = 20
"""Longest wait for the scheduler, in seconds."""

RETRIES = 3
"""How often a task is tried again, beside those that a lost worker had: they are never lost."""

Journals = tuple[Journal, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the receipts are to say, beside what the traces hold."""

    name: str
    world_size: int | None
    folder: str
    """Where the receipts will lie: files are linked from there."""
    root: str
    """The working directory: files below it are the user's own."""


def connected(address: str) -> Any:
    """A client of the cluster whose scheduler is at `address`: "tcp://host:8786".

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
        return distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error) or type(error).__name__
        raise UsageError(f"no dask scheduler answers at {address}: {why}") from error


def receipts_on(
    client: Any,
    sources: tuple[Source, ...],
    asked: Asked,
    read: Callable[[Source], Journals] = read_source,
) -> Iterator[tuple[int | None, Receipt]]:
    """The receipt of all ranks, with None for its rank; then that of each, where there are several.

    The workers must see the sources under the same paths.
    """
    readable = [source for source in sources if source.kind in {TRACE, RUN}]
    found = [client.submit(read, source, pure=False, retries=RETRIES) for source in readable]
    every = _tree(client, found)
    yield None, client.submit(_merged, sources, every, asked, pure=False).result()
    of_rank: dict[int, list[Any]] = {}
    told = client.gather([client.submit(ranks_in, item, pure=False) for item in found])
    for item, ranks in zip(found, told, strict=True):
        for rank in ranks:
            of_rank.setdefault(rank, []).append(item)
    if len(of_rank) > 1:
        for rank in sorted(of_rank):
            one = client.submit(_one, rank, of_rank.pop(rank), asked, pure=False)
            yield rank, one.result()


def ranks_in(journals: Journals) -> tuple[int, ...]:
    """The ranks of which the journals tell."""
    return Record(journals, None, (), frozenset()).ranks


def _tree(client: Any, futures: Sequence[Any]) -> Any:
    """One future of all results in their order; no task takes more than `JOINED` of them."""
    level = list(futures)
    while len(level) > 1:
        level = [
            client.submit(_joined, level[begin : begin + JOINED], pure=False)
            for begin in range(0, len(level), JOINED)
        ]
    return level[0] if level else ()


def _joined(parts: Sequence[Journals]) -> Journals:
    return tuple(item for part in parts for item in part)


def _merged(sources: tuple[Source, ...], journals: Journals, asked: Asked) -> Receipt:
    record = record_of(sources, journals, asked.root)
    return merged_receipt(record, asked.name, asked.world_size, asked.folder)


def _one(rank: int, parts: Sequence[Journals], asked: Asked) -> Receipt:
    journals = tuple(
        item for item in _joined(parts) if item.started is not None and item.started.rank == rank
    )
    return rank_receipt(Record(journals, None, (), frozenset(), asked.root), asked.name)


def asked_here(name: str, world_size: int | None, folder: str) -> Asked:
    """What a command asks for in this working directory."""
    return Asked(name, world_size, os.path.abspath(folder), os.getcwd())
