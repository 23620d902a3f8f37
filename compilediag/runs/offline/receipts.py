"""Receipts of loaded sources: of each rank alone, and of all ranks together; the choice of ranks
that the latter lists one by one, and what it stores of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from compilediag.diagnosis.causes.run_causes import find_run_causes
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
    compute_digest,
    make_fingerprint,
    select_first_losses,
    summarize_ranks,
)
from compilediag.readers.inputs import BEYOND, FOREIGN, RUN, TEXT, TRACE, TRAIN, UNREADABLE, Input
from compilediag.readers.journal import JOURNAL_START, ProcessJournal
from compilediag.readers.parallel import map_ordered
from compilediag.receipt.run_metadata import JournalFacts, RunMetadata
from compilediag.receipt.schema.receipt import Receipt, Status
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.runs.offline.sources import LoadedSources, get_rank, read_source
from compilediag.runs.pipeline import diagnose_run, make_identity, sum_losses, summarize_journals
from compilediag.runs.run_directory import iterate_source_artifacts
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


def group_by_rank(journals: Journals) -> list[Journals]:
    """Group journals by rank, ascending, and then each journal that has none alone."""
    by_rank: dict[int, list[ProcessJournal]] = {}
    without: list[Journals] = []
    for journal in journals:
        rank = get_rank(journal)
        if rank is None:
            without.append((journal,))
        else:
            by_rank.setdefault(rank, []).append(journal)
    return [*(by_rank[rank] for rank in sorted(by_rank)), *without]


def collect_parts(
    by_source: Sequence[Iterable[RankFingerprint]],
) -> list[tuple[RankPart, RankFingerprint]]:
    """Collect the parts in the order of `group_by_rank`, with their fingerprints: of each source,
    those of what it holds. A rank with several sources has the fingerprint of the last."""
    of_rank: dict[int, tuple[RankPart, RankFingerprint]] = {}
    without: list[tuple[RankPart, RankFingerprint]] = []
    for source, in_source in enumerate(by_source):
        position = 0
        for fingerprint in in_source:
            if fingerprint.rank is None:
                without.append((RankPart(None, (source,), position), fingerprint))
                position += 1
            else:
                before = of_rank[fingerprint.rank][0].sources if fingerprint.rank in of_rank else ()
                part = RankPart(fingerprint.rank, (*before, source))
                of_rank[fingerprint.rank] = (part, fingerprint)
    return [*(of_rank[rank] for rank in sorted(of_rank)), *without]


def select_journals(part: RankPart, by_source: Iterable[Journals]) -> tuple[ProcessJournal, ...]:
    """Select the journals of a part among those of its sources."""
    journals = tuple(
        journal for read in by_source for journal in read if get_rank(journal) == part.rank
    )
    return journals if part.rank is not None else journals[part.position : part.position + 1]


# --- fingerprints -----------------------------------------------------------------------------


def compute_fingerprint(journals: Journals, root: str) -> RankFingerprint:
    """Fold and diagnose the journals of one part. Files below `root` are the user's own."""
    timeline = fold([journal.events for journal in journals], user_roots=(root,))
    return build_fingerprint(journals, timeline, diagnose(timeline))


def build_fingerprint(
    journals: Journals, timeline: Timeline, diagnosis: Diagnosis
) -> RankFingerprint:
    """Build the fingerprint of journals that are folded and diagnosed."""
    summaries = summarize_ranks(timeline, diagnosis.causes)
    blank = RankFingerprint(None, len(timeline.processes), 0, 0, 0, 0, 0, 0.0, None, None, 0, None)
    sizes = [journal.started.world_size for journal in journals if journal.started is not None]
    # Of findings neither counts nor seconds.
    findings: set[tuple[str, ...]] = set()
    for finding in diagnosis.findings:
        at = finding.location
        where = "" if at is None else f"{at.file}:{at.line}"
        findings.add((finding.rule, finding.severity, str(finding.variable), where))
    standing = int(any(process.torch is not None for process in timeline.processes))
    if timeline.compiles:
        standing = 2
    if timeline.steps:
        standing = 3
    return replace(
        make_fingerprint(summaries[0]) if summaries else blank,
        findings=compute_digest(sorted(findings)),
        standing=standing,
        events=sum(len(journal.events) for journal in journals),
        world_size=max((size for size in sizes if size is not None), default=None),
        torn=any(journal.torn_tail for journal in journals),
        lost=tuple(sorted(sum_losses(journal.lost for journal in journals).items())),
        losses=select_first_losses((loss.source, loss.reason) for loss in timeline.lost),
    )


