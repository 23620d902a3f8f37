"""The receipts of loaded sources: of all their ranks together, and of each alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from compilediag.diagnosis.ranks.divergence import has_room
from compilediag.diagnosis.ranks.summary import RankFingerprint
from compilediag.readers.inputs import BEYOND, FOREIGN, RUN, TEXT, TRACE, TRAIN, UNREADABLE, Input
from compilediag.readers.journal import JOURNAL_START, ProcessJournal
from compilediag.readers.parallel import map_ordered
from compilediag.receipt.run_metadata import JournalFacts, RunMetadata
from compilediag.receipt.schema.receipt import Receipt, Status
from compilediag.runs.artifacts import source_artifacts
from compilediag.runs.offline.rank_choice import (
    RankChoice,
    UnlistedRanks,
    choice_of,
    expected_ranks,
    fingerprint_from,
    fingerprint_in,
    parts_of,
    summaries_in,
)
from compilediag.runs.offline.sources import LoadedSources, rank_of
from compilediag.runs.pipeline import journal_facts, receipt_identity, receipt_of, sum_losses
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import EvidenceLost, ProcessEnded

if TYPE_CHECKING:
    from concurrent.futures import Executor

MAX_NAMES = 20
NOT_READ = frozenset({UNREADABLE, BEYOND})


def merged_receipt(
    loaded: LoadedSources, name: str | None, world_size: int | None, out: str | None = None
) -> Receipt:
    """One receipt of all ranks; `out` is the folder it is to lie in, for the links to the files.

    Of a run of many ranks it lists some: see `diagnosis/ranks/selection.py`.
    """
    parts = parts_of(loaded.journals)
    if has_room(len(parts), sum(len(item.events) for item in loaded.journals)):
        sizes = [item.started.world_size for item in loaded.journals if item.started is not None]
        expected = expected_ranks(world_size, sizes, {*loaded.ranks, *loaded.named})
        return listed_receipt(loaded, name, RankChoice(expected), out)
    fingerprints = [fingerprint_in(part, loaded.root) for part in parts]
    by_rank = {item.rank: part for item, part in zip(fingerprints, parts, strict=True)}
    choice = choice_of(
        fingerprints, world_size, loaded.named, lambda rank: summaries_in(by_rank[rank])[0]
    )
    listed = (part for index, part in enumerate(parts) if choice.lists(index))
    loaded = replace(loaded, journals=tuple(item for part in listed for item in part))
    return listed_receipt(loaded, name, choice, out)


def rank_receipts(
    loaded: LoadedSources, name: str | None, executor: Executor | None = None
) -> Iterator[tuple[int, Receipt]]:
    """A receipt of each rank alone, ascending, made one at a time or one task a rank."""
    parts = [part for part in parts_of(loaded.journals) if rank_of(part[0]) is not None]
    each_alone = (LoadedSources(tuple(part), root=loaded.root) for part in parts)
    receipts = map_ordered(partial(rank_receipt, name=name), each_alone, executor)
    yield from zip(loaded.ranks, receipts, strict=True)


def rank_receipt(loaded: LoadedSources, name: str | None) -> Receipt:
    """The receipt of one rank, the only one in `loaded`. Picklable both ways."""
    return fingerprint_and_receipt(loaded, name)[1]


def fingerprint_and_receipt(
    loaded: LoadedSources, name: str | None
) -> tuple[RankFingerprint, Receipt]:
    """One rank, or one process without a rank, by itself."""
    timeline, diagnosis, receipt = receipt_of(
        fold([item.events for item in loaded.journals], user_roots=(loaded.root,)),
        _metadata(loaded, name, None, None),
    )
    return fingerprint_from(loaded.journals, timeline, diagnosis), receipt


def listed_receipt(
    loaded: LoadedSources, name: str | None, choice: RankChoice, out: str | None
) -> Receipt:
    """The receipt of the loaded ranks, with what the choice keeps of the unlisted ones."""
    unlisted = choice.unlisted
    metadata = _metadata(loaded, name, choice.expected, out)
    text_log, counted_ranks, compile_s = loaded.text_log, (), ()
    lost: list[Sequence[EvidenceLost]] = [_unread(loaded.sources)]
    if unlisted is not None:
        text_log = None  # a log of all ranks is no second opinion of some
        counted_ranks = unlisted.ranks
        ranks = {*counted_ranks}
        compile_s = tuple(
            (item.rank, item.compile_s)
            for item in unlisted.comparison.ranks
            if item.rank is not None and item.rank in ranks
        )
        lost.insert(0, unlisted.losses)
        metadata = _with_unlisted(metadata, unlisted)
    present = {*loaded.ranks, *counted_ranks}
    missing = sorted(set(range(choice.expected or 0)) - present)
    if missing and present:
        names = ", ".join(str(rank) for rank in missing[:MAX_NAMES])
        more = f" and {len(missing) - MAX_NAMES} more" if len(missing) > MAX_NAMES else ""
        lost.append((EvidenceLost(0.0, 0, "ranks", f"nothing was found of rank {names}{more}"),))
    events = [*(item.events for item in loaded.journals), *filter(None, lost)]
    roots = (loaded.root,)
    timeline = fold(events, text_log, roots, loaded.train_log, counted_ranks, compile_s)
    return receipt_of(timeline, metadata).receipt


def _with_unlisted(metadata: RunMetadata, unlisted: UnlistedRanks) -> RunMetadata:
    """The metadata with what was read of ranks that are not listed."""
    listed, others = metadata.journal or JournalFacts(0), unlisted.journal
    lost = sum_losses((listed.records_lost, others.records_lost))
    torn = listed.torn_tail or others.torn_tail
    partial_now = metadata.status == "complete" and (lost or torn)
    return replace(
        metadata,
        status="partial" if partial_now and metadata.exit_code is None else metadata.status,
        journal=JournalFacts(listed.records + others.records, torn, lost),
        ranks=unlisted.comparison,
    )


def _unread(sources: Sequence[Input]) -> tuple[EvidenceLost, ...]:
    """Files that may hold a part of the run, and were not read."""
    closed = [item for item in sources if item.kind == UNREADABLE]
    reasons = [f"{os.path.basename(item.path)}: {item.why}" for item in closed[:MAX_NAMES]]
    if len(closed) > MAX_NAMES:
        reasons.append(f"{len(closed) - MAX_NAMES} more files could not be read")
    reasons += [
        f"{item.count} files were not looked at: {item.why}"
        for item in sources
        if item.kind == BEYOND
    ]
    return tuple(EvidenceLost(0.0, 0, "files", reason) for reason in reasons)


def _metadata(
    loaded: LoadedSources, name: str | None, expected: int | None, out: str | None
) -> RunMetadata:
    journal, log = journal_facts(loaded.journals), loaded.train_log
    closed = [{item.kind: item.count} for item in loaded.sources if item.kind in NOT_READ]
    lost = sum_losses((journal.records_lost, *closed))
    if log is not None and log.counts.get("unread"):
        lost["train_log_unread"] = log.counts["unread"]
    status, reason = _ending_of(loaded.journals)
    if lost or journal.torn_tail:
        status = "partial"
    ending = None if log is None else log.ending
    left_out = [item.path for item in loaded.sources if item.kind == FOREIGN]
    kinds = (TRACE, TEXT, RUN, TRAIN)
    return RunMetadata(
        *receipt_identity(time.time()),
        status=status if ending is None else cast(Status, ending.status),
        exit_code=None if ending is None else ending.exit_code,
        failure_reason=reason if ending is None else ending.reason,
        log_tail=None if log is None or ending is None else log.tail,
        warmup=loaded.warmup,
        lane_name=name,
        ranks_expected=expected if loaded.ranks else None,
        journal=replace(journal, records_lost=lost),
        artifacts=() if out is None else tuple(source_artifacts(loaded.sources, out)),
        extensions={
            "analyze": {
                "read": {kind: sum(s.kind == kind for s in loaded.sources) for kind in kinds},
                "left_out": [os.path.basename(path) for path in left_out[:MAX_NAMES]],
                "left_out_count": len(left_out),
            }
        },
    )


def _ending_of(journals: Sequence[ProcessJournal]) -> tuple[Status, str | None]:
    """How a run that compilediag attached to ended, by the processes that no other one started, and
    why; of a trace nothing is known."""
    written = [item for item in journals if item.name.startswith(JOURNAL_START)]
    pids = {item.started.pid for item in written if item.started is not None}
    first = [
        item for item in written if item.started is None or item.started.parent_pid not in pids
    ]
    ends = [next((e for e in item.events if isinstance(e, ProcessEnded)), None) for item in first]
    if None in ends:
        return "partial", "a process left no end: it was killed, or it still goes on"
    failures = [item.failure for item in ends if item is not None and item.failure]
    if not failures:
        return "complete", None
    interrupted = failures[0].startswith("KeyboardInterrupt")
    return "interrupted" if interrupted else "failed", failures[0].partition("\n")[0]
