"""One rank in some hundred bytes, whatever it did: numbers, and digests of what it did.

What ranks did is compared by the digests; a summary itself is needed only of ranks that are named.
Pure, and picklable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields

from compilediag.diagnosis.ranks.summary import RankCounts, RankSummary

MAX_LOSSES = 3
"""Most texts of what was lost that are kept of a rank."""

LOSS_LENGTH = 300

ASPECTS = (
    "compile_ids",
    "recompile_causes",
    "graph_breaks",
    "collectives",
    "cache_hits",
    "cache_keys",
)
"""In what ranks are compared, in the order of `values_of`."""


@dataclass(frozen=True, slots=True)
class RankFingerprint(RankCounts):
    """One rank, or the processes of one source that have none."""

    digests: tuple[bytes, ...] = ()
    """One for each of `ASPECTS`."""
    findings: bytes = b""
    """Digest of its own findings, without counts and seconds."""
    standing: int = 0
    """3 where it made steps, 2 where it compiled, 1 where it imported torch; see `lead`."""
    events: int = 0
    world_size: int | None = None
    torn: bool = False
    lost: tuple[tuple[str, int], ...] = ()
    """Records lost, by reason."""
    losses: tuple[tuple[str, str], ...] = ()
    """Source and reason of evidence that was lost; at most `MAX_LOSSES`."""

    @property
    def behaviour(self) -> tuple[bytes, ...]:
        """Equal for ranks that did the same. What caches answered is chance, and their keys are no
        behaviour."""
        return (*self.digests[: ASPECTS.index("cache_hits")], self.findings)


def values_of(summary: RankSummary) -> tuple[tuple[str, ...], ...]:
    """What the ranks are compared by, for each of `ASPECTS`."""
    return (
        summary.ids,
        summary.causes,
        summary.breaks,
        summary.collectives,
        summary.cached,
        summary.key_parts,
    )


def digest(values: Iterable[object]) -> bytes:
    """Sixteen bytes that stand for the values."""
    text = repr(tuple(values)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()


def fingerprint_of(summary: RankSummary) -> RankFingerprint:
    """The counts of a summary, and digests of the rest."""
    counts = {item.name: getattr(summary, item.name) for item in fields(RankCounts)}
    return RankFingerprint(**counts, digests=tuple(map(digest, values_of(summary))))


def first_losses(lost: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The first sources and reasons, each once."""
    found = dict.fromkeys((source, reason[:LOSS_LENGTH]) for source, reason in lost)
    return tuple(found)[:MAX_LOSSES]
