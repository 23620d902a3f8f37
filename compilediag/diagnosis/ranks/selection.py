"""Which ranks of a run its receipt tells one by one, where it cannot tell all of them. Pure.

Counts of two receipts of one lane are compared, so as many ranks are told of each run as there is
room for: those that stand for others first, then the lowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compilediag.diagnosis.ranks.fingerprint import RankFingerprint

RANKS_TOLD = 256
"""Most ranks that are told one by one."""

EVENTS_TOLD = 200_000
"""Most events of them together."""

FEWEST_TOLD = 64
"""Ranks that are told however many events they have."""


@dataclass(frozen=True, slots=True)
class Told:
    """The choice."""

    places: frozenset[int]
    """Places in the briefs of those that are told."""
    otherwise: int
    """Ranks left out that do what no told rank does."""


def has_room(ranks: int, events: int) -> bool:
    """Whether all of so many ranks with so many events are told."""
    return ranks <= FEWEST_TOLD or (ranks <= RANKS_TOLD and events <= EVENTS_TOLD)


def told_of(briefs: Sequence[RankFingerprint]) -> Told | None:
    """Which of the briefs are told; None where all of them are."""
    if has_room(len(briefs), sum(item.events for item in briefs)):
        return None
    chosen: dict[int, None] = {}
    events = 0
    for place in _in_order(briefs):
        if len(chosen) >= RANKS_TOLD:
            break
        events += briefs[place].events
        if events > EVENTS_TOLD and len(chosen) >= FEWEST_TOLD:
            break
        chosen[place] = None
    if len(chosen) == len(briefs):
        return None
    shown = {briefs[place].behaviour for place in chosen}
    return Told(frozenset(chosen), sum(item.behaviour not in shown for item in briefs))


def lead_of(briefs: Sequence[RankFingerprint]) -> int | None:
    """The place of the rank whose steps are told, by the rule of `Timeline.lead`."""
    places = [place for place, item in enumerate(briefs) if item.standing]
    return min(
        places,
        key=lambda place: (-briefs[place].standing, _order(briefs[place]), place),
        default=None,
    )


def _order(brief: RankFingerprint) -> int:
    return brief.rank or 0


def _in_order(briefs: Sequence[RankFingerprint]) -> list[int]:
    """All places, each once: the lead, one for each behaviour, then all by rank."""
    lead = lead_of(briefs)
    # A process without a rank comes after those that have one.
    by_rank = sorted(
        range(len(briefs)), key=lambda place: (briefs[place].rank is None, _order(briefs[place]))
    )
    first: dict[tuple[bytes, ...], int] = {}
    for place in by_rank:
        first.setdefault(briefs[place].behaviour, place)
    leads = [] if lead is None else [lead]
    return list(dict.fromkeys((*leads, *first.values(), *by_rank)))
