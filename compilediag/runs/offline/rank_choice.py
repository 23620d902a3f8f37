"""The ranks of a record in brief, and what stays of those that its receipt does not tell. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from compilediag.diagnosis.causes.of_run import causes_in
from compilediag.diagnosis.diagnose import Diagnosis
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.ranks.divergence import Comparison, SummaryOf, compare_briefs
from compilediag.diagnosis.ranks.fingerprint import (
    RankFingerprint,
    brief_of,
    counted,
    digest,
    losses_in,
)
from compilediag.diagnosis.ranks.selection import Told, told_of
from compilediag.diagnosis.ranks.summary import RankSummary, summaries_of
from compilediag.readers.journal import Journal
from compilediag.runs.offline.sources import rank_of
from compilediag.runs.pipeline import RunEvents, diagnosis_of
from compilediag.timeline.fold import fold
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import EvidenceLost

LOSSES_TOLD = 20
"""Most losses of ranks that are not told which are told all the same."""

Journals = Sequence[Journal]


@dataclass(frozen=True, slots=True)
class Others:
    """What a receipt says of ranks whose events it is not made of."""

    comparison: Comparison
    """Of all ranks."""
    ranks: tuple[int, ...]
    events: int
    torn: bool
    lost: dict[str, int]
    """Records lost, by reason."""
    losses: tuple[EvidenceLost, ...]


def parts_of(journals: Journals) -> list[Journals]:
    """The journals of each rank, ascending, and then each journal that has none."""
    by_rank: dict[int, list[Journal]] = {}
    alone: list[Journals] = []
    for item in journals:
        rank = rank_of(item)
        if rank is None:
            alone.append((item,))
        else:
            by_rank.setdefault(rank, []).append(item)
    return [*(by_rank[rank] for rank in sorted(by_rank)), *alone]


def brief_in(journals: Journals, root: str) -> RankFingerprint:
    """One rank, of all its journals; or one journal without a rank. Files below `root` are the
    user's own."""
    events = RunEvents([item.events for item in journals], (root,))
    timeline, diagnosis = diagnosis_of(events)
    return brief_from(journals, timeline, diagnosis)


def brief_from(journals: Journals, timeline: Timeline, diagnosis: Diagnosis) -> RankFingerprint:
    """The same of its journals, folded and diagnosed."""
    summaries = summaries_of(timeline, diagnosis.causes)
    brief = brief_of(summaries[0]) if summaries else _without_rank(timeline)
    lost: dict[str, int] = {}
    for item in journals:
        for reason, count in item.lost.items():
            lost[reason] = lost.get(reason, 0) + count
    sizes = [item.started.world_size for item in journals if item.started is not None]
    return replace(
        brief,
        findings=digest(sorted({_named(item) for item in diagnosis.findings})),
        standing=_standing(timeline),
        events=sum(len(item.events) for item in journals),
        world_size=max((size for size in sizes if size is not None), default=None),
        torn=any(item.torn_tail for item in journals),
        lost=counted(lost),
        losses=losses_in((item.source, item.reason) for item in timeline.lost),
    )


def summary_in(journals: Journals) -> RankSummary:
    """The same rank, summarised."""
    timeline = fold([item.events for item in journals])
    return summaries_of(timeline, causes_in(timeline))[0]


def _without_rank(timeline: Timeline) -> RankFingerprint:
    return RankFingerprint(None, len(timeline.processes), 0, 0, 0, 0, 0, 0.0, None, None, 0, None)


def _named(finding: Finding) -> tuple[str, ...]:
    """A finding without counts and seconds."""
    place = finding.location
    where = "" if place is None else f"{place.file}:{place.line}"
    return (finding.rule, finding.severity, str(finding.variable), where)


def _standing(timeline: Timeline) -> int:
    if timeline.steps:
        return 3
    if timeline.compiles:
        return 2
    return int(any(process.torch is not None for process in timeline.processes))


class Choice(NamedTuple):
    """What the receipt of all ranks is made of."""

    expected: int | None
    """The world size."""
    told: Told | None
    """None: all that was read."""
    others: Others | None


def choice_of(
    briefs: Sequence[RankFingerprint],
    world_size: int | None,
    named: Collection[int],
    summary_of: SummaryOf,
) -> Choice:
    """Which of the briefs are told, in the order of `parts_of`; `named` are ranks that files are
    named after, and `summary_of` is asked for the ranks that are named in the receipt."""
    ranks = {item.rank for item in briefs if item.rank is not None}
    expected = expected_ranks(world_size, [item.world_size for item in briefs], {*ranks, *named})
    told = told_of(briefs)
    if told is None:
        return Choice(expected, None, None)
    comparison = compare_briefs(briefs, expected, summary_of)
    return Choice(expected, told, others_of(briefs, told, comparison))


def expected_ranks(
    world_size: int | None, told: Iterable[int | None], ranks: Iterable[int]
) -> int | None:
    """The world size: as the user told, as processes tell it, or as the highest rank implies."""
    if world_size is not None:
        return world_size
    sizes = [size for size in told if size is not None]
    return max([*sizes, *(rank + 1 for rank in ranks)], default=None)


def others_of(briefs: Sequence[RankFingerprint], told: Told, comparison: Comparison) -> Others:
    """What is kept of the briefs that are not told."""
    left = [item for place, item in enumerate(briefs) if place not in told.places]
    lost: dict[str, int] = {}
    for item in left:
        for reason, count in item.lost:
            lost[reason] = lost.get(reason, 0) + count
    return Others(
        comparison=comparison,
        ranks=tuple(item.rank for item in left if item.rank is not None),
        events=sum(item.events for item in left),
        torn=any(item.torn for item in left),
        lost=lost,
        losses=tuple(_losses(left, told.otherwise)),
    )


def _losses(left: Sequence[RankFingerprint], otherwise: int) -> Iterable[EvidenceLost]:
    """What was lost of them, and that some of them do what nothing in the receipt shows."""
    found = dict.fromkeys(loss for item in left for loss in item.losses)
    for source, reason in list(found)[:LOSSES_TOLD]:
        yield EvidenceLost(0.0, 0, source, reason)
    if len(found) > LOSSES_TOLD:
        more = f"{len(found) - LOSSES_TOLD} more losses: the receipts of the ranks tell them"
        yield EvidenceLost(0.0, 0, "ranks", more)
    if otherwise:
        who = "1 rank does" if otherwise == 1 else f"{otherwise} ranks do"
        told_here = f"{who} what no rank does that is told here: see their own receipts"
        yield EvidenceLost(0.0, 0, "ranks", told_here)
