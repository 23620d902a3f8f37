"""The compile caches of each process: lookups, of what keys are made, and what was loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compilediag.timeline.process import ProcessEvents
from compilediag_harness.wire import (
    CacheFolderRead,
    CacheLookedUp,
    CacheSettingsRead,
    CacheWritten,
    Component,
    Location,
    PrecompiledCalled,
    PrecompiledLoaded,
    TorchSeen,
)

CACHE_WRITES = "cache_writes"
"""The hook without which a record does not tell what was written."""


@dataclass(frozen=True, slots=True)
class ProcessCaches:
    """The compile caches of one process."""

    process: int
    lookups: tuple[CacheLookedUp, ...] = ()
    settings: Mapping[str, tuple[Component, ...]] | None = None
    """Settings of the compiler, by the digest that lookups name."""
    writes: tuple[CacheWritten, ...] | None = None
    """None where they were not seen: a trace does not tell them."""
    folder: CacheFolderRead | None = None

    def components_of(self, lookup: CacheLookedUp) -> dict[str, str]:
        """Everything that a key is made of, by name; empty where torch did not tell."""
        return {**dict(lookup.components), **dict((self.settings or {}).get(lookup.settings, ()))}


def caches_of(part: ProcessEvents) -> ProcessCaches | None:
    """The caches of a process; None where it looked nothing up."""
    lookups, writes = part.of(CacheLookedUp), part.of(CacheWritten)
    torch = part.last(TorchSeen)
    if not lookups and not writes:
        return None
    return ProcessCaches(
        process=part.index,
        lookups=tuple(lookups),
        settings={item.digest: item.components for item in part.of(CacheSettingsRead)},
        writes=tuple(writes) if torch is None or torch.hooks.get(CACHE_WRITES, True) else None,
        folder=part.last(CacheFolderRead),
    )


@dataclass(frozen=True, slots=True)
class Precompiled:
    """One function of one process that can run code which another process compiled."""

    process: int
    function: Location
    entries: int
    """Compiled variants that were loaded."""
    called: bool
    """One of them ran."""


def precompiled_of(part: ProcessEvents) -> list[Precompiled]:
    """The functions of a process, in the order in which they were loaded."""
    called = {item.function for item in part.of(PrecompiledCalled)}
    entries: dict[Location, int] = {}
    for item in part.of(PrecompiledLoaded):
        entries[item.function] = entries.get(item.function, 0) + item.entries
    return [
        Precompiled(part.index, function, count, function in called)
        for function, count in entries.items()
    ]
