"""Receipts of loaded sources: of each rank alone, and of all ranks together; the choice of ranks
that the latter lists one by one, and what it stores of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from compilediag.diagnosis.causes.of_run import causes_in
from compilediag.diagnosis.ranks.divergence import (
    RankComparison,
    SummaryOf,
    compare_fingerprints,
    has_room,
    select_ranks,
)
from compilediag.diagnosis.ranks.summary import (
    RankFingerprint,
    RankSummary,
    digest,
    fingerprint_of,
    first_losses,
    summaries_of,
)
from compilediag.readers.inputs import BEYOND, FOREIGN, RUN, TEXT, TRACE, TRAIN, UNREADABLE, Input
from compilediag.readers.journal import JOURNAL_START, ProcessJournal
from compilediag.readers.parallel import map_ordered
from compilediag.receipt.run_metadata import JournalFacts, RunMetadata
from compilediag.receipt.schema.receipt import Receipt, Status
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.runs.offline.sources import LoadedSources, rank_of, read_source
from compilediag.runs.pipeline import journal_facts, receipt_identity, receipt_of, sum_losses
from compilediag.runs.run_directory import source_artifacts
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness.wire import EvidenceLost, ProcessEnded

if TYPE_CHECKING:
    from concurrent.futures import Executor

MAX_NAMES = 20
NOT_READ = frozenset({UNREADABLE, BEYOND})
MAX_LOSSES = 20
"""Most losses of unlisted ranks that the receipt names."""

Journals = Sequence[ProcessJournal]


# --- parts: one rank each, or one process without a rank --------------------------------------


class RankPart(NamedTuple):
    """One rank, or one process without a rank, and where its journals are."""

    rank: int | None
    sources: tuple[int, ...]
    """Indexes of its sources."""
    position: int = 0
    """Of a process without a rank: its position among those of its source."""


def parts_of(journals: Journals) -> list[Journals]:
    """Group journals by rank, ascending, and then each journal that has none alone."""
    by_rank: dict[int, list[ProcessJournal]] = {}
    without: list[Journals] = []
    for item in journals:
        rank = rank_of(item)
        if rank is None:
            without.append((item,))
        else:
            by_rank.setdefault(rank, []).append(item)
    return [*(by_rank[rank] for rank in sorted(by_rank)), *without]


def parts_in(
    by_source: Sequence[Iterable[RankFingerprint]],
) -> list[tuple[RankPart, RankFingerprint]]:
    """Collect the parts in the order of `group_by_rank`, with their fingerprints: of each source,
    those of what it holds. A rank with several sources has the fingerprint of the last."""
    of_rank: dict[int, tuple[RankPart, RankFingerprint]] = {}
    without: list[tuple[RankPart, RankFingerprint]] = []
    for source, in_source in enumerate(by_source):
        position = 0
        for item in in_source:
            if item.rank is None:
                without.append((RankPart(None, (source,), position), item))
                position += 1
            else:
                before = of_rank[item.rank][0].sources if item.rank in of_rank else ()
                of_rank[item.rank] = RankPart(item.rank, (*before, source)), item
    return [*(of_rank[rank] for rank in sorted(of_rank)), *without]


def journals_of(part: RankPart, by_source: Iterable[Journals]) -> tuple[ProcessJournal, ...]:
    """Select the journals of a part among those of its sources."""
    journals = tuple(item for read in by_source for item in read if rank_of(item) == part.rank)
    return journals if part.rank is not None else journals[part.position : part.position + 1]


# --- fingerprints -----------------------------------------------------------------------------


def fingerprint_in(journals: Journals, root: str) -> RankFingerprint:
    """Fold and diagnose the journals of one part. Files below `root` are the user's own."""
    timeline = fold([item.events for item in journals], user_roots=(root,))
    return fingerprint_from(journals, timeline, diagnose(timeline))


def fingerprint_from(
    journals: Journals, timeline: Timeline, diagnosis: Diagnosis
) -> RankFingerprint:
    """Build the fingerprint of journals that are folded and diagnosed."""
    summaries = summaries_of(timeline, diagnosis.causes)
    without_rank = RankFingerprint(
        None, len(timeline.processes), 0, 0, 0, 0, 0, 0.0, None, None, 0, None
    )
    sizes = [item.started.world_size for item in journals if item.started is not None]
    # Of findings neither counts nor seconds.
    findings: set[tuple[str, ...]] = set()
    for item in diagnosis.findings:
        at = item.location
        where = "" if at is None else f"{at.file}:{at.line}"
        findings.add((item.rule, item.severity, str(item.variable), where))
    standing = int(any(process.torch is not None for process in timeline.processes))
    if timeline.compiles:
        standing = 2
    if timeline.steps:
        standing = 3
    return replace(
        fingerprint_of(summaries[0]) if summaries else without_rank,
        findings=digest(sorted(findings)),
        standing=standing,
        events=sum(len(item.events) for item in journals),
        world_size=max((size for size in sizes if size is not None), default=None),
        torn=any(item.torn_tail for item in journals),
        lost=tuple(sorted(sum_losses(item.lost for item in journals).items())),
        losses=first_losses((item.source, item.reason) for item in timeline.lost),
    )


def summarise(source: Input) -> tuple[RankSummary, ...]:
    """Summarise the ranks of one source for `compare_ranks`, in some hundred bytes a rank.

    For runs of more ranks than one receipt can hold. Picklable both ways. A rank that wrote several
    files has a summary of each: compare files of one kind only.
    """
    return summaries_in(read_source(source))


