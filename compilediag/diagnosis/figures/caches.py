"""Lookups of torch's compile caches: hits, misses, refusals, and the seconds that hits saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from compilediag.diagnosis.figures.key_difference import digest_of
from compilediag.receipt.schema.caches import (
    CacheLookupRecord,
    CachePlace,
    CacheRefusal,
    CacheSection,
    CacheUsed,
    PrecompiledRecord,
)
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.compiles import Precompiled, ProcessCaches
from compilediag.timeline.timeline import CompileId, Timeline
from compilediag_harness.wire import BYPASS, DISABLED, FAILED, HIT, MISS, Location

LOOKUPS_KEPT = 300
"""Most lookups listed; counts stay whole."""

COMPONENTS_KEPT = 3_000
"""Most components listed of all lookups together, beside those that a cache's lookups share."""

REFUSALS_KEPT, IDS_OF_ONE = 50, 20
"""Most reasons listed, and compiles named of each."""


def cache_section(timeline: Timeline) -> CacheSection | None:
    """Build the section of compile caches; None where no lookup was recorded."""
    parts = timeline.caches
    if not parts:
        return None
    shared = _shared(parts)
    count = sum(len(part.lookups) for part in parts)
    folder = next((part.folder for part in parts if part.folder is not None), None)
    return CacheSection(
        caches=tuple(
            replace(use, components=shared.get(use.cache, {})) for use in cache_use(parts)
        ),
        refusals=tuple(_refusals(parts)),
        lookups=tuple(_lookups(timeline, shared)),
        lookups_left_out=max(0, count - LOOKUPS_KEPT),
        folder=None if folder is None else record_from(CachePlace, folder),
    )


Components = dict[str, str]


def _shared(parts: Iterable[ProcessCaches]) -> dict[str, Components]:
    """Find by cache the components with the same value in all its keys that torch described."""
    shared: dict[str, Components] = {}
    for part in parts:
        for lookup in part.lookups:
            if found := part.components_of(lookup):
                shared[lookup.cache] = {
                    name: value
                    for name, value in shared.get(lookup.cache, found).items()
                    if name in found and digest_of(found[name]) == digest_of(value)
                }
    return shared


def _lookups(timeline: Timeline, shared: dict[str, Components]) -> Iterator[CacheLookupRecord]:
    frames = {item.id: item.frame for item in timeline.compiles if item.forward}
    every = [(part, lookup) for part in timeline.caches for lookup in part.lookups]
    room = COMPONENTS_KEPT
    for part, lookup in every[:LOOKUPS_KEPT]:
        common = shared.get(lookup.cache, {})
        own = {n: v for n, v in part.components_of(lookup).items() if n not in common}
        kept = dict(list(own.items())[:room])
        room -= len(kept)
        compiled = CompileId(part.process, lookup.epoch, lookup.compile_id)
        yield record_from(
            CacheLookupRecord,
            lookup,
            process=part.process,
            frame=at if (at := frames.get(compiled)) is not None and at.file else None,
            components=kept,
            components_left_out=lookup.components_left_out + len(own) - len(kept),
        )


def _refusals(parts: Iterable[ProcessCaches]) -> list[CacheRefusal]:
    """Count refusals by reason, the most frequent first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for part in parts:
        for lookup in part.lookups:
            if lookup.reason:
                key = (lookup.cache, lookup.outcome, lookup.reason)
                found.setdefault(key, []).append(lookup.compile_id)
        for write in part.writes or ():
            if write.problem:
                key = (write.cache, "not_written", write.problem)
                found.setdefault(key, []).append(write.compile_id)
    most_first = sorted(found.items(), key=lambda item: -len(item[1]))
    return [
        CacheRefusal(
            cache=cache,
            outcome=outcome,
            reason=reason,
            count=len(ids),
            compile_ids=tuple(dict.fromkeys(ids))[:IDS_OF_ONE],
        )
        for (cache, outcome, reason), ids in most_first[:REFUSALS_KEPT]
    ]


def cache_use(caches: Iterable[ProcessCaches]) -> list[CacheUsed]:
    """Summarize each cache that was looked into, in the order of its first lookup."""
    parts = list(caches)
    lookups = [item for part in parts for item in part.lookups]
    seen = [item for part in parts for item in part.writes or ()]
    sees_writes = any(part.writes is not None for part in parts)
    names = dict.fromkeys([item.cache for item in lookups] + [item.cache for item in seen])
    found: list[CacheUsed] = []
    for name in names:
        own = [item for item in lookups if item.cache == name]
        outcomes = Counter(item.outcome for item in own)
        saved = [item.saved_s for item in own if item.outcome == HIT and not item.within]
        known = [seconds for seconds in saved if seconds is not None]
        failed = [bool(item.problem) for item in seen if item.cache == name]
        found.append(
            CacheUsed(
                cache=name,
                lookups=len(own),
                hits=outcomes[HIT],
                misses=outcomes[MISS],
                bypasses=outcomes[BYPASS],
                disabled=outcomes[DISABLED],
                failed=outcomes[FAILED],
                saved_s=sum(known) if known else None,
                written=failed.count(False) if sees_writes else None,
                not_written=failed.count(True) if sees_writes else None,
            )
        )
    return found


KEPT = 200
"""Most functions listed."""


def precompiled_records(timeline: Timeline) -> tuple[PrecompiledRecord, ...]:
    """List each function that was loaded compiled once, in the order in which it was first
    loaded."""
    found: dict[Location, list[Precompiled]] = {}
    for item in timeline.precompiled:
        found.setdefault(item.function, []).append(item)
    return tuple(
        PrecompiledRecord(
            function=f"{at.function} at {at.file}:{at.line}",
            entries=sum(item.entries for item in items),
            called=any(item.called for item in items),
        )
        for at, items in list(found.items())[:KEPT]
    )
