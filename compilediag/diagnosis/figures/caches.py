"""Lookups of torch's compile caches: hits, misses, refusals, and the seconds that hits saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from compilediag.diagnosis.figures.key_difference import get_digest
from compilediag.diagnosis.figures.steps import sum_measured
from compilediag.receipt.schema.caches import (
    CacheLookupRecord,
    CachePlace,
    CacheRefusal,
    CacheSection,
    CacheUsed,
)
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.compiles import ProcessCaches, get_compile_id
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import AOT_AUTOGRAD, BYPASS, DISABLED, FAILED, FX_GRAPH, HIT, MISS

OF_GRAPHS = (FX_GRAPH, AOT_AUTOGRAD)
"""The caches whose hit spares a compile. The first of them has components of its keys."""

MAX_LOOKUPS = 300
"""Most lookups listed; counts stay whole."""

MAX_COMPONENTS = 3_000
"""Most components listed of all lookups together, beside those that a cache's lookups share."""

MAX_REFUSALS, MAX_REFUSAL_IDS = 50, 20
"""Most reasons listed, and compiles named of each."""


def build_cache_section(timeline: Timeline) -> CacheSection | None:
    """Build the section of compile caches; None where no lookup was recorded."""
    parts = timeline.caches
    if not parts:
        return None
    shared = _find_shared(parts)
    count = sum(len(part.lookups) for part in parts)
    folder = next((part.folder for part in parts if part.folder is not None), None)
    return CacheSection(
        caches=tuple(
            replace(use, components=shared.get(use.cache, {})) for use in summarize_caches(parts)
        ),
        refusals=tuple(_count_refusals(parts)),
        lookups=tuple(_list_lookups(timeline, shared)),
        lookups_left_out=max(0, count - MAX_LOOKUPS),
        folder=None if folder is None else make_record(CachePlace, folder),
    )


Components = dict[str, str]


def _find_shared(parts: Iterable[ProcessCaches]) -> dict[str, Components]:
    """Find by cache the components with the same value in all its keys that torch described."""
    shared: dict[str, Components] = {}
    for part in parts:
        for lookup in part.lookups:
            if components := part.get_components(lookup):
                shared[lookup.cache] = {
                    name: value
                    for name, value in shared.get(lookup.cache, components).items()
                    if name in components and get_digest(components[name]) == get_digest(value)
                }
    return shared


def _list_lookups(timeline: Timeline, shared: dict[str, Components]) -> Iterator[CacheLookupRecord]:
    frames = {attempt.id: attempt.frame for attempt in timeline.compiles if attempt.forward}
    every = [(part, lookup) for part in timeline.caches for lookup in part.lookups]
    room = MAX_COMPONENTS
    for part, lookup in every[:MAX_LOOKUPS]:
        common = shared.get(lookup.cache, {})
        own = {n: v for n, v in part.get_components(lookup).items() if n not in common}
        listed = dict(list(own.items())[:room])
        room -= len(listed)
        yield make_record(
            CacheLookupRecord,
            lookup,
            frame=at
            if (at := frames.get(get_compile_id(lookup))) is not None and at.file
            else None,
            components=listed,
            components_left_out=lookup.components_left_out + len(own) - len(listed),
        )


def _count_refusals(parts: Iterable[ProcessCaches]) -> list[CacheRefusal]:
    """Count refusals by reason, the most frequent first."""
    ids_by_reason: dict[tuple[str, str, str], list[str]] = {}
    for part in parts:
        for lookup in part.lookups:
            if lookup.reason:
                key = (lookup.cache, lookup.outcome, lookup.reason)
                ids_by_reason.setdefault(key, []).append(lookup.compile_id)
        for write in part.writes or ():
            if write.problem:
                key = (write.cache, "not_written", write.problem)
                ids_by_reason.setdefault(key, []).append(write.compile_id)
    most_first = sorted(ids_by_reason.items(), key=lambda pair: -len(pair[1]))
    return [
        CacheRefusal(
            cache=cache,
            outcome=outcome,
            reason=reason,
            count=len(ids),
            compile_ids=tuple(dict.fromkeys(ids))[:MAX_REFUSAL_IDS],
        )
        for (cache, outcome, reason), ids in most_first[:MAX_REFUSALS]
    ]


def summarize_caches(caches: Iterable[ProcessCaches]) -> list[CacheUsed]:
    """Summarize each cache that was looked into, in the order of its first lookup."""
    parts = list(caches)
    lookups = [lookup for part in parts for lookup in part.lookups]
    seen = [write for part in parts for write in part.writes or ()]
    sees_writes = any(part.writes is not None for part in parts)
    names = dict.fromkeys([access.cache for access in lookups] + [access.cache for access in seen])
    used: list[CacheUsed] = []
    for name in names:
        own = [lookup for lookup in lookups if lookup.cache == name]
        outcomes = Counter(lookup.outcome for lookup in own)
        saved = (lookup.saved_s for lookup in own if lookup.outcome == HIT and not lookup.within)
        failed = [bool(write.problem) for write in seen if write.cache == name]
        used.append(
            CacheUsed(
                cache=name,
                lookups=len(own),
                hits=outcomes[HIT],
                misses=outcomes[MISS],
                bypasses=outcomes[BYPASS],
                disabled=outcomes[DISABLED],
                failed=outcomes[FAILED],
                saved_s=sum_measured(saved),
                written=failed.count(False) if sees_writes else None,
                not_written=failed.count(True) if sees_writes else None,
            )
        )
    return used


def list_earlier_hits(section: CacheSection | None) -> list[CacheLookupRecord] | None:
    """List the lookups of graphs that were in a cache before the run; None where that is not
    known: not all are listed, or a graph's kernels may have been there without it."""
    used = [use for use in section.caches if use.cache in OF_GRAPHS] if section is not None else []
    uncached = [use for use in used if use.cache == FX_GRAPH]
    if section is None or not any(use.lookups for use in used):
        return []
    is_cut = section.lookups_left_out and any(use.hits for use in used)
    if is_cut or any(x.bypasses or x.disabled or x.failed for x in uncached):
        return None
    own = {lookup.key for lookup in section.lookups if lookup.outcome == MISS}
    hits = [x for x in section.lookups if x.cache in OF_GRAPHS and x.outcome == HIT]
    return [x for x in hits if x.key not in own] if all(x.key for x in hits) else None
