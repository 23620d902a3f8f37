"""Compares the ranks of a run: where they diverge, and which are slow.

All ranks of a data-parallel run compile the same graphs; one that does not makes all others wait
in the next collective, or hangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median

from msgspec.structs import replace

from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.diagnosis.ranks.summary import (
    RankSummary,
    find_key_diffs,
    list_values,
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
from compilediag.timeline.timeline import Timeline

SHOWN = 5
"""Most differences named of one group of ranks."""

MAX_GROUPS = 200
"""Most groups of ranks listed of one aspect."""

MAX_STRAGGLERS = 16


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The ranks of one run, compared."""

    ranks: tuple[RankSummary, ...]
    missing: tuple[int, ...]
    """Ranks that were expected and of which nothing was found."""
    divergences: tuple[RankDivergence, ...]
    stragglers: tuple[RankStraggler, ...]
    """Slowest first; ranks slower than the median only."""
    left_out: int = 0
    """Groups of ranks that differ and are not listed."""
    differing: int = 0
    """Ranks that differ in any respect, those that are not listed included."""


def compare_ranks(summaries: Iterable[RankSummary], expected: int | None) -> RankComparison:
    """Compare every rank with what most ranks do; `expected` is the world size, where known."""
    by_rank = {summary.rank: summary for summary in summaries}
    by_rank = {rank: by_rank[rank] for rank in sorted(by_rank)}
    values = {rank: list_values(summary) for rank, summary in by_rank.items()}
    divergences: list[RankDivergence] = []
    differing: set[int] = set()
    left_out = 0
    for aspect in next(iter(values.values()), {}):
        groups: dict[tuple[str, ...], list[int]] = {}
        for rank in by_rank:
            groups.setdefault(values[rank][aspect], []).append(rank)
        # The largest group is right, the lowest of equals.
        usual, *others = sorted(groups.values(), key=lambda ranks: (-len(ranks), ranks[0]))
        others.sort()
        left_out += max(0, len(others) - MAX_GROUPS)
        for ranks in others[MAX_GROUPS:]:
            differing.update(ranks)
        for ranks in others[:MAX_GROUPS]:
            differ = _SPLIT.get(aspect, _list_diffs)
            here, there = differ(values[ranks[0]][aspect], values[usual[0]][aspect])
            if here or there:
                differing.update(ranks)
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


_SPLIT = {"collectives": _find_first_diff, "cache_keys": find_key_diffs}
"""How two ranks are compared in an aspect, where not by all that only one of them has."""


def _find_stragglers(by_rank: Mapping[int, RankSummary]) -> tuple[RankStraggler, ...]:
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
    timeline: Timeline, causes: RunCauses, expected: int | None
) -> RanksSection | None:
    """Build the section of ranks. None where a launcher started fewer than two."""
    ranks = {process.rank for process in timeline.processes} - {None}
    if len(ranks) < 2 and (expected or 1) < 2:
        return None
    comparison = compare_ranks(summarize_ranks(timeline, causes), expected)
    measured = timeline.can_observe("metrics_rows")
    counts = ("frames", "compiles", "recompiles", "eager_fallbacks")
    totals = RankTotals(
        ranks=len(comparison.ranks),
        **{name: sum(getattr(summary, name) for summary in comparison.ranks) for name in counts},
        compile_s=sum(summary.compile_s for summary in comparison.ranks) if measured else None,
    )
    rows = (
        make_record(RankRow, summary, compile_s=summary.compile_s if measured else None)
        for summary in comparison.ranks[:MAX_ROWS]
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
        differing=comparison.differing,
        divergences_left_out=comparison.left_out
        + max(0, len(comparison.divergences) - MAX_DIVERGENCES),
    )
