"""CD612 between two runs: lookups of compile caches that missed, whose keys are not those before.

Lookups are paired by function, compile, cache and order. Where torch does not record of what a key
is made, nothing is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from compilediag.compare.keys import function_key, portable_file
from compilediag.diagnosis.figures.key_difference import KeyChange, key_changes
from compilediag.receipt.schema.caches import CacheLookupRecord
from compilediag.receipt.schema.receipt import Receipt


class CacheKeyChange(Struct, frozen=True):
    """Components in which keys differ, and the compiles that missed with them."""

    changes: tuple[KeyChange, ...]
    cache: str
    compile_ids: tuple[str, ...]
    functions: tuple[str, ...]


def changed_cache_keys(before: Receipt, after: Receipt) -> tuple[CacheKeyChange, ...]:
    """Misses of `after` by what their keys differ in, the most frequent first."""
    left, right = _paired(before), _paired(after)
    found: dict[tuple[str, tuple[str, ...]], list[tuple[CacheLookupRecord, tuple[KeyChange, ...]]]]
    found = {}
    for key, (lookup, components) in right.items():
        if lookup.outcome != "miss" or key not in left or left[key][0].key == lookup.key:
            continue
        changes = key_changes(left[key][1], components)
        if changes:
            names = tuple(item.name for item in changes)
            found.setdefault((lookup.cache, names), []).append((lookup, changes))
    groups = sorted(found.items(), key=lambda item: -len(item[1]))
    return tuple(
        CacheKeyChange(
            items[0][1],
            cache,
            tuple(lookup.compile_id for lookup, _ in items),
            tuple(
                dict.fromkeys(
                    lookup.frame.function for lookup, _ in items if lookup.frame is not None
                )
            ),
        )
        for (cache, _), items in groups
    )


_Components = Mapping[str, str]


def _paired(receipt: Receipt) -> dict[object, tuple[CacheLookupRecord, _Components]]:
    """Lookups with all components of their keys, by what they belong to in any run."""
    section = receipt.caches
    if section is None:
        return {}
    shared = {use.cache: use.components for use in section.caches}
    found: dict[object, tuple[CacheLookupRecord, _Components]] = {}
    met: Counter[object] = Counter()
    for lookup in _whole(section.lookups):
        frame = lookup.frame
        place = None if frame is None else (portable_file(frame.file), function_key(frame.function))
        at = (lookup.cache, lookup.process, lookup.epoch, lookup.compile_id, place)
        met[at] += 1
        found[(at, met[at])] = (lookup, {**shared.get(lookup.cache, {}), **lookup.components})
    return found


def _whole(lookups: Iterable[CacheLookupRecord]) -> Iterable[CacheLookupRecord]:
    """Without those of whose key only a part is listed: what is missing is no difference."""
    return (each for each in lookups if not each.components_left_out)
