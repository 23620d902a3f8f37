"""Receipts of recorded runs: of all ranks together, and of each alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import cast

from compilediag.readers.inputs import BEYOND, FOREIGN, RUN, TEXT, TRACE, TRAIN, UNREADABLE
from compilediag.readers.journal import JOURNAL_START, ProcessJournal
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt, Status
from compilediag.runs.offline.sources import LoadedSources, get_rank
from compilediag.runs.pipeline import diagnose_run, make_identity, sum_losses, summarize_journals
from compilediag.runs.run_directory import iterate_source_artifacts
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import EvidenceLost, ProcessEnded

MAX_NAMES = 20
NOT_READ = frozenset({UNREADABLE, BEYOND})


def merged_receipt(
    loaded: LoadedSources, name: str | None, world_size: int | None, out: str | None = None
) -> Receipt:
    """One receipt of all ranks; `out` is the folder it is to lie in, for the links to the files."""
    expected = world_size
    if expected is None:  # that of the processes, or what the ranks imply
        started = (journal.started for journal in loaded.journals)
        sizes = [start.world_size for start in started if start is not None]
        known = [size for size in sizes if size is not None]
        ranks = (rank + 1 for rank in {*loaded.ranks, *loaded.named})
        expected = max([*known, *ranks], default=None)
    # Files that may hold a part of the run, and were not read.
    closed = [source for source in loaded.sources if source.kind == UNREADABLE]
    unread = [f"{os.path.basename(source.path)}: {source.why}" for source in closed[:MAX_NAMES]]
    if len(closed) > MAX_NAMES:
        unread.append(f"{len(closed) - MAX_NAMES} more files could not be read")
    beyond = (source for source in loaded.sources if source.kind == BEYOND)
    unread += [f"{source.count} files were not looked at: {source.why}" for source in beyond]
    lost: list[Sequence[EvidenceLost]] = [[EvidenceLost(0.0, 0, "files", x) for x in unread]]
    missing = sorted(set(range(expected or 0)).difference(loaded.ranks))
    if missing and loaded.ranks:
        names = ", ".join(str(rank) for rank in missing[:MAX_NAMES])
        more = f" and {len(missing) - MAX_NAMES} more" if len(missing) > MAX_NAMES else ""
        lost.append((EvidenceLost(0.0, 0, "ranks", f"nothing was found of rank {names}{more}"),))
    events = [*(journal.events for journal in loaded.journals), *filter(None, lost)]
    timeline = fold(events, loaded.text_log, (loaded.root,), loaded.train_log)
    return diagnose_run(timeline, _build_metadata(loaded, name, expected, out)).receipt


def rank_receipts(loaded: LoadedSources, name: str | None) -> Iterator[tuple[int, Receipt]]:
    """A receipt of each rank alone, ascending, made one at a time."""
    for rank, journals in groupby(loaded.journals, get_rank):
        if rank is not None:
            own = LoadedSources(tuple(journals), root=loaded.root)
            timeline = fold([one.events for one in own.journals], user_roots=(own.root,))
            yield rank, diagnose_run(timeline, _build_metadata(own, name, None, None)).receipt


def _build_metadata(
    loaded: LoadedSources, name: str | None, expected: int | None, out: str | None
) -> RunMetadata:
    journal, log = summarize_journals(loaded.journals), loaded.train_log
    closed = [{source.kind: source.count} for source in loaded.sources if source.kind in NOT_READ]
    lost = sum_losses((journal.records_lost, *closed))
    if log is not None and log.counts.get("unread"):
        lost["train_log_unread"] = log.counts["unread"]
    status, reason = _infer_ending(loaded.journals)
    if lost or journal.torn_tail:
        status = "partial"
    ending = None if log is None else log.ending
    left_out = [source.path for source in loaded.sources if source.kind == FOREIGN]
    kinds = (TRACE, TEXT, RUN, TRAIN)
    return RunMetadata(
        *make_identity(time.time()),
        status=status if ending is None else cast(Status, ending.status),
        exit_code=None if ending is None else ending.exit_code,
        failure_reason=reason if ending is None else ending.reason,
        log_tail=None if log is None or ending is None else log.tail,
        warmup=loaded.warmup,
        configuration_name=name,
        ranks_expected=expected if loaded.ranks else None,
        journal=replace(journal, records_lost=lost),
        artifacts=() if out is None else tuple(iterate_source_artifacts(loaded.sources, out)),
        extensions={
            "analyze": {
                "read": {kind: sum(s.kind == kind for s in loaded.sources) for kind in kinds},
                "left_out": [os.path.basename(path) for path in left_out[:MAX_NAMES]],
                "left_out_count": len(left_out),
            }
        },
    )


def _infer_ending(journals: Sequence[ProcessJournal]) -> tuple[Status, str | None]:
    """Infer the end of a run that compilediag attached to, and its reason, from the processes that
    no other one started; a trace does not tell it, and counts as complete."""
    written = [journal for journal in journals if journal.name.startswith(JOURNAL_START)]
    pids = {journal.started.pid for journal in written if journal.started is not None}
    first = [
        journal
        for journal in written
        if journal.started is None or journal.started.parent_pid not in pids
    ]
    ends = [
        next((e for e in journal.events if isinstance(e, ProcessEnded)), None) for journal in first
    ]
    if None in ends:
        return "partial", "a process left no end: it was killed, or it still goes on"
    failures = [end.failure for end in ends if end is not None and end.failure]
    if not failures:
        return "complete", None
    interrupted = failures[0].startswith("KeyboardInterrupt")
    return "interrupted" if interrupted else "failed", failures[0].partition("\n")[0]
