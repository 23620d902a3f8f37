"""Stretches of time that overlap, painted into stretches that do not. In whole nanoseconds."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """Time that belongs to a category; a deeper stretch lies inside of a shallower one."""

    start: int
    end: int
    depth: int
    category: str


def paint(stretches: Iterable[Interval], wall: int) -> list[Interval]:
    """Disjoint stretches in time order; where several overlap the deepest, then latest, wins."""
    waiting = sorted(stretches, key=lambda item: item.start)
    edges = sorted({min(edge, wall) for item in waiting for edge in (item.start, item.end)})
    painted: list[Interval] = []
    active: list[tuple[int, int, int, Interval]] = []
    place = 0
    for start, end in itertools.pairwise(edges):
        while place < len(waiting) and waiting[place].start <= start:
            item = waiting[place]
            heapq.heappush(active, (-item.depth, -item.start, place, item))
            place += 1
        while active and active[0][3].end <= start:
            heapq.heappop(active)
        if active:
            top = active[0][3]
            painted.append(Interval(start, end, top.depth, top.category))
    return painted
