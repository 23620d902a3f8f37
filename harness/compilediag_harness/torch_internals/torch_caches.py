"""torch's compile caches: each lookup, each entry that is written, and where they lie.

A cache of graphs hands out a dictionary about each lookup. Other caches are only counted, by the
names of their classes, in one object: `torch._inductor.remote_cache.cache_stats`.

Code that torch loads compiled, of which no compile tells (seen to work on 2.13 only):
`torch._dynamo.package` (`caching_precompile`) hangs entries with guards to the code of the
function, `torch._dynamo.aot_compile` makes an object that is called.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, cast

from compilediag_harness.base.hidden_frame import hide_own_frame
from compilediag_harness.base.object_graph import is_a
from compilediag_harness.torch_internals.torch_names import (
    UTILS,
    Remover,
    Removers,
    call_beside,
    get_imported,
    lookup,
    replace_attribute,
)
from compilediag_harness.wire import AOT_AUTOGRAD, FAILED, FX_GRAPH, HIT, MISS, CacheFolderRead

CODECACHE = "torch._inductor.codecache"
AOT_CACHE = "torch._functorch._aot_autograd.autograd_cache"
STATS = "torch._inductor.remote_cache"
PGO = "torch._dynamo.pgo"
ARTIFACTS = "torch.compiler._cache"

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
_SEEN_CACHES = frozenset({"LocalFxGraphCache", "LocalAOTAutogradCache"})
"""Caches that `cache_stats` counts, and whose lookups are seen one by one."""


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


def watch_choices(listener: LookupListener) -> Remover | None:
    """Call the listener at each lookup of how long the variants of an operation took: it is a miss
    where they are timed now."""
    owner = lookup(get_imported(CODECACHE), "PersistentCache")
    original = getattr(owner, "lookup", None)
    if original is None:
        return None

    @functools.wraps(original)
    def lookup_choices(
        self: Any, choices: Any, op: Any, inputs: Any, benchmark: Any, *args: Any, **kwargs: Any
    ) -> Any:
        # torch calls `benchmark` where a variant is not in the cache; None: nothing is to be timed.
        timed: list[bool] = []

        def time_choices(*own: Any, **named: Any) -> Any:
            timed.append(True)
            return benchmark(*own, **named)

        watched = time_choices if callable(benchmark) else benchmark
        with hide_own_frame:
            result = original(self, choices, op, inputs, watched, *args, **kwargs)
        hit = not timed and bool(result)
        listener("autotune_choices", HIT if hit else MISS, {"key": f"{op} {inputs}"}, "")
        return result

    return replace_attribute(owner, "lookup", lookup_choices)


def watch_counted_caches(listener: LookupListener) -> Removers:
    """Call the listener at each lookup of a cache that torch only counts: of autotuning, remote
    ones, and those of other packages."""
    # Invariant: `get` is not wrapped: it calls `hit` or `miss`, and would count a lookup twice.
    stats: Any = getattr(get_imported(STATS), "cache_stats", None)
    owner: Any = stats.__class__

    def report_lookup(outcome: str, _stats: Any, name: Any, *_: Any, **__: Any) -> None:
        # A remote cache counts its backend under a name of its own.
        if name not in _SEEN_CACHES and not str(name).startswith("backend:"):
            listener(str(name), outcome, {}, "")

    return [
        call_beside(owner, method, before=functools.partial(report_lookup, outcome))
        for method, outcome in (("hit", HIT), ("miss", MISS), ("exception", FAILED))
    ]


def watch_profile_lookups(listener: LookupListener) -> Remover | None:
    """Call the listener when torch looks for a profile of sizes of an earlier run, which it does
    once, and only under a job id."""

    def report_lookup(state: Any, cache_key: Any, *_: Any, **__: Any) -> None:
        listener("pgo_local", MISS if state is None else HIT, {"key": str(cache_key)}, "")

    # 2.7 has no such function.
    return call_beside(get_imported(PGO), "get_local_code_state", after=report_lookup)


def watch_artifacts(listener: LookupListener) -> Remover | None:
    """Call the listener when the program loads the caches of another run
    (`torch.compiler.load_cache_artifacts`)."""

    def report_artifacts(artifacts: Any, *_: Any, **__: Any) -> None:
        kinds = _get_mapping(getattr(artifacts, "artifacts", artifacts))
        if not kinds:
            # 2.7 returns what it wrote into which cache, in fields such as `inductor_artifacts`;
            # later versions what is to be written.
            fields = getattr(artifacts, "__dict__", {}).items()
            named = {name.removesuffix("_artifacts"): saved for name, saved in fields}
            kinds = {kind: saved for kind, saved in named.items() if saved and is_a(saved, list)}
        counts = ", ".join(f"{kind}: {len(entries)}" for kind, entries in kinds.items())
        info = {"cache_status_detailed": counts}
        if artifacts is None:
            info = {"cache_bypass_reason": "torch could not read the artifacts"}
        listener("mega", MISS if artifacts is None else HIT, info, "")

    owner = lookup(get_imported(ARTIFACTS), "CacheArtifactManager")
    return call_beside(owner, "deserialize", after=report_artifacts)


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


# --- functions that are loaded compiled -----------------------------------------------------------

PACKAGE = "torch._dynamo.package"
AOT_COMPILE = "torch._dynamo.aot_compile"

LoadListener = Callable[[CodeType, int], None]
"""Called with the function's code, and how many compiled entries it has."""

