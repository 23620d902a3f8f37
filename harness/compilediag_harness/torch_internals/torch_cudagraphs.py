"""torch's CUDA-graph trees: wrappers that report recordings, replays and runs without a graph.

Three methods of the manager are wrapped, which it looks up at each call, and torch's own check of a
recorded graph: only there is known why one could not be used. Nothing waits for the device, and no
tensor is stored. Written for torch 2.13; what another version lacks is not reported.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from compilediag_harness.base.hidden_frame import hide_own_frame
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.torch_internals.torch_names import (
    Remover,
    call_beside,
    get_imported,
    replace_attribute,
    subscribe,
)
from compilediag_harness.wire import CudagraphRecorded, Location

REASONS = {
    "StaticInputIdxMismatch": "static_address",
    "CudagraphManagedIdxMismatch": "graph_output_address",
    "ExpectedDeadIndicesBeforeGraphMismatch": "outputs_alive",
}
"""Members of torch's `CheckInvariantStatus`, and our reason for each."""

MAX_MOVED = 8
"""Moved inputs reported of one recording."""

MAX_SIZES = 16
"""Tensors of one recording whose sizes are reported."""

_STACK_LINE = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)\n *([^\n]*)')


class TreeState:
    """Our record of one `CUDAGraphTreeManager`, stored as an attribute of it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.recorded: set[int] = set()


# Weak: a manager holds its graphs, whose memory must go when torch gives it up.
managers: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that have run and are in use."""

_indices = itertools.count()
_TREE_ATTRIBUTE = "_compilediag_tree"


def get_tree(manager: Any) -> TreeState:
    """Get our record of a manager; an attribute of it, so that it is never taken for another's."""
    tree = manager.__dict__.get(_TREE_ATTRIBUTE)
    if tree is None:
        tree = manager.__dict__[_TREE_ATTRIBUTE] = TreeState(next(_indices))
        managers.add(manager)
    return tree


def describe_recording(
    manager: Any, inputs: Any, function_id: Any, failed: Sequence[tuple[Any, str]]
) -> CudagraphRecorded:
    """Describe the recording that begins, of no step; its inputs are as the program gave them.
    `failed`: graphs that torch has just found not to fit, with torch's names for why."""
    function = manager.ids_to_funcs[function_id]
    tree = get_tree(manager)
    # The tree's edges are the order in which graphs were recorded: `current_node` ran last.
    above = manager.roots if manager.current_node is None else manager.current_node.children
    siblings = above.get(function_id) or ()
    newest = siblings[-1] if siblings else None
    others = (other for other in tuple(managers) if other is not manager)
    if newest is not None:
        # Of the graphs recorded here the newest decides: it is what the program did last.
        statuses = [status for node, status in failed if node is newest]
        reason = REASONS[statuses[-1]] if statuses else "unknown"
    elif function_id.id in tree.recorded:
        reason = "order"
    elif _was_recorded(function.model, manager):
        reason = "size"
    elif any(_was_recorded(function.model, other) for other in others):
        reason = "thread"
    else:
        reason = "first"
    # Of the inputs that each replay copies; an integer among the inputs is a size too.
    fixed = frozenset(function.static_input_idxs)
    sizes = (
        f"[{value}]" if type(value) is int else str(list(cast(Any, value).shape))
        for index, value in enumerate(inputs)
        if type(value) is int or (index not in fixed and hasattr(value, "data_ptr"))
    )
    moved = _find_moved(newest, reason, inputs, function.placeholders)
    return CudagraphRecorded(
        *(0.0, 0, 0),
        compile_id=str(manager.id_to_compile_id.get(function_id) or ""),
        mode=str(getattr(manager.id_to_mode.get(function_id), "name", "")).lower(),
        reason=reason,
        tree=tree.index,
        function=function_id.id,
        thread=threading.get_ident(),
        sizes=tuple(itertools.islice(sizes, MAX_SIZES)),
        moved=tuple(placeholder.name for placeholder in moved),
        moved_at=tuple(find_user_line(placeholder) for placeholder in moved),
        seconds=0.0,
    )


