"""torch's CUDA-graph trees, the private names of them and how they are watched: nowhere else.

Three methods of the manager are wrapped, which it looks up at each call: they are recordings, runs
without a graph, and replays, none of which torch counts. torch's own check of a recorded graph is
wrapped too: only there is known why a graph could not be used. Nothing waits for the device, and no
tensor is kept. Written for torch 2.13; what another version lacks is not reported.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from compilediag_harness.torch_internals import cudagraph_trees, torch_compiles
from compilediag_harness.torch_internals.cudagraph_trees import Recording
from compilediag_harness.torch_internals.dynamo_skip import out_of_tracebacks
from compilediag_harness.torch_internals.torch_names import Remover, loaded, subscribe

TREES = "torch._inductor.cudagraph_trees"


class Listener(Protocol):
    """Called from the thread that runs the model, and never inside compiled code."""

    def recorded(self, recording: Recording) -> None:
        """A graph was recorded."""

    def ran(self, key: tuple[int, int], compile_id: object, *, replay: bool) -> None:
        """A graph was replayed, or a function ran without its graph to warm up. `key`: the tree
        and the function; `str(compile_id)` is its text."""

    def fault(self, where: str, error: BaseException) -> None:
        """We failed."""


class _Checks(threading.local):
    """Graphs that torch found not to fit in this thread since the last run, with torch's names, and
    how many it recorded or replayed here."""

    def __init__(self) -> None:
        self.failed: list[tuple[Any, str]] = []
        self.run = 0


_checks = _Checks()


def run_in_this_thread() -> int:
    """CUDA graphs that were recorded or replayed in this thread, while there was a listener."""
    return _checks.run


_listeners: list[Listener] = []
_originals: list[tuple[Any, str, Any]] = []


def listen(listener: Listener) -> Remover | None:
    """Reports CUDA graphs to `listener` from now on; None where this torch has no trees we know.
    The module must be imported."""
    if not _originals and not _wrap():
        return None
    unsubscribe = subscribe(_listeners, listener)

    def remove() -> None:
        unsubscribe()
        if not _listeners:
            _unwrap()

    return remove


def _wrap() -> bool:
    trees = loaded(TREES)
    manager = getattr(trees, "CUDAGraphTreeManager", None)
    node = getattr(trees, "CUDAGraphNode", None)
    # Every call of a compiled function ends in one of the three: `run` of the manager decides.
    names = ("record_function", "execute_node", "run_eager")
    if any(getattr(manager, name, None) is None for name in names):
        return False
    _replace(manager, "record_function", _recording)
    _replace(manager, "execute_node", _replaying)
    _replace(manager, "run_eager", _warming)
    if getattr(node, "check_invariants", None) is not None:
        _replace(node, "check_invariants", _checking)
    return True


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _originals.append((owner, name, original))
    ours = make(original)
    setattr(owner, name, functools.wraps(original)(ours))


def _unwrap() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


# --- the wrappers -----------------------------------------------------------------------------


def _recording(original: Callable[..., Any]) -> Callable[..., Any]:
    def record_function(self: Any, new_inputs: Any, function_id: Any) -> Any:
        # Read before the call: the inputs are still as the program gave them.
        begun = _shielded(
            lambda: cudagraph_trees.begun(self, new_inputs, function_id, _checks.failed)
        )
        started = time.monotonic()
        with out_of_tracebacks:
            result = original(self, new_inputs, function_id)
        seconds = time.monotonic() - started
        _checks.run += 1
        if begun is not None:
            cudagraph_trees.tree_of(self).recorded.add(function_id.id)
            for listener in tuple(_listeners):
                listener.recorded(begun._replace(seconds=seconds))
        _checks.failed.clear()
        return result

    return record_function


def _replaying(original: Callable[..., Any]) -> Callable[..., Any]:
    def execute_node(self: Any, node: Any, new_inputs: Any) -> Any:
        _shielded(lambda: _ran(self, node.wrapped_function.id, replay=True))
        with out_of_tracebacks:
            return original(self, node, new_inputs)

    return execute_node


def _warming(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_eager(self: Any, new_inputs: Any, function_id: Any) -> Any:
        _shielded(lambda: _ran(self, function_id, replay=False))
        with out_of_tracebacks:
            return original(self, new_inputs, function_id)

    return run_eager


def _checking(original: Callable[..., Any]) -> Callable[..., Any]:
    def check_invariants(self: Any, inputs: Any) -> Any:
        with out_of_tracebacks:
            result: Any = original(self, inputs)
        # (status, a function that makes the text): the text would walk the inputs again.
        status = _status(result)
        if status in cudagraph_trees.REASONS:
            _checks.failed.append((self, status))
        return result

    return check_invariants


def _status(result: Any) -> str | None:
    try:
        return result[0].name
    except (TypeError, LookupError, AttributeError):
        return None


def _shielded(read: Callable[[], Any]) -> Any:
    """What `read` returns; a fault of ours must not reach the model."""
    try:
        return read()
    except Exception as error:
        for listener in tuple(_listeners):
            listener.fault("CUDA graph", error)
        return None


def _ran(manager: Any, function_id: Any, *, replay: bool) -> None:
    _checks.failed.clear()
    _checks.run += replay
    key = (cudagraph_trees.tree_of(manager).index, function_id.id)
    compile_id = manager.id_to_compile_id.get(function_id)
    for listener in tuple(_listeners):
        listener.ran(key, compile_id, replay=replay)


# --- totals at the end ------------------------------------------------------------------------


def pool_bytes() -> int | None:
    """Bytes that the allocator has reserved for graphs; None where that is not known. Walks the
    allocator's whole state: not for every step."""
    cuda = getattr(loaded("torch"), "cuda", None)
    # Segments of a graph's private pool have its id, those of the default pool (0, 0).
    pools = {tuple(manager.cuda_graphs_thread_pool) for manager in tuple(cudagraph_trees.managers)}
    if not pools:
        return 0
    if cuda is None or not cuda.is_initialized():
        return None
    return sum(
        segment["total_size"]
        for segment in cuda.memory_snapshot()
        if tuple(segment.get("segment_pool_id", ())) in pools
    )


def skips() -> int | None:
    """torch's own count of graphs that it left out; None where it has none."""
    return torch_compiles.counter("inductor", "cudagraph_skips")
