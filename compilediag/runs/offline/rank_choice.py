"""The ranks that the receipt of all lists one by one, their sources, and what it keeps of the
others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from compilediag.diagnosis.causes.of_run import causes_in
from compilediag.diagnosis.ranks.divergence import (
    RankComparison,
    SummaryOf,
    compare_fingerprints,
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
from compilediag.readers.inputs import Input
from compilediag.readers.journal import ProcessJournal
from compilediag.receipt.run_metadata import JournalFacts
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.runs.offline.sources import rank_of, read_source
from compilediag.runs.pipeline import sum_losses
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness.wire import EvidenceLost

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
    """The journals of each rank, ascending, and then each journal that has none."""
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
    """The parts in the order of `parts_of`, with their fingerprints: of each source, those of what
    it holds. A rank with several sources comes with the fingerprint of the last."""
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
    """The journals of a part, out of those of its sources."""
    journals = tuple(item for read in by_source for item in read if rank_of(item) == part.rank)
    return journals if part.rank is not None else journals[part.position : part.position + 1]


# --- fingerprints -----------------------------------------------------------------------------


def fingerprint_in(journals: Journals, root: str) -> RankFingerprint:
    """One part, of all its journals. Files below `root` are the user's own."""
    timeline = fold([item.events for item in journals], user_roots=(root,))
    return fingerprint_from(journals, timeline, diagnose(timeline))


def fingerprint_from(
    journals: Journals, timeline: Timeline, diagnosis: Diagnosis
) -> RankFingerprint:
    """The same of journals that are folded and diagnosed."""
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
    """The ranks of one source as `compare_ranks` compares them, in some hundred bytes a rank.

    For runs of more ranks than one receipt can hold. Picklable both ways. A rank that wrote several
    files has a summary of each: compare files of one kind only.
    """
    return summaries_in(read_source(source))


def summaries_in(journals: Journals) -> tuple[RankSummary, ...]:
    """The summary of each rank."""
    timeline = fold([item.events for item in journals])
    return summaries_of(timeline, causes_in(timeline))


# --- the choice -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnlistedRanks:
    """What a receipt contains of ranks whose events it is not made of."""

    comparison: RankComparison
    """Of all ranks."""
    ranks: tuple[int, ...]
    journal: JournalFacts
    losses: tuple[EvidenceLost, ...]


class RankChoice(NamedTuple):
    """What the receipt of all ranks is made of."""

    expected: int | None
    """The world size."""
    listed: frozenset[int] | None = None
    """Indexes of the parts that are listed; None: all."""
    unlisted: UnlistedRanks | None = None

    def lists(self, index: int) -> bool:
        return self.listed is None or index in self.listed


def choice_of(
    fingerprints: Sequence[RankFingerprint],
    world_size: int | None,
    named: Collection[int],
    summary_of: SummaryOf,
) -> RankChoice:
    """Which of the parts are listed, in the order of `parts_of`; `named` are ranks in file names,
    and `summary_of` is called for ranks that the receipt compares."""
    ranks = {item.rank for item in fingerprints if item.rank is not None}
    sizes = [item.world_size for item in fingerprints]
    expected = expected_ranks(world_size, sizes, {*ranks, *named})
    selection = select_ranks(fingerprints)
    if selection is None:
        return RankChoice(expected)
    comparison = compare_fingerprints(fingerprints, expected, summary_of)
    left = [item for index, item in enumerate(fingerprints) if index not in selection.indexes]
    unlisted = UnlistedRanks(
        comparison=comparison,
        ranks=tuple(item.rank for item in left if item.rank is not None),
        journal=JournalFacts(
            records=sum(item.events for item in left),
            torn_tail=any(item.torn for item in left),
            records_lost=sum_losses(dict(item.lost) for item in left),
        ),
        losses=tuple(_losses(left, selection.unlike)),
    )
    return RankChoice(expected, selection.indexes, unlisted)


def expected_ranks(
    world_size: int | None, sizes: Iterable[int | None], ranks: Iterable[int]
) -> int | None:
    """The world size: the user's, that of the processes, or the one that the ranks imply."""
    if world_size is not None:
        return world_size
    known = [size for size in sizes if size is not None]
    return max([*known, *(rank + 1 for rank in ranks)], default=None)


def _losses(left: Sequence[RankFingerprint], different: int) -> Iterable[EvidenceLost]:
    """What was lost of them, and that some of them do what nothing in the receipt shows."""
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