def _was_recorded(model: Any, manager: Any) -> bool:
    """True if a graph of the same compiled code was recorded, for another size, in this manager."""
    recorded = get_tree(manager).recorded
    functions = tuple(manager.ids_to_funcs.items())
    return any(function.model is model and key.id in recorded for key, function in functions)


def _find_moved(newest: Any, reason: str, inputs: Any, placeholders: Any) -> tuple[Any, ...]:
    """Find the placeholders of inputs with another address than in the graph recorded before."""
    attribute = {
        "static_address": "tensor_static_input_idxs",
        "graph_output_address": "cudagraph_managed_idxs",
    }.get(reason)
    if newest is None or attribute is None:
        return ()
    before = newest.static_input_data_ptrs
    checked = getattr(newest, attribute, None) or getattr(newest, "static_input_idxs", ())
    moved = (
        placeholders[index]
        for index in checked
        if index < len(placeholders)
        and hasattr(inputs[index], "data_ptr")
        and inputs[index].data_ptr() != before[index]
    )
    return tuple(itertools.islice(moved, MAX_MOVED))


def find_user_line(placeholder: Any) -> Location | None:
    """Find the innermost line of the program that has made a node or uses an input, where torch
    knows it; a line of torch's own where there is no other."""
    torch_folder = os.path.join(os.path.dirname(getattr(get_imported("torch"), "__file__", "")), "")
    stacks = [placeholder.stack_trace, *(user.stack_trace for user in placeholder.users or ())]
    for stack in stacks:
        lines = _STACK_LINE.findall(drop_stale_lines(stack or ""))
        if lines:
            own = [line for line in lines if not line[0].startswith(torch_folder)]
            file, line, function, _ = (own or lines)[-1]
            return Location(file, int(line), function.strip())
    return None


def drop_stale_lines(stack: str) -> str:
    """Drop lines of a stack that torch kept which are of another program or an older file: a graph
    out of a cache has the stack of the process that stored it."""

    def check(match: re.Match[str]) -> str:
        file, line, _, text = match.groups()
        is_same = linecache.getline(file, int(line)).strip() == text.strip()
        return match[0] if is_same and _is_loaded(file) else ""

    return _STACK_LINE.sub(check, stack)


@functools.lru_cache(maxsize=1024)
def _is_loaded(file: str) -> bool:
    """True if a module was loaded from a file; all are looked through once for each file."""
    files = {getattr(module, "__file__", "") for module in tuple(sys.modules.values())}
    return not files.isdisjoint((file, os.path.abspath(file)))


def count_live_graphs() -> int:
    """Count the graphs that are recorded and not yet given up."""
    return sum(_count_below(manager.roots) for manager in tuple(managers))


def _count_below(recorded: Mapping[Any, Any] | None) -> int:
    """Count graphs recorded after each other, by the function they are of (None after a reset)."""
    nodes = [node for siblings in (recorded or {}).values() for node in siblings]
    return len(nodes) + sum(_count_below(node.children) for node in nodes)


TREES = "torch._inductor.cudagraph_trees"


class _Checks(threading.local):
    """Graphs that torch found not to fit in this thread since the last run, with torch's names, and
    how many it recorded or replayed here."""

    def __init__(self) -> None:
        # Invariant: emptied by whatever runs next: a graph in it could not be given up.
        self.failed: list[tuple[Any, str]] = []
        self.run = 0


_checks = _Checks()


def count_runs_in_thread() -> int:
    """Count CUDA graphs recorded or replayed in this thread, while there was a listener."""
    return _checks.run


_listeners: list[Any] = []
_removers: list[Remover] = []


