"""What each compile cache was asked, what it answered, and the seconds that saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from compilediag.timeline.caches import ProcessCaches
from compilediag_harness.wire import BYPASS, DISABLED, FAILED, HIT, MISS, CacheLookedUp


@dataclass(frozen=True, slots=True)
class CacheUse:
    """One cache over all lookups of a run."""

    cache: str
    hits: int
    misses: int
    bypasses: int
    """torch decided that it may not cache what it compiled."""
    disabled: int
    failed: int
    saved_s: float | None
    """What compiling took when the entries were made, without what another cache's entry already
    holds; None where torch did not tell."""
    written: int | None
    """Entries that were written; None where that was not seen."""
    not_written: int | None
    """Entries that could not be written."""

    @property
    def lookups(self) -> int:
        """Of any outcome."""
        return self.hits + self.misses + self.bypasses + self.disabled + self.failed


def cache_use(caches: Iterable[ProcessCaches]) -> list[CacheUse]:
    """Each cache that was looked into, in the order of its first lookup."""
    parts = list(caches)
    lookups = [item for part in parts for item in part.lookups]
    seen = [item for part in parts for item in part.writes or ()]
    sees_writes = any(part.writes is not None for part in parts)
    names = dict.fromkeys([item.cache for item in lookups] + [item.cache for item in seen])
    return [
        _use(
            name,
            [item for item in lookups if item.cache == name],
            [not item.problem for item in seen if item.cache == name] if sees_writes else None,
        )
        for name in names
    ]


def _use(cache: str, lookups: list[CacheLookedUp], writes: list[bool] | None) -> CacheUse:
    outcomes = Counter(item.outcome for item in lookups)
    saved = [item.saved_s for item in lookups if item.outcome == HIT and not item.within]
    known = [seconds for seconds in saved if seconds is not None]
    return CacheUse(
        cache=cache,
        hits=outcomes[HIT],
        misses=outcomes[MISS],
        bypasses=outcomes[BYPASS],
        disabled=outcomes[DISABLED],
        failed=outcomes[FAILED],
        saved_s=sum(known) if known else None,
        written=None if writes is None else sum(writes),
        not_written=None if writes is None else len(writes) - sum(writes),
    )
