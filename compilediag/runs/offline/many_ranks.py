"""Traces of many ranks on this machine: read a few to a task, and each rank's receipt written where
it was read.

What a task gives back is each rank in brief, and the events of the lowest ranks where they are few.
By the briefs is chosen which ranks the receipt of all tells, and what is not there of these is read
again: no process ever holds the events of all ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from compilediag.diagnosis.ranks.fingerprint import RankFingerprint
from compilediag.diagnosis.ranks.selection import MAX_EVENTS, MAX_RANKS, MIN_RANKS
from compilediag.diagnosis.ranks.summary import RankSummary
from compilediag.readers.inputs import Source
from compilediag.readers.journal import Journal
from compilediag.readers.parallel import each
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import receipt_in
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.offline.rank_choice import Choice, choice_of, parts_of, summary_in
from compilediag.runs.offline.rank_parts import Journals, Part, journals_of, parts_in, told_in
from compilediag.runs.offline.receipts import merged_receipt, told_alone, told_receipt
from compilediag.runs.offline.sources import (
    LoadedSources,
    rank_named,
    ranks_named,
    read_source,
    readable_in,
    record_of,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from compilediag.readers.train_logs.patterns import LinePattern

TOGETHER = 8
"""Sources that one task reads. Handing a task to a worker and taking its result costs half of what
reading a small trace does."""

KEPT_OF_SOURCE = MAX_EVENTS // MAX_RANKS
"""Most events that a task gives back of a source."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the receipts are to say, beside what the traces hold."""

    name: str
    world_size: int | None
    folder: str
    """Where the receipts lie: files are linked from there."""
    root: str
    """The working directory: files below it are the user's own."""
    warmup: int | None = None
    """Steps of a trainer's output that are warm-up, where the user says so."""


def asked_here(name: str, world_size: int | None, folder: str, warmup: int | None = None) -> Asked:
    """What a command asks for in this working directory."""
    return Asked(name, world_size, os.path.abspath(folder), os.getcwd(), warmup)


def are_many(sources: Sequence[Source]) -> bool:
    """Whether there are more ranks than are all told, whatever they did."""
    return len(readable_in(sources)) > MIN_RANKS


def receipt_of_many(
    sources: tuple[Source, ...],
    asked: Asked,
    executor: Executor | None = None,
    shapes: Sequence[LinePattern] | None = None,
) -> Receipt:
    """The receipt of all ranks; that of each rank is in the folder when this returns.

    Raises:
        OutputUnwritable: the folder or the disk does not take them.
    """
    readable = readable_in(sources)
    held = list(_each_read(readable, asked, executor))

    def together(several: Sequence[Part]) -> Iterable[RankFingerprint]:
        tasks = ((part, _sources_of(part, readable)) for part in several)
        return each(partial(_rank_of_several, asked=asked), tasks, executor)

    parts, briefs = parts_in([found.briefs for found in held], together)
    by_rank = {part.rank: part for part in parts if part.rank is not None}

    @cache
    def summary_of(rank: int) -> RankSummary:
        part = by_rank[rank]
        return summary_in(journals_of(part, map(read_source, _sources_of(part, readable))))

    chosen = choice_of(briefs, asked.world_size, ranks_named(sources), summary_of)
    told = told_in(parts, chosen)
    at = {place for part in told for place in part.sources}
    read = {place: held[place].journals for place in at}
    again = sorted(place for place, journals in read.items() if not journals)
    read.update(
        zip(again, each(read_source, [readable[place] for place in again], executor), strict=True)
    )
    record = record_of(sources, list(told_journals(told, read)), asked.root, shapes)
    return receipt_of_chosen(replace(record, warmup=asked.warmup), asked, chosen)


class Found(NamedTuple):
    """What was read of one source."""

    briefs: tuple[RankFingerprint, ...]
    """Of its ranks and processes, as if it were all there is of them."""
    journals: Journals
    """Empty where they are too many to be kept, or probably not told."""


def _each_read(
    readable: Sequence[Source], asked: Asked, executor: Executor | None
) -> Iterator[Found]:
    low = lowest(readable)
    tasks = (
        [
            (source, begin + place in low)
            for place, source in enumerate(readable[begin : begin + TOGETHER])
        ]
        for begin in range(0, len(readable), TOGETHER)
    )
    for found in each(partial(_read, asked=asked), tasks, executor):
        yield from found


def lowest(readable: Sequence[Source]) -> frozenset[int]:
    """Places of the sources that are probably told: those of the lowest ranks, by their names."""
    ranks = [rank_named(source) for source in readable]
    order = sorted(range(len(readable)), key=lambda at: (ranks[at] is None, ranks[at] or 0, at))
    return frozenset(order[:MAX_RANKS])


def receipt_of_chosen(record: LoadedSources, asked: Asked, chosen: Choice) -> Receipt:
    """The receipt of all ranks, from a record of those that it tells."""
    if chosen.others is None:
        return merged_receipt(record, asked.name, asked.world_size, asked.folder)
    return told_receipt(record, asked.name, chosen.expected, asked.folder, chosen.others)


def told_journals(told: Iterable[Part], read: Mapping[int, Journals]) -> Iterator[Journal]:
    """The journals of the parts, out of what was read of each source."""
    for part in told:
        yield from journals_of(part, (read[place] for place in part.sources))


def _sources_of(part: Part, readable: Sequence[Source]) -> tuple[Source, ...]:
    return tuple(readable[place] for place in part.sources)


# What follows runs in workers.


def _read(tasks: Sequence[tuple[Source, bool]], asked: Asked) -> list[Found]:
    """Sources, each with whether its journals are wanted."""
    found: list[Found] = []
    for source, wanted in tasks:
        journals = read_source(source)
        briefs = tuple(_written(part, asked) for part in parts_of(journals))
        few = sum(len(item.events) for item in journals) <= KEPT_OF_SOURCE
        found.append(Found(briefs, journals if wanted and few else ()))
    return found


def _rank_of_several(task: tuple[Part, tuple[Source, ...]], asked: Asked) -> RankFingerprint:
    """A rank with several sources."""
    part, sources = task
    return _written(journals_of(part, map(read_source, sources)), asked)


def _written(journals: Sequence[Journal], asked: Asked) -> RankFingerprint:
    """A part in brief; its receipt is written where it has a rank.

    It is not waited for until the disk has it: after a power failure all is read again.
    """
    record = LoadedSources(tuple(journals), None, (), frozenset(), asked.root)
    brief, receipt = told_alone(record, asked.name)
    if brief.rank is not None:
        write_receipt(receipt, receipt_in(asked.folder, brief.rank), flushed=False)
    return brief