def listen(listener: Any) -> Remover | None:
    """Report CUDA graphs to a `CudagraphCollector` from now on, from the thread that runs the
    model and never inside compiled code; None where this torch has no trees we know. The module
    must be imported."""
    trees = get_imported(TREES)
    manager = getattr(trees, "CUDAGraphTreeManager", None)
    # Every call of a compiled function ends in one of the three: `run` of the manager decides.
    names = ("record_function", "execute_node", "run_eager")
    if any(getattr(manager, name, None) is None for name in names):
        return None
    unsubscribe = subscribe(_listeners, listener)
    if not _removers:
        recording = _wrap_recording(cast(Any, manager).record_function)
        node = getattr(trees, "CUDAGraphNode", None)
        removers = (
            replace_attribute(manager, "record_function", recording),
            call_beside(manager, "execute_node", before=_report_replay),
            call_beside(manager, "run_eager", before=_report_warmup),
            call_beside(node, "check_invariants", after=_note_failed_check),
        )
        _removers.extend(remover for remover in removers if remover is not None)

    def remove() -> None:
        unsubscribe()
        # Invariant: in reverse order, and only when no session is left: the wrappers are shared.
        while _removers and not _listeners:
            _removers.pop()()

    return remove


def _wrap_recording(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def record_function(self: Any, new_inputs: Any, function_id: Any) -> Any:
        # Invariant: addresses and shapes are read, never data: that would wait for the device.
        # Read before the call: the inputs are still as the program gave them.
        begun = None
        try:
            begun = describe_recording(self, new_inputs, function_id, _checks.failed)
        except Exception as error:
            _report_fault(error)
        started = time.monotonic()
        with hide_own_frame:
            result = original(self, new_inputs, function_id)
        seconds = time.monotonic() - started
        _checks.run += 1
        if begun is not None:
            get_tree(self).recorded.add(function_id.id)
            for listener in tuple(_listeners):
                listener.report_recording(replace(begun, seconds=seconds))
        _checks.failed.clear()
        return result

    return record_function


def _report_replay(manager: Any, node: Any, *_: Any, **__: Any) -> None:
    _record_run(manager, node=node)


def _report_warmup(manager: Any, new_inputs: Any, function_id: Any, *_: Any, **__: Any) -> None:
    _record_run(manager, function_id)


def _note_failed_check(result: Any, node: Any, *_: Any, **__: Any) -> None:
    # (status, a function that makes the text): the text would walk the inputs again.
    with contextlib.suppress(TypeError, LookupError, AttributeError):
        if result[0].name in REASONS:
            _checks.failed.append((node, result[0].name))


def _report_fault(error: Exception) -> None:
    """Report a fault of ours, which must not reach the model."""
    # A listener is a `CudagraphCollector`, untyped here: its methods are called by name.
    for listener in tuple(_listeners):
        listener.record_fault("CUDA graph", error)


def _record_run(manager: Any, function_id: Any = None, *, node: Any = None) -> None:
    """Record that a function ran without its graph, or that the graph `node` is replayed."""
    replay = node is not None
    try:
        _checks.failed.clear()
        function_id = node.wrapped_function.id if replay else function_id
        _checks.run += replay
        key = (get_tree(manager).index, function_id.id)
        compile_id = manager.id_to_compile_id.get(function_id)
        for listener in tuple(_listeners):
            listener.count_run(key, compile_id, replay=replay)
    except Exception as error:
        _report_fault(error)


def measure_pool_bytes() -> int | None:
    """Measure the bytes that the allocator has reserved for graphs; None where that is not known.
    Walks the allocator's whole state: not for every step."""
    cuda = getattr(get_imported("torch"), "cuda", None)
    # Segments of a graph's private pool have its id, those of the default pool (0, 0).
    pools = {tuple(manager.cuda_graphs_thread_pool) for manager in tuple(managers)}
    if not pools:
        return 0
    if cuda is None or not cuda.is_initialized():
        return None
    return sum(
        segment["total_size"]
        for segment in cuda.memory_snapshot()
        if tuple(segment.get("segment_pool_id", ())) in pools
    )


def read_skip_count() -> int | None:
    """Read torch's own count of graphs that it left out; None where it has none."""
    return torch_compiles.read_counter("inductor", "cudagraph_skips")
