"""Records of runs from anywhere made into receipts: traces, text logs, run directories, and the
output of trainers.

The way is that of a live run: events, Timeline, rules, receipt. What a record cannot tell is null
or said in `completeness`; what is lost makes the verdict blind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from compilediag.diagnose import diagnose
from compilediag.errors import UsageError
from compilediag.fold import fold
from compilediag.linked_files import links_to
from compilediag.pooled import cores, each
from compilediag.ranks.summary import RankSummary, summaries_of
from compilediag.readers.inputs import FOREIGN, RUN, TEXT, TRACE, TRAIN, Source, sources_of
from compilediag.readers.journal import Journal, read_run
from compilediag.readers.openers import Opened
from compilediag.readers.text import read_text_log
from compilediag.readers.text_events import read_text_events
from compilediag.readers.trace import rank_in_name, read_trace
from compilediag.readers.train_shapes import LineShape, built_in
from compilediag.readers.train_sources import known, logs_in, together
from compilediag.receipt.build import build
from compilediag.receipt.run_facts import JournalFacts, RunFacts
from compilediag.receipt.schema import Receipt, Status
from compilediag.receipt.ulid import ulid
from compilediag.timeline import TextLog
from compilediag.train_log import TrainLog
from compilediag_harness.wire import EvidenceLost

NAMES_SHOWN = 20

WORTH_BYTES = 32 << 20
"""Less than this is read sooner than worker processes start."""

WORTH_SOURCES = 32
"""As many sources are worth workers however small they are: each rank gets a receipt."""


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that was read, before it is folded."""

    journals: tuple[Journal, ...]
    """One a process, ordered by rank."""
    text_log: TextLog | None
    """A second opinion, where text logs lie beside traces or journals."""
    sources: tuple[Source, ...]
    named: frozenset[int]
    """Ranks that file names tell, also of files that hold nothing."""
    root: str = field(default_factory=os.getcwd)
    """The working directory: files below it are the user's own."""
    train_log: TrainLog | None = None
    """What a trainer printed of its steps."""
    warmup: int | None = None
    """Steps of it that were called warm-up."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of which something was read."""
        return tuple(sorted({rank for item in self.journals if (rank := _rank(item)) is not None}))


def read_record(paths: Sequence[str], executor: Executor | None = None) -> Record:
    """Reads whatever lies at and below the paths.

    Raises:
        UsageError: a path does not exist, or nothing of torch's lies there.
    """
    return read_sources(find_sources(paths), executor)


def find_sources(
    paths: Sequence[str], shapes: Sequence[LineShape] | None = None
) -> tuple[Source, ...]:
    """What lies at and below the paths; `shapes` are the lines that trainers print.

    Raises:
        UsageError: a path does not exist, or nothing of torch's lies there.
    """
    for path in paths:
        if not os.path.exists(path):
            raise UsageError(f"there is no file or folder {path}")
    sources = sources_of(paths, shapes)
    if all(source.kind == FOREIGN for source in sources):
        why = next((f" ({source.why})" for source in sources if source.why), "")
        raise UsageError(
            f"no trace, text log or journal lies in {', '.join(paths)}{why}: give the folder that "
            "TORCH_TRACE named, a file of TORCH_LOGS, a run directory of compilediag, or what a "
            "trainer printed"
        )
    return sources


def read_sources(
    sources: tuple[Source, ...],
    executor: Executor | None = None,
    shapes: Sequence[LineShape] | None = None,
) -> Record:
    """The record that the sources are; one task a source where there is an executor."""
    readable = [source for source in sources if source.kind in {TRACE, RUN}]
    journals = [item for found in each(read_source, readable, executor) for item in found]
    return record_of(sources, journals, shapes=shapes)


def record_of(
    sources: tuple[Source, ...],
    journals: Sequence[Journal],
    root: str | None = None,
    shapes: Sequence[LineShape] | None = None,
) -> Record:
    """The record of sources whose journals were read, in the order of the sources."""
    logs = logs_in(sources, built_in() if shapes is None else shapes)
    sources = known(sources, logs)
    texts = [source for source in sources if source.kind == TEXT]
    text_log = None
    if not journals:
        journals = [item for source in texts for item in read_text_events(source.path)]
    elif texts or any(source.kind == RUN for source in sources):
        text_log = _text_log([*texts, *(item for item in sources if item.kind == RUN)])
    named = {
        rank
        for source in sources
        if source.kind == TRACE
        and (rank := rank_in_name(os.path.basename(source.path))) is not None
    }
    ordered = sorted(journals, key=lambda item: (_rank(item) is None, _rank(item) or 0))
    root = os.getcwd() if root is None else root
    return Record(tuple(ordered), text_log, sources, frozenset(named), root, together(logs))