CallListener = Callable[[CodeType], None]
"""Called at the first call of compiled code of the function."""


def watch_packages(
    was_loaded: LoadListener, was_called: CallListener, failed: Callable[[Exception], None]
) -> Remover | None:
    """Watch the precompiled code that `CompilePackage.install` puts in place. `failed(error)` is
    called where it cannot be read, and nothing is watched of it."""
    owner = lookup(get_imported(PACKAGE), "CompilePackage")
    original = getattr(owner, "install", None)
    if original is None:
        return None

    @functools.wraps(original)
    def install(self: Any, backends: Any, *args: Any, **kwargs: Any) -> Any:
        watched, loaded = backends, list[tuple[CodeType, int]]()
        try:
            entries: list[tuple[CodeType, Any]] = [
                (code, entry)
                for code, entry in getattr(self, "_codes", {}).items()
                if getattr(entry, "guarded_codes", ()) and not getattr(entry, "bypassed", False)
            ]
            owners = {name: code for code, entry in entries for name in entry.backend_ids}
            # A dict of our own: the program's keeps the graphs that it gave.
            watched = {
                name: _WatchedGraph(backend, functools.partial(was_called, owners[name]))
                if name in owners
                else backend
                for name, backend in backends.items()
            }
            loaded = [(code, len(entry.guarded_codes)) for code, entry in entries]
        except Exception as error:
            failed(error)
        with hide_own_frame:
            result = original(self, watched, *args, **kwargs)
        for code, count in loaded:
            was_loaded(code, count)
        return result

    return replace_attribute(owner, "install", install)


class _WatchedGraph:
    """A stored graph that reports its first call; `install` calls this method of torch's API."""

    def __init__(self, backend: Any, was_called: Callable[[], None]) -> None:
        self._backend = backend
        self._was_called = was_called
        self._seen = False

    def after_deserialization(self) -> Any:
        graph = self._backend.after_deserialization()

        # Without the graph's own `__dict__`, which may hold marks of torch's. `install` puts what
        # it gets here behind `torch._dynamo.disable`.
        @functools.wraps(graph, updated=())
        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._seen:
                self._seen = True
                self._was_called()
            return graph(*args, **kwargs)

        return run


def watch_loaded_functions(was_loaded: LoadListener, was_called: CallListener) -> Remover | None:
    """Watch functions that were compiled ahead of time and are read from a file."""

    def read(made: Any, *_: Any, **__: Any) -> None:
        code = getattr(getattr(made, "_artifacts", None), "original_code", None)
        if isinstance(code, CodeType) and callable(getattr(made, "fn", None)):
            was_loaded(code, 1)
            compiled = made.fn

            @functools.wraps(compiled, updated=())
            def run(*own: Any, **named: Any) -> Any:
                made.fn = compiled
                was_called(code)
                return compiled(*own, **named)

            # `AOTCompiledFunction.__call__` reads `fn` at each call; `run` takes itself out again.
            made.fn = run

    owner = lookup(get_imported(AOT_COMPILE), "AOTCompiledFunction")
    return call_beside(owner, "deserialize", after=read)
