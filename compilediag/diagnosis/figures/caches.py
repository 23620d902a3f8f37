"""Each compile cache: what it was asked and answered, the seconds that saved, and what
distinguishes two of its keys, which are the components whose digests differ, in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.receipt.schema.caches import (
    CacheLookupRecord,
    CachePlace,
    CacheRefusal,
    CacheSection,
    CacheUsed,
    PrecompiledRecord,
)
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.caches import Precompiled, ProcessCaches
from compilediag.timeline.timeline import CompileId, Timeline
from compilediag_harness.wire import (
    BYPASS,
    DISABLED,
    FAILED,
    HIT,
    MISS,
    CacheLookedUp,
    Location,
    digest_of,
)

VERSION = "torch_version"
EXCERPT_CHARS = 60
"""Of a value around the place where it differs."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One component that differs."""

    name: str
    """As torch names it: "gm", "example_inputs[0]", "inductor_config[max_autotune]"."""
    before: str | None
    """The value in short, around the difference where that is seen; None where there was none."""
    after: str | None


class _Kind(NamedTuple):
    pattern: str
    words: str
    """`{}` is what the pattern's group holds."""
    change: str
    """What makes it the same in both."""


_SAME_VALUE = (
    "make the value that becomes part of the graph the same in every process: a fixed seed or "
    "name, or pass it as a tensor"
)
_KINDS = (
    _Kind(VERSION, "the version of torch", "use one version of torch"),
    _Kind(r"gm", "the graph", _SAME_VALUE),
    _Kind(
        r"example_inputs\[(.+)\]",
        "input {} of the graph",
        "give the graph inputs of the same size, dtype, stride and device in every process",
    ),
    _Kind(
        r"inductor_config\w*\[(.+)\]",
        "the setting torch._inductor.config.{}",
        "set it to the same value in every process",
    ),
    _Kind(
        r"system_info\[.+\]",
        "the device, its driver or the system",
        "compile on machines with the same device, driver and system, or keep a cache for each",
    ),
    _Kind(
        r"fx_kwargs\[(boxed_forward_device_index)\]",
        "the index of the device",
        "make one device visible to each process (CUDA_VISIBLE_DEVICES), so that all use index 0",
    ),
    _Kind(r"fx_kwargs\[(.+)\]", "{}, as inductor was called", "call torch.compile the same way"),
    _Kind(
        r"(\w*(?:custom|passes)\w*)(?:\[.*\])?",
        "the custom pass {}",
        "give the pass a uuid() that depends on what it does alone",
    ),
    _Kind(
        r"cpp_runtime_thread_count",
        "the number of threads",
        "set the same OMP_NUM_THREADS or torch.set_num_threads in every process",
    ),
    _Kind(r"default_dtype", "the default dtype", "set the same default dtype in every process"),
)
_OTHER = _Kind(r"(.+)", "{}", "make it the same in every process")


def key_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[KeyChange, ...]:
    """The components of two keys that differ, by name in torch's order; empty where torch did not
    tell of what one of them is made. Under another version of torch hundreds of settings differ
    too, so that the version is then named alone."""
    if not before or not after:
        return ()
    differing = [
        name
        for name in dict.fromkeys((*before, *after))
        if name not in before
        or name not in after
        or digest_of(before[name]) != digest_of(after[name])
    ]
    if VERSION in differing:
        return (KeyChange(VERSION, None, None),)
    return tuple(
        KeyChange(name, *_excerpts(before.get(name), after.get(name))) for name in differing
    )


def in_words(changes: Sequence[KeyChange], most: int = 3) -> str:
    """What differs, as part of a sentence: "the graph, with the constants in it; input 0"."""
    names = [component_in_words(item.name) for item in changes[:most]]
    rest = len(changes) - len(names)
    return " and ".join(names) + (f", and {rest} more" if rest > 0 else "")


def what_to_change(changes: Sequence[KeyChange]) -> str:
    """What makes both keys the same, for the first component: torch lists the graph before what
    follows from it."""
    return _kind(changes[0].name)[0].change if changes else ""


def component_in_words(name: str) -> str:
    """What torch's name of a component means: "input 0 of the graph"."""
    kind, found = _kind(name)
    return kind.words.format(*found.groups()) if found is not None else name


def _kind(name: str) -> tuple[_Kind, re.Match[str] | None]:
    for kind in (*_KINDS, _OTHER):
        found = re.fullmatch(kind.pattern, name, re.DOTALL)
        if found is not None:
            return kind, found
    return _OTHER, None


def _excerpts(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    left, right = (None if text is None else text.partition(" ")[2] for text in (before, after))
    if left is None or right is None or left == right:
        return left, right
    same = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
    begin = max(0, (min(len(left), len(right)) if same is None else same) - EXCERPT_CHARS // 2)
    cut = "…" if begin else ""
    return tuple(f"{cut}{text[begin : begin + EXCERPT_CHARS]}" for text in (left, right))  # pyright: ignore[reportReturnType]


LOOKUPS_KEPT = 300
"""Most lookups listed; counts stay whole."""

COMPONENTS_KEPT = 3_000
"""Most components listed of all lookups together, beside those that a cache's lookups share."""

REFUSALS_KEPT, IDS_OF_ONE = 50, 20
"""Most reasons listed, and compiles named of each."""


def cache_section(timeline: Timeline) -> CacheSection | None:
    """None where no lookup was recorded."""
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
    """By cache, the components that have the same value in all its keys that torch described."""
    shared: dict[str, Components] = {}
    for part in parts:
        for lookup in part.lookups:
            found = part.components_of(lookup)
            if found:
                known = shared.setdefault(lookup.cache, found)
                if known is not found:
                    shared[lookup.cache] = {
                        name: value
                        for name, value in known.items()
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
    """Each reason once, the most frequent first."""
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


def _use(cache: str, lookups: list[CacheLookedUp], writes: list[bool] | None) -> CacheUsed:
    outcomes = Counter(item.outcome for item in lookups)
    saved = [item.saved_s for item in lookups if item.outcome == HIT and not item.within]
    known = [seconds for seconds in saved if seconds is not None]
    return CacheUsed(
        cache=cache,
        lookups=len(lookups),
        hits=outcomes[HIT],
        misses=outcomes[MISS],
        bypasses=outcomes[BYPASS],
        disabled=outcomes[DISABLED],
        failed=outcomes[FAILED],
        saved_s=sum(known) if known else None,
        written=None if writes is None else sum(writes),
        not_written=None if writes is None else len(writes) - sum(writes),
    )


KEPT = 200
"""Most functions listed."""


def precompiled_records(timeline: Timeline) -> tuple[PrecompiledRecord, ...]:
    """Each function once, in the order in which it was first loaded."""
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
