"""Recorded runs, found and read: traces, text logs, run directories, output of trainers; and their
receipts, of all ranks together and of each alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import cast

from compilediag.errors import UsageError
from compilediag.readers.inputs import (
    BEYOND,
    FOREIGN,
    NOTHING,
    RUN,
    TEXT,
    TRACE,
    TRAIN,
    UNREADABLE,
    Input,
    TrainLogReader,
    list_inputs,
    load_built_in_reader,
    merge_train_logs,
)
from compilediag.readers.journal import JOURNAL_START, ProcessJournal, read_run
from compilediag.readers.torch_logs import read_text_events, read_text_log
from compilediag.readers.torch_trace.read import parse_rank, read_trace
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt, Status
from compilediag.runs.pipeline import diagnose_run, make_identity, sum_losses, summarize_journals
from compilediag.runs.run_directory import (
    iterate_source_artifacts,
    list_text_logs,
    read_joined_logs,
)
from compilediag.timeline.recorded import TrainLog
from compilediag.timeline.timeline import TextLog, fold
from compilediag_harness.wire import EvidenceLost, ProcessEnded

MAX_NAMES = 20
NOT_READ = frozenset({UNREADABLE, BEYOND})


@dataclass(frozen=True, slots=True)
class LoadedSources:
    """Everything that was read, before it is folded."""

    journals: tuple[ProcessJournal, ...]
    """One a process, ordered by rank."""
    text_log: TextLog | None = None
    """A second opinion, where text logs lie beside traces or journals."""
    sources: tuple[Input, ...] = ()
    train_log: TrainLog | None = None
    """What a trainer printed of its steps."""
    warmup: int | None = None
    """Steps of it that the user calls warm-up."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of which something was read, ascending."""
        ranks = {get_rank(journal) for journal in self.journals}
        return tuple(sorted(rank for rank in ranks if rank is not None))


def read_record(paths: Sequence[str]) -> LoadedSources:
    """Reads whatever lies at and below the paths.

    Raises:
        UsageError: a path does not exist, or nothing of torch's lies there.
    """
    return read_sources(find_sources(paths))


def find_sources(paths: Sequence[str], trainers: TrainLogReader | None = None) -> tuple[Input, ...]:
    """Find what lies at and below the paths; `trainers` reads what trainers print.

    Raises:
        UsageError: a path does not exist, or nothing of torch's lies there.
    """
    for path in paths:
        if not os.path.exists(path):
            raise UsageError(f"there is no file or folder {path}")
    sources = list_inputs(paths, trainers)
    if any(source.kind not in NOTHING for source in sources):
        return sources
    why = next((f" ({source.why})" for source in sources if source.why), "")
    records = (
        f"nothing to analyze lies in {', '.join(paths)}{why}: it was searched for records of "
        "TORCH_TRACE, messages of TORCH_LOGS (there are none where nothing recompiled)"
    )
    known = load_built_in_reader()
    if known is None:
        raise UsageError(
            f"{records} and journals of compilediag; the extension train_logs, which reads the "
            "step lines of trainers, is not installed"
        )
    raise UsageError(
        f"{records}, journals of compilediag, and step lines of trainers "
        f"({', '.join(known.trainers)}); for the lines of another trainer give --patterns FILE, "
        "see docs/howto/trainlog.md"
    )


def read_sources(sources: tuple[Input, ...]) -> LoadedSources:
    """Reads the sources: journals of traces and run directories, text logs."""
    readers = {TRACE: read_trace, RUN: read_run}
    recorded = [source for source in sources if source.kind in readers]
    journals = [one for source in recorded for one in readers[source.kind](source.path)]
    texts = [source.path for source in sources if source.kind == TEXT]
    runs = [source.path for source in sources if source.kind == RUN]
    text_log = None
    if not journals:
        journals = [journal for path in texts for journal in read_text_events(path)]
    elif paths := [*texts, *(path for run in runs for path in list_text_logs(run))]:
        text_log = read_text_log(read_joined_logs(paths))
    by_rank = sorted(
        journals, key=lambda journal: (get_rank(journal) is None, get_rank(journal) or 0)
    )
    trained = merge_train_logs(source.log for source in sources if source.log is not None)
    return LoadedSources(tuple(by_rank), text_log, sources, trained)


def get_rank(journal: ProcessJournal) -> int | None:
    """Return the rank of the process; None where it has none or its start is not recorded."""
    return journal.started.rank if journal.started is not None else None


def merged_receipt(
    loaded: LoadedSources, name: str | None, world_size: int | None, out: str | None = None
) -> Receipt:
    """One receipt of all ranks; `out` is the folder it is to lie in, for the links to the files."""
    expected = world_size
    if expected is None:  # that of the processes, or what the ranks imply
        started = (journal.started for journal in loaded.journals)
        sizes = [start.world_size for start in started if start is not None]
        known = [size for size in sizes if size is not None]
        # Also those in the names of traces that hold nothing.
        traces = (source.path for source in loaded.sources if source.kind == TRACE)
        named = {parse_rank(os.path.basename(path)) for path in traces} - {None}
        ranks = (rank + 1 for rank in {*loaded.ranks, *named} if rank is not None)
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
    timeline = fold(events, loaded.text_log, (os.getcwd(),), loaded.train_log)
    return diagnose_run(timeline, _build_metadata(loaded, name, expected, out)).receipt


def rank_receipts(loaded: LoadedSources, name: str | None) -> Iterator[tuple[int, Receipt]]:
    """A receipt of each rank alone, ascending, made one at a time."""
    for rank, journals in groupby(loaded.journals, get_rank):
        if rank is not None:
            own = LoadedSources(tuple(journals))
            timeline = fold([one.events for one in own.journals], user_roots=(os.getcwd(),))
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
