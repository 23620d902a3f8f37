"""Compares the ranks of a run: where they diverge, which are slow, and which are listed.

All ranks of a data-parallel run compile the same graphs; one that does not makes all others wait
in the next collective, or hangs. Listed are those that stand for others first, then the lowest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median

from msgspec.structs import replace

from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.diagnosis.ranks.summary import (
    ASPECTS,
    RankFingerprint,
    RankSummary,
    list_values,
    make_fingerprint,
    summarize_ranks,
)
from compilediag.receipt.schema.comparisons import (
    RankDivergence,
    RankRow,
    RanksSection,
    RankStraggler,
    RankTotals,
)
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.timeline import Timeline, list_present_ranks

SHOWN = 5
"""Most differences named of one group of ranks."""

MAX_GROUPS = 200
"""Most groups of ranks listed of one aspect."""

MAX_STRAGGLERS = 16


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The ranks of one run, compared."""

    ranks: tuple[RankFingerprint, ...]
    missing: tuple[int, ...]
    """Ranks that were expected and of which nothing was found."""
    divergences: tuple[RankDivergence, ...]
    stragglers: tuple[RankStraggler, ...]
    """Slowest first; ranks slower than the median only."""
    left_out: int = 0
    """Groups of ranks that differ and are not listed."""
    differing: int = 0
    """Ranks that differ in any respect, those that are not listed included."""


SummaryOf = Callable[[int], RankSummary]
"""The summary of a rank, called for those that are named."""


def compare_ranks(summaries: Iterable[RankSummary], expected: int | None) -> RankComparison:
    """Compare every rank with what most ranks do; `expected` is the world size, where known."""
    ranks = {summary.rank: summary for summary in summaries}
    return compare_fingerprints(map(make_fingerprint, ranks.values()), expected, ranks.__getitem__)


def compare_fingerprints(
    fingerprints: Iterable[RankFingerprint], expected: int | None, summary_of: SummaryOf
) -> RankComparison:
    """Compare ranks by their fingerprints; only those that are named are summarised, one by one."""
    by_rank = {record.rank: record for record in fingerprints if record.rank is not None}
    by_rank = {rank: by_rank[rank] for rank in sorted(by_rank)}
    divergences: list[RankDivergence] = []
    differing: set[int] = set()
    left_out = 0
    for index, aspect in enumerate(ASPECTS):
        groups: dict[bytes, list[int]] = {}
        for rank, record in by_rank.items():
            groups.setdefault(record.digests[index], []).append(rank)
        # The largest group is right, the lowest of equals.
        usual, *others = sorted(groups.values(), key=lambda ranks: (-len(ranks), ranks[0])) or [[]]
        others.sort()
        left_out += max(0, len(others) - MAX_GROUPS)
        differing.update(*others)
        for ranks in others[:MAX_GROUPS]:
            values = (list_values(summary_of(group[0]))[index] for group in (ranks, usual))
            list_diffs = _find_first_diff if aspect == "collectives" else _list_diffs
            here, there = list_diffs(*values)
            divergence = RankDivergence(
                aspect=aspect,
                ranks=tuple(ranks),
                like_rank=usual[0],
                only_here=tuple(here[:SHOWN]),
                only_there=tuple(there[:SHOWN]),
                more=sum(max(0, len(differences) - SHOWN) for differences in (here, there)),
                count=len(ranks),
            )
            divergences.append(divergence)
    return RankComparison(
        ranks=tuple(by_rank.values()),
        missing=tuple(sorted(set(range(expected or 0)).difference(by_rank))),
        divergences=tuple(divergences),
        stragglers=_find_stragglers(by_rank),
        left_out=left_out,
        differing=len(differing),
    )


