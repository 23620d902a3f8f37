"""Lookups of torch's compile caches in a trace: artifacts that are named for what they found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from compilediag.readers import lenient_json
from compilediag_harness.wire import (
    AOT_AUTOGRAD,
    BYPASS,
    FX_GRAPH,
    HIT,
    MISS,
    CacheLookedUp,
    CacheSettingsRead,
    CacheWritten,
    Event,
    lookup_of,
    plain_text,
)

LOOKUPS_WITH_COMPONENTS = 200
"""Lookups of a process whose keys are kept by component, the first ones."""

UNSAVED = "aotautograd_cache_pickle_failure"

_NAMES: dict[str, tuple[str, str]] = {
    **{f"fx_graph_cache_{outcome}": (FX_GRAPH, outcome) for outcome in (HIT, MISS, BYPASS)},
    **{f"aotautograd_cache_{outcome}": (AOT_AUTOGRAD, outcome) for outcome in (HIT, MISS, BYPASS)},
    "fx_graph_bundled_cache_hit": (FX_GRAPH, HIT),
    "get_local_code_state": ("pgo_local", HIT),
    "get_remote_code_state": ("pgo_remote", HIT),
}
"""Cache and outcome by torch's name of the artifact. A profile of sizes that is not there has
none."""

ARTIFACTS = tuple(name.encode() for name in (*_NAMES, UNSAVED))

_KEY = re.compile(rb'"key": ?"(\w{1,200})"')
_STATUS = re.compile(rb'"cache_status_detailed": ?"(\w{1,40})"')

At = tuple[float, str, int]
"""Time, compile id, epoch."""


class CacheRecords:
    """The lookups of one process."""

    def __init__(self) -> None:
        self._with_components = 0
        self._settings: set[str] = set()
        self._graphs: list[tuple[tuple[int, str], int]] = []
        """Lookups of graphs since AOTAutograd's last one: their compile, and their place among the
        process's events."""

    def take(self, name: str, payload: bytes, at: At, events: list[Event]) -> None:
        """Appends what an artifact tells."""
        t, compile_id, epoch = at
        if name == UNSAVED:
            said = _info(payload)
            field = plain_text(said.get("field"), 100)
            problem = plain_text(said.get("error"), 400) + (f" (field {field})" if field else "")
            events.append(CacheWritten(t, 0, AOT_AUTOGRAD, compile_id, epoch, problem))
            return
        cache, outcome = _NAMES[name]
        info: Mapping[str, Any] = {} if cache.startswith("pgo") else _info(payload)
        lookup = self._lookup(cache, outcome, info, at, events)
        if cache == FX_GRAPH:
            self._graphs.append(((epoch, compile_id), len(events)))
        elif cache == AOT_AUTOGRAD:
            if outcome == HIT or (outcome == MISS and lookup.status == HIT):
                self._mark_within((epoch, compile_id), events)
            self._graphs.clear()
        events.append(lookup)

    def _lookup(
        self,
        cache: str,
        outcome: str,
        info: Mapping[str, Any],
        at: At,
        events: list[Event],
    ) -> CacheLookedUp:
        t, compile_id, epoch = at
        read = lookup_of(info)
        settings = read.digest
        if settings and settings not in self._settings:
            self._settings.add(settings)
            events.append(CacheSettingsRead(t, settings, read.settings))
        self._with_components += bool(read.components)
        kept = self._with_components <= LOOKUPS_WITH_COMPONENTS
        return CacheLookedUp(
            t=t,
            step=0,
            cache=cache,
            outcome=outcome,
            compile_id=compile_id,
            epoch=epoch,
            key=read.key,
            status=read.status,
            reason=read.reason,
            saved_s=read.saved_s,
            components=read.components if kept else (),
            components_left_out=read.components_left_out + (0 if kept else len(read.components)),
            settings=settings,
        )

    def _mark_within(self, compiled: tuple[int, str], events: list[Event]) -> None:
        """An entry of AOTAutograd refers to a graph for the forward and, where it trains, one for
        the backward, which are looked up just before."""
        for owner, index in self._graphs[-2:]:
            graph = events[index]
            if owner == compiled and isinstance(graph, CacheLookedUp):
                events[index] = replace(graph, within=AOT_AUTOGRAD)


def _info(payload: bytes) -> Mapping[str, Any]:
    """torch's dictionary; of one that is cut what stands at its beginning."""
    found = lenient_json.parse_object(payload)
    if found is not None:
        return found
    key, status = _KEY.search(payload, 0, 2_000), _STATUS.search(payload, 0, 2_000)
    read = {"key": key, "cache_status_detailed": status}
    return {name: match[1].decode() for name, match in read.items() if match is not None}
