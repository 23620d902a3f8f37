"""Where the ranks of a run do not do the same, and which of them are slow. Pure.

All ranks of a data-parallel run compile the same graphs; one that does not makes all others wait
in the next collective, or runs collectives in another order and hangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from compilediag.ranks.summary import RankSummary

SHOWN = 5
"""Most differences named of one group of ranks."""

STRAGGLERS_KEPT = 16


@dataclass(frozen=True, slots=True)
class Divergence:
    """Ranks that differ from most of the others in one respect."""

    aspect: str
    """"compile_ids", "cache_hits", "recompile_causes", "graph_breaks", "collectives"."""
    ranks: tuple[int, ...]
    """Those that differ, all in the same way."""
    like_rank: int
    """The lowest of the ranks they are compared with."""
    only_here: tuple[str, ...]
    """What only they have; at most five."""
    only_there: tuple[str, ...]
    """What they lack."""
    more: int = 0
    """Further differences that are not named."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank with its time beside the median of all ranks."""

    rank: int
    what: str
    """"step" (median seconds of a step) or "compile" (seconds of all compiles)."""
    seconds: float
    ratio: float
    """To the median of the ranks."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ranks of one run, compared."""

    ranks: tuple[RankSummary, ...]
    missing: tuple[int, ...]
    """Ranks that were expected and of which nothing was found."""
    divergences: tuple[Divergence, ...]
    stragglers: tuple[Straggler, ...]
    """Slowest first; ranks slower than the median only."""


_ASPECTS: tuple[tuple[str, Callable[[RankSummary], tuple[str, ...]]], ...] = (
    ("compile_ids", lambda rank: rank.ids),
    ("recompile_causes", lambda rank: rank.causes),
    ("graph_breaks", lambda rank: rank.breaks),
    ("cache_hits", lambda rank: rank.cached),
)


def compare_ranks(summaries: Iterable[RankSummary], expected: int | None) -> Comparison:
    """Every rank against what most ranks do; `expected` is the world size, where it is known."""
    ranks = tuple(sorted(summaries, key=lambda summary: summary.rank))
    present = {summary.rank for summary in ranks}
    found = [
        divergence
        for aspect, values in _ASPECTS
        for divergence in _differences(aspect, ranks, values, _sets)
    ]
    found += _differences("collectives", ranks, lambda rank: rank.collectives, _orders)
    return Comparison(
        ranks=ranks,
        missing=tuple(sorted(set(range(expected or 0)) - present)),
        divergences=tuple(found),
        stragglers=_stragglers(ranks),
    )


_Split = Callable[[tuple[str, ...], tuple[str, ...]], tuple[list[str], list[str]]]


def _differences(
    aspect: str,
    ranks: Sequence[RankSummary],
    values: Callable[[RankSummary], tuple[str, ...]],
    split: _Split,
) -> list[Divergence]:
    """Ranks that have the same are one group; the largest group, the lowest of equals, is right."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for summary in ranks:
        groups.setdefault(values(summary), []).append(summary.rank)
    if len(groups) < 2:
        return []
    usual = max(groups, key=lambda value: (len(groups[value]), -groups[value][0]))
    found: list[Divergence] = []
    for value, members in groups.items():
        if value == usual:
            continue
        here, there = split(value, usual)
        left_out = max(0, len(here) - SHOWN) + max(0, len(there) - SHOWN)
        found.append(
            Divergence(
                aspect,
                tuple(members),
                groups[usual][0],
                tuple(here[:SHOWN]),
                tuple(there[:SHOWN]),
                left_out,
            )
        )
    return found


def _sets(value: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    here, there = Counter(value), Counter(usual)
    return list((here - there).elements()), list((there - here).elements())


def _orders(value: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The first place at which the order differs: what follows is a consequence."""
    for place, (here, there) in enumerate(zip(value, usual, strict=False), start=1):
        if here != there:
            return [f"collective {place} is {here}"], [f"collective {place} is {there}"]
    shorter = min(len(value), len(usual))
    longer = value if len(value) > shorter else usual
    told = [f"collective {shorter + 1} is {longer[shorter]}"]
    return (told, []) if longer is value else ([], told)


def _stragglers(ranks: Sequence[RankSummary]) -> tuple[Straggler, ...]:
    """By the time of a step where it was measured, else by the seconds of all compiles."""
    steps = [(rank.rank, rank.step_median_s) for rank in ranks if rank.step_median_s is not None]
    if len(steps) > 1:
        return _ranked("step", steps)
    return _ranked("compile", [(rank.rank, rank.compile_s) for rank in ranks])


def _ranked(what: str, times: Sequence[tuple[int, float]]) -> tuple[Straggler, ...]:
    if len(times) < 2:
        return ()
    usual = median(seconds for _, seconds in times)
    if usual <= 0:
        return ()
    slow = [
        Straggler(rank, what, seconds, seconds / usual)
        for rank, seconds in times
        if seconds > usual
    ]
    slow.sort(key=lambda each: (-each.seconds, each.rank))
    return tuple(slow[:STRAGGLERS_KEPT])