def summarise(source: Input) -> tuple[RankSummary, ...]:
    """Summarise the ranks of one source for `compare_ranks`, in some hundred bytes a rank.

    For runs of more ranks than one receipt can hold. Picklable both ways. A rank that wrote several
    files has a summary of each: compare files of one kind only.
    """
    return build_summaries(read_source(source))


def build_summaries(journals: Journals) -> tuple[RankSummary, ...]:
    """Build the summary of each rank."""
    timeline = fold([journal.events for journal in journals])
    return summarize_ranks(timeline, find_run_causes(timeline))


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

    def is_listed(self, index: int) -> bool:
        """True where the receipt lists the part with this index one by one."""
        return self.unlisted is None or index in self.unlisted.listed


def choose_ranks(
    fingerprints: Sequence[RankFingerprint],
    world_size: int | None,
    named: Collection[int],
    read_summary: SummaryOf,
) -> RankChoice:
    """Choose the parts that are listed, in the order of `group_by_rank`; `named` are ranks in file
    names, and `read_summary` is called for ranks that the receipt compares."""
    ranks = {part.rank for part in fingerprints if part.rank is not None}
    sizes = [part.world_size for part in fingerprints]
    expected = infer_world_size(world_size, sizes, {*ranks, *named})
    selection = select_ranks(fingerprints)
    if selection is None:
        return RankChoice(expected)
    comparison = compare_fingerprints(fingerprints, expected, read_summary)
    left = [part for index, part in enumerate(fingerprints) if index not in selection.indexes]
    unlisted = UnlistedRanks(
        listed=selection.indexes,
        comparison=comparison,
        ranks=tuple(part.rank for part in left if part.rank is not None),
        journal=JournalFacts(
            records=sum(part.events for part in left),
            torn_tail=any(part.torn for part in left),
            records_lost=sum_losses(dict(part.lost) for part in left),
        ),
        losses=tuple(_describe_losses(left, selection.unlike)),
    )
    return RankChoice(expected, unlisted)


def infer_world_size(
    world_size: int | None, sizes: Iterable[int | None], ranks: Iterable[int]
) -> int | None:
    """Infer the world size: the user's, that of the processes, or what the ranks imply."""
    if world_size is not None:
        return world_size
    known = [size for size in sizes if size is not None]
    return max([*known, *(rank + 1 for rank in ranks)], default=None)


def _describe_losses(unlisted: Sequence[RankFingerprint], different: int) -> Iterable[EvidenceLost]:
    """Describe what was lost of unlisted ranks, and that some do what the receipt does not show."""
    losses = list(dict.fromkeys(loss for fingerprint in unlisted for loss in fingerprint.losses))
    for source, reason in losses[:MAX_LOSSES]:
        yield EvidenceLost(0.0, 0, source, reason)
    if len(losses) > MAX_LOSSES:
        more = f"{len(losses) - MAX_LOSSES} more losses: the receipts of the ranks tell them"
        yield EvidenceLost(0.0, 0, "ranks", more)
    if different:
        who = "1 rank does" if different == 1 else f"{different} ranks do"
        note = f"{who} what no rank does that is reported here: see their own receipts"
        yield EvidenceLost(0.0, 0, "ranks", note)


# --- the receipts -----------------------------------------------------------------------------