def _list_diffs(value: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    here, there = Counter(value), Counter(usual)
    return list((here - there).elements()), list((there - here).elements())


def _find_first_diff(value: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Find where the order differs first: what follows is a consequence."""
    for number, names in enumerate(zip_longest(value, usual), start=1):
        if names[0] != names[1]:
            here, there = ([f"collective {number} is {name}"] if name else [] for name in names)
            return here, there
    return [], []


def _find_stragglers(by_rank: Mapping[int, RankFingerprint]) -> tuple[RankStraggler, ...]:
    """Find slow ranks by the time of a step where it was measured, else by all compile seconds."""
    what = "step"
    times = {r: row.step_median_s for r, row in by_rank.items() if row.step_median_s is not None}
    if len(times) < 2:
        what, times = "compile", {rank: row.compile_s for rank, row in by_rank.items()}
    usual = median(times.values()) if len(times) > 1 else 0.0
    if usual <= 0:
        return ()
    slow = [
        RankStraggler(rank=rank, what=what, seconds=seconds, ratio=seconds / usual)
        for rank, seconds in times.items()
        if seconds > usual
    ]
    return tuple(sorted(slow, key=lambda row: (-row.seconds, row.rank))[:MAX_STRAGGLERS])


MAX_ROWS = 4096
MAX_DIVERGENCES = 200
MAX_MISSING = 100_000
MAX_NAMED_RANKS = 64
"""Most ranks named of one divergence."""


def build_ranks_section(
    timeline: Timeline,
    causes: RunCauses,
    expected: int | None,
    comparison: RankComparison | None = None,
) -> RanksSection | None:
    """Build the section of ranks: of `comparison`, where the Timeline does not hold all of them,
    else of those it holds. None where a launcher started fewer than two."""
    if comparison is None:
        ranks = {process.rank for process in timeline.processes} - {None}
        if len(ranks) < 2 and (expected or 1) < 2:
            return None
        comparison = compare_ranks(summarize_ranks(timeline, causes), expected)
    measured = timeline.can_observe("metrics_rows")
    counted = len(timeline.counted_ranks)
    counts = ("frames", "compiles", "recompiles", "eager_fallbacks")
    totals = RankTotals(
        ranks=len(comparison.ranks),
        **{
            name: sum(getattr(fingerprint, name) for fingerprint in comparison.ranks)
            for name in counts
        },
        compile_s=sum(fingerprint.compile_s for fingerprint in comparison.ranks)
        if measured
        else None,
    )
    rows = (
        make_record(
            RankRow,
            fingerprint,
            rank=fingerprint.rank or 0,
            compile_s=fingerprint.compile_s if measured else None,
        )
        for fingerprint in comparison.ranks[:MAX_ROWS]
    )
    return RanksSection(
        expected=expected,
        missing=comparison.missing[:MAX_MISSING],
        missing_count=len(comparison.missing),
        rows=tuple(rows),
        divergences=tuple(
            replace(divergence, ranks=divergence.ranks[:MAX_NAMED_RANKS])
            for divergence in comparison.divergences[:MAX_DIVERGENCES]
        ),
        stragglers=comparison.stragglers if measured else (),
        totals=totals,
        reported=len(list_present_ranks(timeline)) - counted if counted else None,
        differing=comparison.differing,
        divergences_left_out=comparison.left_out
        + max(0, len(comparison.divergences) - MAX_DIVERGENCES),
    )


MAX_RANKS = 256
"""Most ranks that are listed one by one."""

MAX_EVENTS = 200_000
"""Most events of them together."""

MIN_RANKS = 64
"""Ranks that are listed however many events they have."""


@dataclass(frozen=True, slots=True)
class RankSelection:
    """The choice."""

    indexes: frozenset[int]
    """Those of the fingerprints that are listed."""
    unlike: int
    """Ranks left out that do what no listed rank does."""


def has_room(ranks: int, events: int) -> bool:
    """True if all of so many ranks with so many events are listed."""
    return ranks <= MIN_RANKS or (ranks <= MAX_RANKS and events <= MAX_EVENTS)


def select_ranks(ranks: Sequence[RankFingerprint]) -> RankSelection | None:
    """Select the ranks that are listed; None where all of them are."""
    if has_room(len(ranks), sum(record.events for record in ranks)):
        return None
    # A process without a rank comes after those that have one.
    order = sorted(range(len(ranks)), key=lambda at: (ranks[at].rank is None, ranks[at].rank or 0))
    # The lead, one for each behaviour, then all by rank.
    first = {ranks[at].behaviour: at for at in reversed(order)}
    stand_for_others = [at for at in order if first[ranks[at].behaviour] == at]
    lead = find_lead(ranks)
    leads = () if lead is None else (lead,)
    chosen: set[int] = set()
    events = 0
    for at in [*dict.fromkeys((*leads, *stand_for_others, *order))][:MAX_RANKS]:
        events += ranks[at].events
        if events > MAX_EVENTS and len(chosen) >= MIN_RANKS:
            break
        chosen.add(at)
    if len(chosen) == len(ranks):
        return None
    shown = {ranks[at].behaviour for at in chosen}
    return RankSelection(frozenset(chosen), sum(record.behaviour not in shown for record in ranks))


def find_lead(ranks: Sequence[RankFingerprint]) -> int | None:
    """Find the index of the rank whose steps are shown, by the rule of `Timeline.lead`."""
    indexes = [at for at, record in enumerate(ranks) if record.standing]
    return min(indexes, key=lambda at: (-ranks[at].standing, ranks[at].rank or 0, at), default=None)
