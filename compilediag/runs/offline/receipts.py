"""The receipts of a record: of all its ranks together, and of each alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from compilediag.diagnosis.causes.of_run import causes_in
from compilediag.diagnosis.ranks.fingerprint import RankFingerprint
from compilediag.diagnosis.ranks.selection import has_room
from compilediag.diagnosis.ranks.summary import RankSummary, summaries_of
from compilediag.readers.inputs import BEYOND, FOREIGN, RUN, TEXT, TRACE, TRAIN, UNREADABLE, Source
from compilediag.readers.journal import Journal
from compilediag.readers.parallel import each
from compilediag.receipt.build.run_metadata import JournalFacts, RunMetadata
from compilediag.receipt.schema.receipt import Receipt, Status
from compilediag.receipt.ulid import ulid
from compilediag.runs.offline.linked_files import links_to
from compilediag.runs.offline.rank_choice import (
    Others,
    brief_from,
    brief_in,
    choice_of,
    expected_ranks,
    parts_of,
    summary_in,
)
from compilediag.runs.offline.sources import LoadedSources, rank_of, read_source
from compilediag.runs.pipeline import RunEvents, receipt_of
from compilediag.timeline.fold import fold
from compilediag_harness.wire import EvidenceLost

if TYPE_CHECKING:
    from concurrent.futures import Executor

NAMES_SHOWN = 20


def summarise(source: Source) -> tuple[RankSummary, ...]:
    """What `compare_ranks` needs of the ranks of one source, in some hundred bytes a rank.

    For runs of more ranks than one receipt can hold. Picklable both ways. A rank that wrote several
    files has a summary of each: compare files of one kind only.
    """
    timeline = fold([item.events for item in read_source(source)])
    return summaries_of(timeline, causes_in(timeline))


def merged_receipt(
    record: LoadedSources, name: str | None, world_size: int | None, out: str | None = None
) -> Receipt:
    """One receipt of all ranks; `out` is the folder it is to lie in, for the links to the files.

    Of a run of many ranks the receipt holds some: see `diagnosis/ranks/selection.py`.
    """
    parts = parts_of(record.journals)
    if has_room(len(parts), sum(len(item.events) for item in record.journals)):
        sizes = [item.started.world_size for item in record.journals if item.started is not None]
        expected = expected_ranks(world_size, sizes, {*record.ranks, *record.named})
        return told_receipt(record, name, expected, out)
    briefs = [brief_in(part, record.root) for part in parts]
    by_rank = {item.rank: part for item, part in zip(briefs, parts, strict=True)}
    chosen = choice_of(briefs, world_size, record.named, lambda rank: summary_in(by_rank[rank]))
    if chosen.told is None:
        return told_receipt(record, name, chosen.expected, out)
    journals = tuple(
        item for place, part in enumerate(parts) if place in chosen.told.places for item in part
    )
    kept = replace(record, journals=journals)
    return told_receipt(kept, name, chosen.expected, out, chosen.others)


def rank_receipts(
    record: LoadedSources, name: str | None, executor: Executor | None = None
) -> Iterator[tuple[int, Receipt]]:
    """A receipt of each rank alone, ascending, made one at a time or one task a rank."""
    by_rank: dict[int, list[Journal]] = {}
    for item in record.journals:
        rank = rank_of(item)
        if rank is not None:
            by_rank.setdefault(rank, []).append(item)
    ranks = sorted(by_rank)
    parts = (
        LoadedSources(tuple(by_rank[rank]), None, (), frozenset(), record.root) for rank in ranks
    )
    yield from zip(ranks, each(partial(rank_receipt, name=name), parts, executor), strict=True)


def rank_receipt(record: LoadedSources, name: str | None) -> Receipt:
    """The receipt of one rank, from a record that holds nothing else. Picklable both ways."""
    return told_alone(record, name)[1]


def told_alone(record: LoadedSources, name: str | None) -> tuple[RankFingerprint, Receipt]:
    """One rank, or one process without a rank, by itself: in brief, and its receipt."""
    timeline, diagnosis, receipt = receipt_of(
        RunEvents([item.events for item in record.journals], (record.root,)),
        _facts(record, name, None, None),
    )
    return brief_from(record.journals, timeline, diagnosis), receipt


def told_receipt(
    record: LoadedSources,
    name: str | None,
    expected: int | None,
    out: str | None,
    others: Others | None = None,
) -> Receipt:
    """The receipt of the ranks of a record, which says of `others` what it can."""
    events = [item.events for item in record.journals]
    if others is not None and others.losses:
        events.append(others.losses)
    if unread := tuple(_unread(record.sources)):
        events.append(unread)
    ranks = {*record.ranks, *(() if others is None else others.ranks)}
    missing = sorted(set(range(expected or 0)) - ranks)
    if missing and ranks:
        told = ", ".join(str(rank) for rank in missing[:NAMES_SHOWN])
        more = f" and {len(missing) - NAMES_SHOWN} more" if len(missing) > NAMES_SHOWN else ""
        lost = EvidenceLost(0.0, 0, "ranks", f"nothing was found of rank {told}{more}")
        events.append((lost,))
    # A log of all ranks is no second opinion of some.
    text_log = record.text_log if others is None else None
    facts = _facts(record, name, expected, out)
    return receipt_of(
        RunEvents(
            events,
            (record.root,),
            text_log,
            record.train_log,
            counted_ranks=() if others is None else others.ranks,
        ),
        facts if others is None else _with_others(facts, others),
    ).receipt


def _with_others(facts: RunMetadata, others: Others) -> RunMetadata:
    """The facts with what was read of ranks that are not told."""
    journal = facts.journal or JournalFacts(0)
    lost = dict(journal.records_lost)
    for reason, count in others.lost.items():
        lost[reason] = lost.get(reason, 0) + count
    torn = journal.torn_tail or others.torn
    partial_now = facts.status == "complete" and (lost or torn)
    return replace(
        facts,
        status="partial" if partial_now and facts.exit_code is None else facts.status,
        journal=JournalFacts(journal.records + others.events, torn, lost),
        ranks=others.comparison,
    )


def _unread(sources: Sequence[Source]) -> Iterator[EvidenceLost]:
    """What may have held a part of the run, and was not looked into."""
    closed = [item for item in sources if item.kind == UNREADABLE]
    for item in closed[:NAMES_SHOWN]:
        yield EvidenceLost(0.0, 0, "files", f"{os.path.basename(item.path)}: {item.why}")
    if len(closed) > NAMES_SHOWN:
        more = len(closed) - NAMES_SHOWN
        yield EvidenceLost(0.0, 0, "files", f"{more} more files could not be read")
    for item in sources:
        if item.kind == BEYOND:
            why = f"{item.count} files were not looked at: {item.why}"
            yield EvidenceLost(0.0, 0, "files", why)


def _facts(
    record: LoadedSources,
    name: str | None,
    expected: int | None,
    out: str | None,
) -> RunMetadata:
    now = time.time()
    lost: dict[str, int] = {}
    for journal in record.journals:
        for reason, count in journal.lost.items():
            lost[reason] = lost.get(reason, 0) + count
    for source in record.sources:
        if source.kind in {UNREADABLE, BEYOND}:
            lost[source.kind] = lost.get(source.kind, 0) + source.count
    log = record.train_log
    if log is not None and log.counts.get("unread"):
        lost["train_log_unread"] = log.counts["unread"]
    ending = None if log is None else log.ending
    torn = any(journal.torn_tail for journal in record.journals)
    left_out = [item.path for item in record.sources if item.kind == FOREIGN]
    return RunMetadata(
        receipt_id=ulid(int(now * 1000), os.urandom(10)),
        created_at_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        status=cast(Status, ending.status)
        if ending is not None
        else ("partial" if lost or torn else "complete"),
        exit_code=None if ending is None else ending.exit_code,
        failure_reason=None if ending is None else ending.reason,
        log_tail=None if log is None or ending is None else log.tail,
        warmup=record.warmup,
        lane_name=name,
        ranks_expected=expected if record.ranks else None,
        journal=JournalFacts(sum(len(item.events) for item in record.journals), torn, lost),
        artifacts=() if out is None else tuple(links_to(record.sources, out)),
        extensions={
            "analyze": {
                "read": {
                    kind: sum(item.kind == kind for item in record.sources)
                    for kind in (TRACE, TEXT, RUN, TRAIN)
                },
                "left_out": [os.path.basename(path) for path in left_out[:NAMES_SHOWN]],
                "left_out_count": len(left_out),
            }
        },
    )