def summaries_in(journals: Journals) -> tuple[RankSummary, ...]:
    """Build the summary of each rank."""
    timeline = fold([item.events for item in journals])
    return summaries_of(timeline, causes_in(timeline))


# --- the choice -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnlistedRanks:
    """Ranks whose events a receipt is not made of: what it contains of them."""

    listed: frozenset[int]
    """Indexes of the other parts."""
    comparison: RankComparison
    """Of all ranks."""
    ranks: tuple[int, ...]
    journal: JournalFacts
    losses: tuple[EvidenceLost, ...]


class RankChoice(NamedTuple):
    """The choice of ranks whose events the receipt of all ranks is made of."""

    expected: int | None
    """The world size."""
    unlisted: UnlistedRanks | None = None

    def lists(self, index: int) -> bool:
        """True where the receipt lists the part with this index one by one."""
        return self.unlisted is None or index in self.unlisted.listed


def choice_of(
    fingerprints: Sequence[RankFingerprint],
    world_size: int | None,
    named: Collection[int],
    summary_of: SummaryOf,
) -> RankChoice:
    """Choose the parts that are listed, in the order of `group_by_rank`; `named` are ranks in file
    names, and `read_summary` is called for ranks that the receipt compares."""
    ranks = {item.rank for item in fingerprints if item.rank is not None}
    sizes = [item.world_size for item in fingerprints]
    expected = expected_ranks(world_size, sizes, {*ranks, *named})
    selection = select_ranks(fingerprints)
    if selection is None:
        return RankChoice(expected)
    comparison = compare_fingerprints(fingerprints, expected, summary_of)
    left = [item for index, item in enumerate(fingerprints) if index not in selection.indexes]
    unlisted = UnlistedRanks(
        listed=selection.indexes,
        comparison=comparison,
        ranks=tuple(item.rank for item in left if item.rank is not None),
        journal=JournalFacts(
            records=sum(item.events for item in left),
            torn_tail=any(item.torn for item in left),
            records_lost=sum_losses(dict(item.lost) for item in left),
        ),
        losses=tuple(_losses(left, selection.unlike)),
    )
    return RankChoice(expected, unlisted)


def expected_ranks(
    world_size: int | None, sizes: Iterable[int | None], ranks: Iterable[int]
) -> int | None:
    """Infer the world size: the user's, that of the processes, or the one that the ranks imply;
    None where nothing tells it."""
    if world_size is not None:
        return world_size
    known = [size for size in sizes if size is not None]
    return max([*known, *(rank + 1 for rank in ranks)], default=None)


def _losses(left: Sequence[RankFingerprint], different: int) -> Iterable[EvidenceLost]:
    """Describe what was lost of unlisted ranks, and that some do what the receipt does not show."""
    losses = list(dict.fromkeys(loss for item in left for loss in item.losses))
    for source, reason in losses[:MAX_LOSSES]:
        yield EvidenceLost(0.0, 0, source, reason)
    if len(losses) > MAX_LOSSES:
        more = f"{len(losses) - MAX_LOSSES} more losses: the receipts of the ranks tell them"
        yield EvidenceLost(0.0, 0, "ranks", more)
    if different:
        who = "1 rank does" if different == 1 else f"{different} ranks do"
        note = f"{who} what no rank does that is told here: see their own receipts"
        yield EvidenceLost(0.0, 0, "ranks", note)


# --- the receipts -----------------------------------------------------------------------------


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
    made = map_ordered(partial(fingerprint_and_receipt, name=name), each_alone, executor)
    yield from zip(loaded.ranks, (receipt for _, receipt in made), strict=True)


def fingerprint_and_receipt(
    loaded: LoadedSources, name: str | None
) -> tuple[RankFingerprint, Receipt]:
    """Diagnose one rank, or one process without a rank, by itself. Picklable both ways."""
    timeline, diagnosis, receipt = receipt_of(
        fold([item.events for item in loaded.journals], user_roots=(loaded.root,)),
        _metadata(loaded, name, None, None),
    )
    return fingerprint_from(loaded.journals, timeline, diagnosis), receipt


def listed_receipt(
    loaded: LoadedSources, name: str | None, choice: RankChoice, out: str | None
) -> Receipt:
    """Build the receipt of the loaded ranks, with what the choice stores of the unlisted ones."""
    unlisted = choice.unlisted
    metadata = _metadata(loaded, name, choice.expected, out)
    text_log, counted_ranks, compile_s = loaded.text_log, (), ()
    # Files that may hold a part of the run, and were not read.
    closed = [item for item in loaded.sources if item.kind == UNREADABLE]
    unread = [f"{os.path.basename(item.path)}: {item.why}" for item in closed[:MAX_NAMES]]
    if len(closed) > MAX_NAMES:
        unread.append(f"{len(closed) - MAX_NAMES} more files could not be read")
    beyond = (item for item in loaded.sources if item.kind == BEYOND)
    unread += [f"{item.count} files were not looked at: {item.why}" for item in beyond]
    lost: list[Sequence[EvidenceLost]] = [[EvidenceLost(0.0, 0, "files", x) for x in unread]]
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
    """Add what was read of ranks that are not listed to the metadata."""
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
    """Infer the end of a run that compilediag attached to, and its reason, from the processes that
    no other one started; a trace does not tell it, and counts as complete."""
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
