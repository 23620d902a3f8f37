"""What torch's compile caches answered: an event for every lookup, with the parts of its key."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import CodeType
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals import torch_caches
from compilediag_harness.torch_internals.torch_compiles import current_compile_id
from compilediag_harness.torch_internals.torch_names import Remover
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

    def watch_graph_loads(self) -> Remover | None:
        """Watches the loads of compiled graphs."""
        loads = torch_caches.on_graph_loads(self.looked_up)
        self._loads_seen = loads is not None
        return loads

    def instant(self, cache: str, outcome: str, info: Mapping[str, Any], within: str) -> None:
        """torch's compile log has a lookup."""
        if not (self._loads_seen and cache == FX_GRAPH and outcome in (HIT, MISS)):
            self.looked_up(cache, outcome, info, within)

    def looked_up(self, cache: str, outcome: str, info: Mapping[str, Any], within: str) -> None:
        """torch looked something up."""
        session, started = self._session, time.monotonic()
        with session.shielded("cache lookup"):
            folder = None if self._folder_read else torch_caches.cache_folder()
            if folder is not None:
                self._folder_read = True
                session.emit(CacheFolderRead(session.now(), *folder))
            read = lookup_of(info)
            settings = read.digest
            if settings and settings not in self._settings:
                self._settings.add(settings)
                session.emit(CacheSettingsRead(session.now(), settings, read.settings))
            components, left_out = read.components, read.components_left_out
            self._with_components += bool(components)
            if self._with_components > COMPONENTS_OF:
                components, left_out = (), left_out + len(components)
            session.emit(
                CacheLookedUp(
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
                    components=components,
                    components_left_out=left_out,
                    settings=settings,
                )
            )
        session.charge(time.monotonic() - started)

    def written(self, cache: str, problem: str) -> None:
        """torch wrote an entry, or could not."""
        session = self._session
        with session.shielded("cache write"):
            problem = plain_text(problem, _PROBLEM_CHARS)
            at = (session.now(), session.step, cache, current_compile_id(), session.epoch)
            session.emit(CacheWritten(*at, problem))


MOST = 1000
"""Functions recorded of one process."""


class PrecompiledCollector:
    """What torch loads in place of compiling."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left = 2 * MOST

    def loaded(self, code: CodeType, entries: int) -> None:
        """torch loaded compiled code of a function."""
        session = self._session
        self._emit(PrecompiledLoaded(session.now(), session.step, _place(code), entries))

    def called(self, code: CodeType) -> None:
        """It is called for the first time."""
        session = self._session
        self._emit(PrecompiledCalled(session.now(), session.step, _place(code)))

    def _emit(self, event: PrecompiledLoaded | PrecompiledCalled) -> None:
        if self._left > 0:
            self._left -= 1
            self._session.emit(event)


def _place(code: CodeType) -> Location:
    return Location(
        code.co_filename, code.co_firstlineno, getattr(code, "co_qualname", code.co_name)
    )
