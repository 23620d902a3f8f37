"""torch's compile caches: each lookup, each entry that is written, and where they lie.

A cache of graphs hands out a dictionary about each lookup; others are not looked at.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from compilediag_harness.base.hidden_frame import hide_own_frame
from compilediag_harness.torch_internals.torch_names import (
    UTILS,
    Remover,
    Removers,
    call_beside,
    get_imported,
    lookup,
    replace_attribute,
)
from compilediag_harness.wire import AOT_AUTOGRAD, FX_GRAPH, HIT, MISS, CacheFolderRead

CODECACHE = "torch._inductor.codecache"
AOT_CACHE = "torch._functorch._aot_autograd.autograd_cache"

LookupListener = Callable[[str, str, Mapping[str, Any], str], None]
"""Called with the cache, the outcome, torch's dictionary about the lookup, and the cache whose
entry referred to it ("" where none did)."""

_SAVES = {
    FX_GRAPH: (CODECACHE, "FxGraphCache", "_save_graph", ""),
    AOT_AUTOGRAD: (AOT_CACHE, "AOTAutogradCache", "save", "torch could not serialize the entry"),
}
"""Module, class and function that saves an entry; the problem if nothing was written or raised."""

WriteListener = Callable[[str, str], None]
"""Called with the cache, and why it could not be written ("" where it was)."""

_EVENTS = {"fx_graph_cache_": FX_GRAPH, "autograd_cache_": AOT_AUTOGRAD}


class _Saving(threading.local):
    """Outcome of a thread's save in progress: whether its entry was written, or the problem."""

    written: bool = False
    problem: str = ""


_saving = _Saving()


def watch_cache_events(listener: LookupListener) -> Remover | None:
    """Call the listener at each lookup that torch's compile log has an instant of. A graph that
    AOTAutograd's entry refers to has none."""
    # `load_with_key` logs nothing itself: only those who call it log an instant.
    logger = lookup(get_imported(UTILS), "ChromiumEventLogger")

    def report_event(_: Any, event_name: Any, *args: Any, **kwargs: Any) -> None:
        for prefix, cache in _EVENTS.items():
            if isinstance(event_name, str) and event_name.startswith(prefix):
                # By position: the time in nanoseconds, then the dictionary about the lookup.
                info = kwargs.get("metadata", args[1] if len(args) > 1 else None)
                outcome = event_name[len(prefix) :]
                listener(cache, outcome, _get_mapping(info), "")

    return call_beside(logger, "log_instant_event", before=report_event)


def watch_graph_loads(listener: LookupListener) -> Remover | None:
    """Call the listener at each lookup of a compiled graph by its key, also of a graph that
    AOTAutograd's entry refers to; None where this torch has no such function."""

    def report_lookup(result: Any, *args: Any, **kwargs: Any) -> None:
        pair = cast("tuple[Any, ...]", result) if isinstance(result, tuple) else ()
        graph, info = pair if len(pair) == 2 else (None, None)
        # AOTAutograd compares guards in its own way; in 2.7 it computes no key of its own, and so
        # has no lines about one.
        own_guards = kwargs.get("evaluate_guards") is not None
        no_lines = len(args) > 1 and args[1] == []
        within = AOT_AUTOGRAD if own_guards or no_lines else ""
        listener(FX_GRAPH, MISS if graph is None else HIT, _get_mapping(info), within)

    owner = lookup(get_imported(CODECACHE), "FxGraphCache")
    return call_beside(owner, "load_with_key", after=report_lookup)


def watch_writes(cache: str, listener: WriteListener) -> Removers:
    """Call the listener after each entry that FxGraphCache or AOTAutogradCache saves, or cannot."""
    # Invariant: in one thread no save lies in another, since `_saving` holds one outcome. A write
    # outside of a save (loaded artifacts) is forgotten when the next save begins.
    module, name, save, unwritten = _SAVES[cache]
    owner = lookup(get_imported(module), name)
    writing, saving = getattr(owner, "_write_to_local_cache", None), getattr(owner, save, None)
    if writing is None or saving is None:
        return ()

    @functools.wraps(writing)
    def write(*args: Any, **kwargs: Any) -> Any:
        # torch catches what writing raises, and goes on without the entry.
        try:
            with hide_own_frame:
                result = writing(*args, **kwargs)
        except Exception as error:
            _saving.problem = f"{type(error).__name__}: {error}"
            raise
        _saving.written = True
        return result

    @functools.wraps(saving)
    def save_entry(*args: Any, **kwargs: Any) -> Any:
        _saving.written, _saving.problem = False, ""
        try:
            with hide_own_frame:
                return saving(*args, **kwargs)
        finally:
            if _saving.written:
                listener(cache, "")
            elif _saving.problem or unwritten:
                listener(cache, _saving.problem or unwritten)

    remover = replace_attribute(owner, "_write_to_local_cache", write)
    return remover, replace_attribute(owner, save, save_entry)


def _get_mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def read_cache_folder(now: float) -> CacheFolderRead | None:
    """Read the folder of inductor's caches at `now` (seconds since the process attached); None
    where torch has not set one yet. No folder is made."""
    # torch writes its own choice into the variable too.
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if not folder:
        return None
    # 2.7 has it in the latter.
    utils = get_imported("torch._inductor.runtime.cache_dir_utils") or get_imported(
        "torch._inductor.runtime.runtime_utils"
    )
    default = getattr(utils, "default_cache_dir", None)
    real = existing = os.path.realpath(folder)
    while not os.path.exists(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing)
    return CacheFolderRead(
        now,
        folder=folder,
        configured=default is None or folder != default(),
        temporary=_is_below(real, os.path.realpath(tempfile.gettempdir())),
        filesystem=_find_filesystem(real),
        writable=os.access(existing, os.W_OK),
    )


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _find_filesystem(path: str) -> str:
    """Find the type of the mount that a path lies on; empty where the system does not tell."""
    longest = ("", "")
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, where, kind, *_ = line.split(" ")
                where = where.replace("\\040", " ")
                if _is_below(path, where) and len(where) >= len(longest[0]):
                    longest = (where, kind)
    except (OSError, ValueError):
        return ""
    return longest[1]
