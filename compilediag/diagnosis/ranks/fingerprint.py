"""One rank in some hundred bytes, whatever it did: numbers, and digests of what it did.

What ranks did is compared by the digests; the summaries themselves are asked for only of ranks that
are named. Pure, and picklable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from compilediag.diagnosis.ranks.summary import RankSummary

LOSSES_KEPT = 3
"""Most texts of what was lost that are kept of a rank."""

LOSS_LENGTH = 300

ASPECTS = ("compile_ids", "recompile_causes", "graph_breaks", "cache_hits", "collectives")
"""In what ranks are compared, in the order of `values_of`."""


@dataclass(frozen=True, slots=True)
class RankFingerprint:
    """One rank, or the processes of one source that have none."""

    rank: int | None
    processes: int
    frames: int
    compiles: int
    recompiles: int
    graph_breaks: int
    eager_fallbacks: int
    compile_s: float
    cache_hits: int | None
    cache_misses: int | None
    steps: int
    step_median_s: float | None
    digests: tuple[bytes, ...] = ()
    """One for each of `ASPECTS`."""
    findings: bytes = b""
    """Digest of what the rules say of it alone, without counts and seconds."""
    standing: int = 0
    """3 where it made steps, 2 where it compiled, 1 where it imported torch; see `lead`."""
    events: int = 0
    world_size: int | None = None
    torn: bool = False
    lost: tuple[tuple[str, int], ...] = ()
    """Records lost, by reason."""
    losses: tuple[tuple[str, str], ...] = ()
    """Source and reason of evidence that was lost; at most `LOSSES_KEPT`."""

    @property
    def behaviour(self) -> tuple[bytes, ...]:
        """Equal for ranks that did the same; what caches answered is chance."""
        return (*self.digests[:3], *self.digests[4:], self.findings)


def values_of(summary: RankSummary) -> tuple[tuple[str, ...], ...]:
    """What the ranks are compared by, for each of `ASPECTS`."""
    return (summary.ids, summary.causes, summary.breaks, summary.cached, summary.collectives)


def digest(values: Iterable[object]) -> bytes:
    """Sixteen bytes that stand for the values."""
    told = repr(tuple(values)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(told, digest_size=16).digest()


def brief_of(summary: RankSummary) -> RankFingerprint:
    """The numbers of a summary, and digests of the rest."""
    return RankFingerprint(
        rank=summary.rank,
        processes=summary.processes,
        frames=summary.frames,
        compiles=summary.compiles,
        recompiles=summary.recompiles,
        graph_breaks=summary.graph_breaks,
        eager_fallbacks=summary.eager_fallbacks,
        compile_s=summary.compile_s,
        cache_hits=summary.cache_hits,
        cache_misses=summary.cache_misses,
        steps=summary.steps,
        step_median_s=summary.step_median_s,
        digests=tuple(digest(values) for values in values_of(summary)),
    )


def losses_in(lost: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The first of them, each once."""
    found = dict.fromkeys((source, reason[:LOSS_LENGTH]) for source, reason in lost)
    return tuple(found)[:LOSSES_KEPT]


def counted(lost: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Records lost, as a brief keeps them."""
    return tuple(sorted(lost.items()))
