"""Collector of torch's compile caches: an event for every lookup, with the parts of its key."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import CodeType
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame.source_locations import definition_of
from compilediag_harness.torch_internals import torch_caches
from compilediag_harness.torch_internals.torch_compiles import current_compile_id
from compilediag_harness.torch_internals.torch_names import Remover
from compilediag_harness.wire import (
    FX_GRAPH,
    HIT,
    MISS,
    CacheLookedUp,
    CacheWritten,
    Lookups,
    PrecompiledCalled,
    PrecompiledLoaded,
    plain_text,
)

MOST = 1000
"""Precompiled functions recorded of one process."""

_PROBLEM_CHARS = 400


class CacheCollector:
    """Turns lookups, and what is loaded in place of compiling, into events; what it is called for
    never sees a fault of ours."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lookups = Lookups()
        self._loads_seen = False
        """Each lookup of a graph is seen where it happens: its instant would count it again."""
        self._folder_read = False
        self._left = 2 * MOST

    def watch_graph_loads(self) -> Remover | None:
        loads = torch_caches.on_graph_loads(self.looked_up)
        self._loads_seen = loads is not None
        return loads

    def instant(self, cache: str, outcome: str, info: Mapping[str, Any], within: str) -> None:
        """torch's compile log has a lookup."""
        if not (self._loads_seen and cache == FX_GRAPH and outcome in (HIT, MISS)):
            self.looked_up(cache, outcome, info, within)

    def looked_up(self, cache: str, outcome: str, info: Mapping[str, Any], within: str) -> None:
        session, started = self._session, time.monotonic()
        with session.shielded("cache lookup"):
            folder = None if self._folder_read else torch_caches.cache_folder(session.now())
            if folder is not None:
                self._folder_read = True
                session.emit(folder)
            known = (cache, outcome, current_compile_id(), session.epoch)
            lookup = CacheLookedUp(session.now(), session.step, *known, within=within)
            settings, lookup = self._lookups.described(lookup, info)
            if settings is not None:
                session.emit(settings)
            session.emit(lookup)
        session.charge(time.monotonic() - started)

    def loaded(self, code: CodeType, entries: int) -> None:
        """torch put compiled code of a function in place."""
        self._left -= 1
        if self._left >= 0:
            self._session.record(PrecompiledLoaded, definition_of(code), entries)

    def called(self, code: CodeType) -> None:
        """Such code is called for the first time."""
        self._left -= 1
        if self._left >= 0:
            self._session.record(PrecompiledCalled, definition_of(code))

    def written(self, cache: str, problem: str) -> None:
        """torch wrote an entry, or could not."""
        session = self._session
        with session.shielded("cache write"):
            problem = plain_text(problem, _PROBLEM_CHARS)
            session.record(CacheWritten, cache, current_compile_id(), session.epoch, problem)
