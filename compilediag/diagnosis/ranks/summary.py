"""Summaries of ranks in some tens of kilobytes, and fingerprints of them in some hundred bytes.

A fingerprint has digests, enough to compare the ranks that are not named. Both can be made anywhere
and compared where they meet.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from statistics import median

from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.timeline.frames import compute_counts, is_compile
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Timeline

MAX_IDS = 2000
"""Most compiles, causes, sites and graphs stored of a rank."""

MAX_OPERATIONS = 4096
"""Most collectives stored of a rank."""

WARMUP_STEPS = 2
"""First steps, which compile, are left out of the median where there are more."""


@dataclass(frozen=True, slots=True)
class RankCounts:
    """The numbers of one rank, or of the processes of one source that have none."""

    rank: int | None
    processes: int
    frames: int
    compiles: int
    recompiles: int
    graph_breaks: int
    eager_fallbacks: int
    compile_s: float
    cache_hits: int | None
    """None where torch did not count them."""
    cache_misses: int | None
    steps: int
    step_median_s: float | None


@dataclass(frozen=True, slots=True)
class RankSummary(RankCounts):
    """One rank. Tuples are sorted, or in the order in which things happened where that matters."""

    rank: int
    ids: tuple[str, ...]
    """"0/1 forward": compiles that ended with guarded code, with the epoch where it is not 0."""
    cached: tuple[str, ...]
    """"0/0 forward: 1 hit, 0 misses": the outcome of lookups in each."""
    causes: tuple[str, ...]
    """"CD101 capture at train.py:22, 3 times": primary causes of recompiles."""
    breaks: tuple[str, ...]
    """"train.py:30": places of graph breaks."""
    collectives: tuple[str, ...]
    """"0/0: all_reduce": every collective of every graph, in order."""


@dataclass(frozen=True, slots=True)
class _ProcessRecord:
    """The part of a Timeline that one process made."""

    compiles: list[Compile] = field(default_factory=list[Compile])
    walls: list[float] = field(default_factory=list[float])
    frames: list[Frame] = field(default_factory=list[Frame])
    breaks: list[BreakSite] = field(default_factory=list[BreakSite])
    collectives: list[str] = field(default_factory=list[str])


def summarize_ranks(timeline: Timeline, causes: RunCauses) -> tuple[RankSummary, ...]:
    """Summarize each rank, ascending; empty where the processes have no ranks."""
    records: dict[int, _ProcessRecord] = defaultdict(_ProcessRecord)
    for attempt in timeline.compiles:
        records[attempt.process].compiles.append(attempt)
    for step in timeline.steps:
        records[step.process].walls.append(step.wall_s)
    for frame in timeline.frames:
        records[frame.key.process].frames.append(frame)
    for site in timeline.breaks:
        for process in site.processes:
            records[process].breaks.append(site)
    for schedule in timeline.collectives:
        named = (f"{schedule.compile_id}: {name}" for name in schedule.operations)
        records[schedule.process].collectives.extend(named)
    by_rank: dict[int, list[_ProcessRecord]] = defaultdict(list)
    for process in timeline.processes:
        if process.rank is not None:
            by_rank[process.rank].append(records[process.index])
    return tuple(_summarize_rank(rank, by_rank[rank], causes) for rank in sorted(by_rank))


def _summarize_rank(rank: int, records: Sequence[_ProcessRecord], causes: RunCauses) -> RankSummary:
    compiles = [event for part in records for event in part.compiles]
    guarded = [event for event in compiles if is_compile(event)]
    sites = [site for part in records for site in part.breaks]
    counts = compute_counts([frame for part in records for frame in part.frames], compiles, sites)
    walls = max((part.walls for part in records), key=len)
    steady = walls[WARMUP_STEPS:] if len(walls) > 2 * WARMUP_STEPS else walls
    hits = [event.cache_hits for event in compiles if event.cache_hits is not None]
    misses = [event.cache_misses for event in compiles if event.cache_misses is not None]
    outcomes = (
        f"{_name_compile(event)}: {event.cache_hits or 0} hits, {event.cache_misses or 0} misses"
        for event in guarded
        if event.cache_hits or event.cache_misses  # backends without a cache count zeros
    )
    primary: Counter[str] = Counter()
    for event in guarded:
        for cause in causes.get_causes(event.recompile)[:1] if event.recompile is not None else ():
            at = cause.location
            line = "" if at is None else f" at {at.file}:{at.line}"
            primary[f"{cause.rule} {cause.variable or cause.guard[:80]}{line}"] += 1
    named = (f"{cause}, {'once' if n == 1 else f'{n} times'}" for cause, n in primary.items())
    breaks = sorted({f"{site.file}:{site.line}" for site in sites})
    collectives = [name for part in records for name in part.collectives]
    return RankSummary(
        rank=rank,
        processes=len(records),
        frames=counts.frames,
        compiles=counts.compiles,
        recompiles=counts.recompiles,
        graph_breaks=counts.graph_breaks,
        eager_fallbacks=counts.eager_fallbacks,
        compile_s=sum(event.seconds for event in compiles),
        cache_hits=sum(hits) if hits else None,
        cache_misses=sum(misses) if misses else None,
        steps=len(walls),
        step_median_s=median(steady) if steady else None,
        ids=tuple(sorted(map(_name_compile, guarded))[:MAX_IDS]),
        cached=tuple(sorted(outcomes)[:MAX_IDS]),
        causes=tuple(sorted(named)[:MAX_IDS]),
        breaks=tuple(breaks[:MAX_IDS]),
        collectives=tuple(collectives[:MAX_OPERATIONS]),
    )


def _name_compile(attempt: Compile) -> str:
    epoch = f" after reset {attempt.epoch}" if attempt.epoch else ""
    return f"{attempt.compile_id} {attempt.frame.function}{epoch}"


MAX_LOSSES = 3
"""Most texts of what was lost that are stored of a rank."""

LOSS_LENGTH = 300

ASPECTS = ("compile_ids", "recompile_causes", "graph_breaks", "collectives", "cache_hits")
"""In what ranks are compared, in the order of `list_values`."""


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
        """Equal for ranks that did the same. Cache hits are chance."""
        return (*self.digests[: ASPECTS.index("cache_hits")], self.findings)


def list_values(summary: RankSummary) -> tuple[tuple[str, ...], ...]:
    """List what the ranks are compared by, for each of `ASPECTS`."""
    return summary.ids, summary.causes, summary.breaks, summary.collectives, summary.cached


def compute_digest(values: Iterable[object]) -> bytes:
    """Compute sixteen bytes that stand for the values."""
    # Of the text: `hash()` of a text differs from process to process.
    text = repr(tuple(values)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()


def make_fingerprint(summary: RankSummary) -> RankFingerprint:
    """Make a fingerprint: the counts of a summary, and digests of the rest."""
    counts = {column.name: getattr(summary, column.name) for column in fields(RankCounts)}
    return RankFingerprint(**counts, digests=tuple(map(compute_digest, list_values(summary))))


def select_first_losses(lost: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Select the first sources and reasons, each once."""
    losses = dict.fromkeys((source, reason[:LOSS_LENGTH]) for source, reason in lost)
    return tuple(losses)[:MAX_LOSSES]
