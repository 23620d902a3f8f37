"""Collector of torch's compile caches: an event for every lookup, with the parts of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals import torch_caches
from compilediag_harness.torch_internals.torch_compiles import get_compile_id
from compilediag_harness.torch_internals.torch_names import Remover
from compilediag_harness.wire import (
    FX_GRAPH,
    HIT,
    MISS,
    CacheLookedUp,
    CacheWritten,
    Lookups,
    clean_text,
)

_PROBLEM_CHARS = 400


class CacheCollector:
    """Turns lookups into events; what it is called for never sees a fault of ours."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lookups = Lookups()
        self._loads_seen = False
        """Each lookup of a graph is seen where it happens: its instant would count it again."""
        self._folder_read = False

    def watch_graph_loads(self) -> Remover | None:
        remover = torch_caches.watch_graph_loads(self.record_lookup)
        self._loads_seen = remover is not None
        return remover

    def record_event(self, cache: str, outcome: str, info: Mapping[str, Any], within: str) -> None:
        """torch's compile log has a lookup."""
        if not (self._loads_seen and cache == FX_GRAPH and outcome in (HIT, MISS)):
            self.record_lookup(cache, outcome, info, within)

    def record_lookup(self, cache: str, outcome: str, info: Mapping[str, Any], within: str) -> None:
        session = self._session
        with session.charge_block("cache lookup"):
            # At a lookup torch has written its choice of folder into the environment.
            folder = None if self._folder_read else torch_caches.read_cache_folder(session.now())
            if folder is not None:
                self._folder_read = True
                session.emit(folder)
            known = (cache, outcome, get_compile_id(), session.epoch)
            lookup = CacheLookedUp(session.now(), session.step, *known, within=within)
            settings, lookup = self._lookups.describe(lookup, info)
            if settings is not None:
                session.emit(settings)
            session.emit(lookup)

    def record_write(self, cache: str, problem: str) -> None:
        """torch wrote an entry, or could not."""
        session = self._session
        with session.catch_faults("cache write"):
            problem = clean_text(problem, _PROBLEM_CHARS)
            session.emit_in_step(CacheWritten, cache, get_compile_id(), session.epoch, problem)
