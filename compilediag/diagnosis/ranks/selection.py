"""Which ranks of a run its receipt lists one by one, where it cannot list all of them. Pure.

Counts of two receipts of one lane are compared, so as many ranks are listed of each run as there is
room for: those that stand for others first, then the lowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compilediag.diagnosis.ranks.summary import RankFingerprint

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
    """Whether all of so many ranks with so many events are listed."""
    return ranks <= MIN_RANKS or (ranks <= MAX_RANKS and events <= MAX_EVENTS)


def select_ranks(ranks: Sequence[RankFingerprint]) -> RankSelection | None:
    """Which of the ranks are listed; None where all of them are."""
    if has_room(len(ranks), sum(item.events for item in ranks)):
        return None
    chosen: set[int] = set()
    events = 0
    for index in _in_order(ranks)[:MAX_RANKS]:
        events += ranks[index].events
        if events > MAX_EVENTS and len(chosen) >= MIN_RANKS:
            break
        chosen.add(index)
    if len(chosen) == len(ranks):
        return None
    shown = {ranks[index].behaviour for index in chosen}
    return RankSelection(frozenset(chosen), sum(item.behaviour not in shown for item in ranks))


def lead_of(ranks: Sequence[RankFingerprint]) -> int | None:
    """The index of the rank whose steps are shown, by the rule of `Timeline.lead`."""
    indexes = [index for index, item in enumerate(ranks) if item.standing]
    return min(
        indexes,
        key=lambda index: (-ranks[index].standing, ranks[index].rank or 0, index),
        default=None,
    )


def _in_order(ranks: Sequence[RankFingerprint]) -> list[int]:
    """All indexes, each once: the lead, one for each behaviour, then all by rank."""
    # A process without a rank comes after those that have one.
    by_rank = sorted(
        range(len(ranks)), key=lambda index: (ranks[index].rank is None, ranks[index].rank or 0)
    )
    first: dict[tuple[bytes, ...], int] = {}
    for index in by_rank:
        first.setdefault(ranks[index].behaviour, index)
    lead = lead_of(ranks)
    return list(dict.fromkeys((*([] if lead is None else [lead]), *first.values(), *by_rank)))
