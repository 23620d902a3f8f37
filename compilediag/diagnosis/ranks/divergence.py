"""Where the ranks of a run do not do the same, and which of them are slow. Pure.

All ranks of a data-parallel run compile the same graphs; one that does not makes all others wait
in the next collective, or runs collectives in another order and hangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from compilediag.diagnosis.ranks.fingerprint import ASPECTS, RankFingerprint, brief_of, values_of
from compilediag.diagnosis.ranks.summary import RankSummary

SHOWN = 5
"""Most differences named of one group of ranks."""

GROUPS_KEPT = 200
"""Most groups of ranks told of one aspect."""

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

    ranks: tuple[RankFingerprint, ...]
    missing: tuple[int, ...]
    """Ranks that were expected and of which nothing was found."""
    divergences: tuple[Divergence, ...]
    stragglers: tuple[Straggler, ...]
    """Slowest first; ranks slower than the median only."""
    left_out: int = 0
    """Groups of ranks that differ and are not told."""
    differing: int = 0
    """Ranks that differ in any respect, those that are not told included."""


SummaryOf = Callable[[int], RankSummary]
"""The summary of a rank, which is asked for when it is named."""


def compare_ranks(summaries: Iterable[RankSummary], expected: int | None) -> Comparison:
    """Every rank against what most ranks do; `expected` is the world size, where it is known."""
    by_rank = {summary.rank: summary for summary in summaries}
    return compare_briefs(map(brief_of, by_rank.values()), expected, by_rank.__getitem__)


def compare_briefs(
    briefs: Iterable[RankFingerprint], expected: int | None, summary_of: SummaryOf
) -> Comparison:
    """The same, where only the ranks that are named are summarised."""
    ranks = tuple(
        sorted((item for item in briefs if item.rank is not None), key=lambda item: item.rank or 0)
    )
    present = {item.rank for item in ranks}
    found: list[Divergence] = []
    differing: set[int] = set()
    left_out = 0
    for aspect in range(len(ASPECTS)):
        groups, usual = _groups(ranks, aspect)
        for members in groups:
            differing.update(members)
        told = groups[:GROUPS_KEPT]
        left_out += len(groups) - len(told)
        split = _orders if ASPECTS[aspect] == "collectives" else _sets
        found += [_divergence(aspect, members, usual, summary_of, split) for members in told]
    return Comparison(
        ranks=ranks,
        missing=tuple(sorted(set(range(expected or 0)) - present)),
        divergences=tuple(found),
        stragglers=_stragglers(ranks),
        left_out=left_out,
        differing=len(differing),
    )


_Split = Callable[[tuple[str, ...], tuple[str, ...]], tuple[list[str], list[str]]]


def _groups(ranks: Sequence[RankFingerprint], aspect: int) -> tuple[list[list[int]], int]:
    """Ranks that do not do what most do, in groups that do the same; and the lowest of the most.

    The largest group is right, the lowest of equals.
    """
    groups: dict[bytes, list[int]] = {}
    for item in ranks:
        groups.setdefault(item.digests[aspect], []).append(item.rank or 0)
    if len(groups) < 2:
        return [], 0
    usual = max(groups, key=lambda value: (len(groups[value]), -groups[value][0]))
    return [members for value, members in groups.items() if value != usual], groups[usual][0]


def _divergence(
    aspect: int, members: Sequence[int], usual: int, summary_of: SummaryOf, split: _Split
) -> Divergence:
    value, most = (values_of(summary_of(rank))[aspect] for rank in (members[0], usual))
    here, there = split(value, most)
    return Divergence(
        ASPECTS[aspect],
        tuple(members),
        usual,
        tuple(here[:SHOWN]),
        tuple(there[:SHOWN]),
        max(0, len(here) - SHOWN) + max(0, len(there) - SHOWN),
    )


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


def _stragglers(ranks: Sequence[RankFingerprint]) -> tuple[Straggler, ...]:
    """By the time of a step where it was measured, else by the seconds of all compiles."""
    steps = [
        (item.rank or 0, item.step_median_s) for item in ranks if item.step_median_s is not None
    ]
    if len(steps) > 1:
        return _ranked("step", steps)
    return _ranked("compile", [(item.rank or 0, item.compile_s) for item in ranks])


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