def workers_worth(sources: Sequence[Source]) -> int:
    """How many processes should read the sources: one a core, and one where they are little."""
    paths = [source.path for source in sources if source.kind in {TRACE, RUN}]
    if len(paths) < WORTH_SOURCES and sum(map(_size, paths)) < WORTH_BYTES:
        return 1
    return max(1, min(cores(), len(paths)))


def read_source(source: Source) -> tuple[Journal, ...]:
    """The processes of one trace or run directory: one task of many. Picklable both ways."""
    if source.kind == TRACE:
        return read_trace(source.path)
    if source.kind == RUN:
        return read_run(source.path)
    return ()


def summarise(source: Source) -> tuple[RankSummary, ...]:
    """What `compare_ranks` needs of the ranks of one source, in some hundred bytes a rank.

    For runs of more ranks than one receipt can hold. Picklable both ways. A rank that wrote several
    files has a summary of each: compare files of one kind only.
    """
    return summaries_of(fold([item.events for item in read_source(source)]))


def merged_receipt(
    record: Record, name: str | None, world_size: int | None, out: str | None = None
) -> Receipt:
    """One receipt of all ranks; `out` is the folder it is to lie in, for the links to the files."""
    expected = _expected(record, world_size)
    return _receipt(record, record.journals, name, expected, out)


def rank_receipts(
    record: Record, name: str | None, executor: Executor | None = None
) -> Iterator[tuple[int, Receipt]]:
    """A receipt of each rank alone, ascending, made one at a time or one task a rank."""
    by_rank: dict[int, list[Journal]] = {}
    for item in record.journals:
        rank = _rank(item)
        if rank is not None:
            by_rank.setdefault(rank, []).append(item)
    ranks = sorted(by_rank)
    parts = (Record(tuple(by_rank[rank]), None, (), frozenset(), record.root) for rank in ranks)
    yield from zip(ranks, each(partial(rank_receipt, name=name), parts, executor), strict=True)


def rank_receipt(record: Record, name: str | None) -> Receipt:
    """The receipt of one rank, from a record that holds nothing else. Picklable both ways."""
    return _receipt(record, record.journals, name, None, None)


def _receipt(
    record: Record,
    journals: Sequence[Journal],
    name: str | None,
    expected: int | None,
    out: str | None,
) -> Receipt:
    events = [item.events for item in journals]
    missing = sorted(set(range(expected or 0)) - set(record.ranks))
    if missing and record.ranks:
        told = ", ".join(str(rank) for rank in missing[:NAMES_SHOWN])
        more = f" and {len(missing) - NAMES_SHOWN} more" if len(missing) > NAMES_SHOWN else ""
        lost = EvidenceLost(0.0, 0, "ranks", f"nothing was found of rank {told}{more}")
        events.append((lost,))
    timeline = fold(events, record.text_log, (record.root,), record.train_log)
    facts = _facts(record, journals, name, expected, out)
    return build(timeline, diagnose(timeline), facts)


def _facts(
    record: Record,
    journals: Sequence[Journal],
    name: str | None,
    expected: int | None,
    out: str | None,
) -> RunFacts:
    now = time.time()
    lost: dict[str, int] = {}
    for journal in journals:
        for reason, count in journal.lost.items():
            lost[reason] = lost.get(reason, 0) + count
    log = record.train_log
    if log is not None and log.counts.get("unread"):
        lost["train_log_unread"] = log.counts["unread"]
    ending = None if log is None else log.ending
    torn = any(journal.torn_tail for journal in journals)
    left_out = [item.path for item in record.sources if item.kind == FOREIGN]
    return RunFacts(
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
        journal=JournalFacts(sum(len(item.events) for item in journals), torn, lost),
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


def _expected(record: Record, world_size: int | None) -> int | None:
    """The world size: as told, as the processes tell it, or as the highest rank implies."""
    if world_size is not None:
        return world_size
    told = [
        item.started.world_size
        for item in record.journals
        if item.started is not None and item.started.world_size is not None
    ]
    ranks = {*record.ranks, *record.named}
    return max([*told, *(rank + 1 for rank in ranks)], default=None)


def _rank(journal: Journal) -> int | None:
    return journal.started.rank if journal.started is not None else None


def _text_log(sources: Sequence[Source]) -> TextLog | None:
    """All text logs as one second opinion: those named, and those of run directories."""
    paths = [source.path for source in sources if source.kind == TEXT]
    for source in sources:
        if source.kind == RUN:
            names = sorted(n for n in os.listdir(source.path) if n.startswith("torch_logs"))
            paths += [os.path.join(source.path, name) for name in names]
    return read_text_log(_joined(paths)) if paths else None


def _joined(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        yield from Opened(path).pieces()
        yield b"\n"  # a torn end must not run into the next file


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
