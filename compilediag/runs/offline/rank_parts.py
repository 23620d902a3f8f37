"""Which sources hold which rank, from the briefs of the sources; its journals, out of what was read
of them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from compilediag.diagnosis.ranks.fingerprint import RankFingerprint
from compilediag.readers.journal import Journal
from compilediag.runs.offline.rank_choice import Choice
from compilediag.runs.offline.sources import rank_of

Journals = tuple[Journal, ...]


class Part(NamedTuple):
    """One rank, or one process without a rank, and where its journals are."""

    rank: int | None
    sources: tuple[int, ...]
    """Places of its sources among those that were read."""
    alone: int = 0
    """Of a process without a rank: which of those of its source it is."""


def parts_in(
    held: Sequence[Iterable[RankFingerprint]],
    together: Callable[[Sequence[Part]], Iterable[RankFingerprint]],
) -> tuple[list[Part], list[RankFingerprint]]:
    """In the order of `parts_of`: ranks, ascending, then processes that have none.

    `held` is what each source holds. A rank with several sources did what all of them tell:
    `together` gives the briefs of such parts, in their order.
    """
    of_rank: dict[int, list[int]] = {}
    briefs: dict[int, RankFingerprint] = {}
    alone: list[tuple[Part, RankFingerprint]] = []
    for place, in_source in enumerate(held):
        number = 0
        for brief in in_source:
            if brief.rank is None:
                alone.append((Part(None, (place,), number), brief))
                number += 1
            else:
                of_rank.setdefault(brief.rank, []).append(place)
                briefs[brief.rank] = brief
    parts = [Part(rank, tuple(of_rank[rank])) for rank in sorted(of_rank)]
    several = [part for part in parts if len(part.sources) > 1]
    briefs.update((brief.rank or 0, brief) for brief in together(several))
    return (
        [*parts, *(part for part, _ in alone)],
        [*(briefs[rank] for rank in sorted(of_rank)), *(brief for _, brief in alone)],
    )


def told_in(parts: Sequence[Part], chosen: Choice) -> list[Part]:
    """The parts that the receipt of all tells."""
    if chosen.told is None:
        return list(parts)
    return [part for place, part in enumerate(parts) if place in chosen.told.indexes]


def journals_of(part: Part, found: Iterable[Journals]) -> Journals:
    """The journals of a part, out of what was read of its sources."""
    journals = tuple(item for read in found for item in read if rank_of(item) == part.rank)
    return journals if part.rank is not None else journals[part.alone : part.alone + 1]
