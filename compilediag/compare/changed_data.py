"""Other differences of two runs: the data and settings that a fix changed, and keys of caches.

Padding, dropping the last batch, other sizes or `dynamic=` change the work of a run on purpose.
Counts and causes of such runs can be compared; what is measured of other work cannot. Lookups of
caches are paired by function, compile, cache and order; where torch does not record of what a key
is made, nothing is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from compilediag.diagnosis.figures.key_difference import KeyChange, find_key_changes
from compilediag.receipt.finding_keys import normalize_file, normalize_function
from compilediag.receipt.schema.caches import CacheLookupRecord
from compilediag.receipt.schema.receipt import Receipt

OPTION = "--changed-data"
_WORK = ("samples", "elements")
_SAME_SPEED = frozenset({"lane.name", "lane.numerics_flags.dynamic"})
"""Fields of the configuration that leave the same work: times are comparable as after any edit."""


class FieldChange(Struct, frozen=True):
    """A field whose values differ, by path."""

    path: str
    before: Any
    after: Any


class ChangedData(Struct, frozen=True):
    """Differences between two runs that are accepted as the work of a fix."""

    #: Those of the configuration, of the work (`throughput`), and `steps.count`.
    fields: tuple[FieldChange, ...]
    callable: str | None  #: What was given the compared work; None: not known to be the same.
    #: Same samples, elements and settings: then times and memory can be compared too.
    same_work: bool


def build_changed_data(
    before: Receipt, after: Receipt, config: Iterable[FieldChange]
) -> ChangedData:
    """Put together what differs; `config` are the fields of the configuration that do."""
    settings, work = tuple(config), find_work_changes(before, after)
    left, right = before.throughput, after.throughput
    same = left is not None and right is not None and left.callable == right.callable
    both = same and all(getattr(side, name) is not None for side in (left, right) for name in _WORK)
    counts = (run.steps.count if run.steps is not None else None for run in (before, after))
    steps = FieldChange("steps.count", *counts)
    other_steps = None not in (steps.before, steps.after) and steps.before != steps.after
    return ChangedData(
        fields=(*settings, *work, *((steps,) if other_steps else ())),
        callable=left.callable if both and left is not None else None,
        same_work=both
        and not work
        and not other_steps
        and _SAME_SPEED.issuperset(field.path for field in settings),
    )


def find_work_changes(before: Receipt, after: Receipt) -> tuple[FieldChange, ...]:
    """Find samples and elements given to the same callable, where both are known and differ."""
    left, right = before.throughput, after.throughput
    if left is None or right is None or left.callable != right.callable:
        return ()
    pairs = ((name, getattr(left, name), getattr(right, name)) for name in _WORK)
    return tuple(
        FieldChange(f"throughput.{name}", old, new)
        for name, old, new in pairs
        if old is not None and new is not None and old != new
    )


class CacheKeyChange(Struct, frozen=True):
    """Components in which keys differ, and the compiles that missed with them."""

    changes: tuple[KeyChange, ...]
    cache: str
    compile_ids: tuple[str, ...]
    functions: tuple[str, ...]


def find_changed_cache_keys(before: Receipt, after: Receipt) -> tuple[CacheKeyChange, ...]:
    """Find misses of `after` by what their keys differ in, the most frequent first."""
    left, right = _map_lookups(before), _map_lookups(after)
    by_names: dict[
        tuple[str, tuple[str, ...]], list[tuple[CacheLookupRecord, tuple[KeyChange, ...]]]
    ]
    by_names = {}
    for key, (lookup, components) in right.items():
        if lookup.outcome != "miss" or key not in left or left[key][0].key == lookup.key:
            continue
        if changes := find_key_changes(left[key][1], components):
            names = tuple(change.name for change in changes)
            by_names.setdefault((lookup.cache, names), []).append((lookup, changes))
    groups = sorted(by_names.items(), key=lambda group: -len(group[1]))
    return tuple(
        CacheKeyChange(
            misses[0][1],
            cache,
            tuple(lookup.compile_id for lookup, _ in misses),
            tuple(
                dict.fromkeys(
                    lookup.frame.function for lookup, _ in misses if lookup.frame is not None
                )
            ),
        )
        for (cache, _), misses in groups
    )


def _map_lookups(receipt: Receipt) -> dict[object, tuple[CacheLookupRecord, Mapping[str, str]]]:
    """Map lookups, with all components of their keys, by what they belong to in any run."""
    section = receipt.caches
    if section is None:
        return {}
    shared = {use.cache: use.components for use in section.caches}
    lookups: dict[object, tuple[CacheLookupRecord, Mapping[str, str]]] = {}
    met: Counter[object] = Counter()
    for lookup in section.lookups:
        if lookup.components_left_out:
            continue  # what is missing of a part is no difference
        frame = lookup.frame
        place = None
        if frame is not None:
            place = (normalize_file(frame.file), normalize_function(frame.function))
        at = (lookup.cache, lookup.process, lookup.epoch, lookup.compile_id, place)
        met[at] += 1
        lookups[(at, met[at])] = (lookup, {**shared.get(lookup.cache, {}), **lookup.components})
    return lookups