def merged_receipt(
    loaded: LoadedSources, name: str | None, world_size: int | None, out: str | None = None
) -> Receipt:
    """One receipt of all ranks; `out` is the folder it is to lie in, for the links to the files.

    Of a run of many ranks it lists some: see `diagnosis/ranks/selection.py`.
    """
    parts = group_by_rank(loaded.journals)
    if has_room(len(parts), sum(len(journal.events) for journal in loaded.journals)):
        sizes = [journal.started.world_size for journal in loaded.journals if journal.started]
        expected = infer_world_size(world_size, sizes, {*loaded.ranks, *loaded.named})
        return build_listed_receipt(loaded, name, RankChoice(expected), out)
    fingerprints = [compute_fingerprint(part, loaded.root) for part in parts]
    ranks = {fingerprint.rank: part for fingerprint, part in zip(fingerprints, parts, strict=True)}
    choice = choose_ranks(
        fingerprints, world_size, loaded.named, lambda rank: build_summaries(ranks[rank])[0]
    )
    listed = (part for index, part in enumerate(parts) if choice.is_listed(index))
    loaded = replace(loaded, journals=tuple(journal for part in listed for journal in part))
    return build_listed_receipt(loaded, name, choice, out)


def rank_receipts(
    loaded: LoadedSources, name: str | None, executor: Executor | None = None
) -> Iterator[tuple[int, Receipt]]:
    """A receipt of each rank alone, ascending, made one at a time or one task a rank."""
    parts = [part for part in group_by_rank(loaded.journals) if get_rank(part[0]) is not None]
    single_ranks = (LoadedSources(tuple(part), root=loaded.root) for part in parts)
    made = map_ordered(partial(diagnose_rank, name=name), single_ranks, executor)
    yield from zip(loaded.ranks, (receipt for _, receipt in made), strict=True)


def diagnose_rank(loaded: LoadedSources, name: str | None) -> tuple[RankFingerprint, Receipt]:
    """Diagnose one rank, or one process without a rank, by itself. Picklable both ways."""
    timeline, diagnosis, receipt = diagnose_run(
        fold([journal.events for journal in loaded.journals], user_roots=(loaded.root,)),
        _build_metadata(loaded, name, None, None),
    )
    return build_fingerprint(loaded.journals, timeline, diagnosis), receipt


def build_listed_receipt(
    loaded: LoadedSources, name: str | None, choice: RankChoice, out: str | None
) -> Receipt:
    """Build the receipt of the loaded ranks, with what the choice stores of the unlisted ones."""
    unlisted = choice.unlisted
    metadata = _build_metadata(loaded, name, choice.expected, out)
    text_log, counted_ranks, compile_s = loaded.text_log, (), ()
    # Files that may hold a part of the run, and were not read.
    closed = [source for source in loaded.sources if source.kind == UNREADABLE]
    unread = [f"{os.path.basename(source.path)}: {source.why}" for source in closed[:MAX_NAMES]]
    if len(closed) > MAX_NAMES:
        unread.append(f"{len(closed) - MAX_NAMES} more files could not be read")
    beyond = (source for source in loaded.sources if source.kind == BEYOND)
    unread += [f"{source.count} files were not looked at: {source.why}" for source in beyond]
    lost: list[Sequence[EvidenceLost]] = [[EvidenceLost(0.0, 0, "files", x) for x in unread]]
    if unlisted is not None:
        text_log = None  # a log of all ranks is no second opinion of some
        counted_ranks = unlisted.ranks
        ranks = {*counted_ranks}
        compile_s = tuple(
            (fingerprint.rank, fingerprint.compile_s)
            for fingerprint in unlisted.comparison.ranks
            if fingerprint.rank is not None and fingerprint.rank in ranks
        )
        lost.insert(0, unlisted.losses)
        metadata = _add_unlisted(metadata, unlisted)
    present = {*loaded.ranks, *counted_ranks}
    missing = sorted(set(range(choice.expected or 0)) - present)
    if missing and present:
        names = ", ".join(str(rank) for rank in missing[:MAX_NAMES])
        more = f" and {len(missing) - MAX_NAMES} more" if len(missing) > MAX_NAMES else ""
        lost.append((EvidenceLost(0.0, 0, "ranks", f"nothing was found of rank {names}{more}"),))
    events = [*(journal.events for journal in loaded.journals), *filter(None, lost)]
    roots = (loaded.root,)
    timeline = fold(events, text_log, roots, loaded.train_log, counted_ranks, compile_s)
    return diagnose_run(timeline, metadata).receipt


def _add_unlisted(metadata: RunMetadata, unlisted: UnlistedRanks) -> RunMetadata:
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
