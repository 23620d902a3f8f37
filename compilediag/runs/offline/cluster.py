"""`analyze --cluster`: one task a trace on the workers of a Dask cluster, merged by a tree.

Events stay on the workers that read them. What the tree brings here is each rank in some hundred
bytes; they decide which ranks the receipt of all lists, and only the events of these go to
one worker. Then the receipts of single ranks come, a few at a time.
"""

from __future__ import annotations

import importlib
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from compilediag.diagnosis.ranks.summary import RankFingerprint, RankSummary
from compilediag.errors import UsageError
from compilediag.readers.inputs import Input
from compilediag.readers.parallel import AHEAD
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.offline.many_ranks import (
    ReceiptOptions,
    journals_of_parts,
    receipt_of_chosen,
)
from compilediag.runs.offline.rank_choice import (
    Journals,
    RankChoice,
    RankPart,
    choice_of,
    fingerprint_in,
    journals_of,
    parts_in,
    parts_of,
    summary_in,
)
from compilediag.runs.offline.receipts import rank_receipt
from compilediag.runs.offline.sources import (
    LoadedSources,
    load,
    ranks_named,
    read_source,
    readable_in,
)

JOINED = 16
"""Results that one task of the tree puts together."""

CONNECT_S = 20
"""Longest wait for the scheduler, in seconds."""

RETRIES = 3
"""How often a task is tried again, beside those that a lost worker had: they are never lost."""


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
    sources: tuple[Input, ...],
    asked: ReceiptOptions,
    read: Callable[[Input], Journals] = read_source,
) -> Iterator[tuple[int | None, Receipt]]:
    """The receipt of all ranks, with None for its rank; then that of each, where there are several.

    The workers must see the sources under the same paths, or open their URIs.
    """
    readable = readable_in(sources)
    found = [client.submit(read, source, pure=False, retries=RETRIES) for source in readable]

    def together(several: Sequence[RankPart]) -> tuple[RankFingerprint, ...]:
        tasks = [
            client.submit(_brief, part, _of(part, found), asked, pure=False) for part in several
        ]
        return _tree(client, tasks)

    held = _tree(client, [client.submit(_briefs_in, item, asked, pure=False) for item in found])
    parts, briefs = parts_in(held, together)
    by_rank = {part.rank: part for part in parts if part.rank is not None}

    def summary_of(rank: int) -> RankSummary:
        part = by_rank[rank]
        return client.submit(_summary, part, _of(part, found), pure=False).result()

    chosen = choice_of(briefs, asked.world_size, ranks_named(sources), cache(summary_of))
    listed = chosen.of(parts)
    at = sorted({place for part in listed for place in part.sources})
    wanted = [found[place] for place in at]
    with warnings.catch_warnings():
        # The briefs of very many ranks are some megabytes, sent once.
        warnings.filterwarnings("ignore", message="Sending large graph")
        merged = client.submit(_merged, sources, at, wanted, listed, asked, chosen, pure=False)
    yield None, merged.result()
    del merged
    if len(by_rank) > 1:
        yield from _each_rank(client, [by_rank[rank] for rank in sorted(by_rank)], found, asked)


def _of(part: RankPart, found: Sequence[Any]) -> list[Any]:
    """What was read of its sources."""
    return [found[place] for place in part.sources]


def _each_rank(
    client: Any, parts: Sequence[RankPart], found: Sequence[Any], asked: ReceiptOptions
) -> Iterator[tuple[int, Receipt]]:
    """The receipts of single ranks, in order; a few are made ahead, and few wait here."""
    waiting: deque[tuple[int, Any]] = deque()
    for part in parts:
        one = client.submit(_one, part, _of(part, found), asked, pure=False)
        waiting.append((part.rank or 0, one))
        if len(waiting) >= AHEAD:
            rank, first = waiting.popleft()
            yield rank, first.result()
    for rank, one in waiting:
        yield rank, one.result()


def _tree(client: Any, futures: Sequence[Any]) -> tuple[Any, ...]:
    """All results, which are tuples, in their order; no task takes more than `JOINED` of them."""
    level = list(futures)
    while len(level) > 1:
        level = [
            client.submit(_joined, level[begin : begin + JOINED], pure=False)
            for begin in range(0, len(level), JOINED)
        ]
    return level[0].result() if level else ()


def _joined(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(item for part in parts for item in part)


# What follows runs on the workers.


def _briefs_in(journals: Journals, asked: ReceiptOptions) -> tuple[tuple[RankFingerprint, ...]]:
    """The ranks of one source, and those of its processes that have none."""
    return (tuple(fingerprint_in(part, asked.root) for part in parts_of(journals)),)


def _brief(
    part: RankPart, found: Sequence[Journals], asked: ReceiptOptions
) -> tuple[RankFingerprint]:
    return (fingerprint_in(journals_of(part, found), asked.root),)


def _summary(part: RankPart, found: Sequence[Journals]) -> RankSummary:
    return summary_in(journals_of(part, found))


def _merged(
    sources: tuple[Input, ...],
    at: Sequence[int],
    found: Sequence[Journals],
    listed: Sequence[RankPart],
    asked: ReceiptOptions,
    chosen: RankChoice,
) -> Receipt:
    """The receipt of all ranks; `at` are the places of the sources of which `found` was read."""
    read = dict(zip(at, found, strict=True))
    record = load(sources, list(journals_of_parts(listed, read)), asked.root)
    return receipt_of_chosen(record, asked, chosen)


def _one(part: RankPart, found: Sequence[Journals], asked: ReceiptOptions) -> Receipt:
    record = LoadedSources(journals_of(part, found), root=asked.root)
    return rank_receipt(record, asked.name)
