"""What torch's compile caches answered: an event for every lookup, with the parts of its key."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from types import CodeType
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals import torch_caches, torch_precompiled
from compilediag_harness.torch_internals.torch_compiles import current_compile_id
from compilediag_harness.torch_internals.torch_names import Removers
from compilediag_harness.wire import (
    FX_GRAPH,
    HIT,
    MISS,
    CacheFolderRead,
    CacheLookedUp,
    CacheSettingsRead,
    CacheWritten,
    Location,
    PrecompiledCalled,
    PrecompiledLoaded,
    lookup_of,
    plain_text,
)

COMPONENTS_OF = 200
"""Lookups of a process whose keys are recorded by component, the first ones; of the others only
the key."""

_PROBLEM_CHARS = 400


class CacheCollector:
    """Turns lookups into events; what it is called for never sees a fault of ours."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._with_components = 0
        self._settings: set[str] = set()
        self._loads_seen = False
        """Each lookup of a graph is seen where it happens: its instant would count it again."""
        self._folder_read = False

    # --- installed when what they look at is imported -----------------------------------------

    def events_imported(self) -> Removers:
        """torch's compile log."""
        return (torch_caches.on_events(self._instant),)

    def graphs_imported(self) -> Removers:
        """Inductor's cache of graphs, and of timings."""
        loads = torch_caches.on_graph_loads(self.looked_up)
        self._loads_seen = loads is not None
        choices = torch_caches.on_choices(self.looked_up)
        return (loads, choices, *torch_caches.on_graph_writes(self.written))

    def aot_imported(self) -> Removers:
        """AOTAutograd's cache."""
        return torch_caches.on_aot_writes(self.written)

    def counts_imported(self) -> Removers:
        """torch's counts of other caches."""
        return torch_caches.on_counted(self.looked_up)

    def profile_imported(self) -> Removers:
        """Profiles of sizes."""
        return (torch_caches.on_profile(self.looked_up),)

    def artifacts_imported(self) -> Removers:
        """Caches of another run."""
        return (torch_caches.on_artifacts(self.looked_up),)

    # --- called by the hooks -------------------------------------------------------------------

    def _instant(self, cache: str, outcome: str, info: Mapping[str, Any], within: str) -> None:
        if not (self._loads_seen and cache == FX_GRAPH and outcome in (HIT, MISS)):
            self.looked_up(cache, outcome, info, within)

    def looked_up(self, cache: str, outcome: str, info: Mapping[str, Any], within: str) -> None:
        """torch looked something up."""
        session, started = self._session, time.monotonic()
        try:
            self._read_folder()
            session.emit(self._lookup(cache, outcome, info, within))
        except Exception as error:
            session.fault("cache lookup", error)
        session.charge(time.monotonic() - started)

    def written(self, cache: str, problem: str) -> None:
        """torch wrote an entry, or could not."""
        session = self._session
        try:
            problem = plain_text(problem, _PROBLEM_CHARS)
            at = (session.now(), session.step, cache, current_compile_id(), session.epoch)
            session.emit(CacheWritten(*at, problem))
        except Exception as error:
            session.fault("cache write", error)

    def _lookup(
        self, cache: str, outcome: str, info: Mapping[str, Any], within: str
    ) -> CacheLookedUp:
        session, read = self._session, lookup_of(info)
        settings = read.digest
        if settings and settings not in self._settings:
            self._settings.add(settings)
            session.emit(CacheSettingsRead(session.now(), settings, read.settings))
        found = CacheLookedUp(
            t=session.now(),
            step=session.step,
            cache=cache,
            outcome=outcome,
            compile_id=current_compile_id(),
            epoch=session.epoch,
            key=read.key,
            status=read.status,
            reason=read.reason,
            saved_s=read.saved_s,
            within=within,
            settings=settings,
        )
        if not read.components:
            return found
        self._with_components += 1
        if self._with_components > COMPONENTS_OF:
            left_out = len(read.components) + read.components_left_out
            return replace(found, components_left_out=left_out)
        left_out = read.components_left_out
        return replace(found, components=read.components, components_left_out=left_out)

    def _read_folder(self) -> None:
        if self._folder_read:
            return
        folder = torch_caches.cache_folder()
        if folder is not None:
            self._folder_read = True
            self._session.emit(CacheFolderRead(self._session.now(), *folder))


MOST = 1000
"""Functions recorded of one process."""


class PrecompiledCollector:
    """Watches what torch loads in place of compiling."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left = 2 * MOST

    def packages_imported(self) -> Removers:
        """Watches packages of precompiled functions."""
        return (torch_precompiled.on_packages(self._loaded, self._called),)

    def aot_imported(self) -> Removers:
        """Watches functions that were compiled ahead of time."""
        return (torch_precompiled.on_loaded_functions(self._loaded, self._called),)

    def _loaded(self, code: CodeType, entries: int) -> None:
        session = self._session
        self._emit(PrecompiledLoaded(session.now(), session.step, _place(code), entries))

    def _called(self, code: CodeType) -> None:
        session = self._session
        self._emit(PrecompiledCalled(session.now(), session.step, _place(code)))

    def _emit(self, event: PrecompiledLoaded | PrecompiledCalled) -> None:
        try:
            if self._left > 0:
                self._left -= 1
                self._session.emit(event)
        except Exception as error:
            self._session.fault("precompiled", error)


def _place(code: CodeType) -> Location:
    return Location(
        code.co_filename, code.co_firstlineno, getattr(code, "co_qualname", code.co_name)
    )
