"""Graphs that Dynamo hands to the backend: their operations, and how often each was called.

What the backend returns stays as it is. Dynamo puts it behind `torch.compiler.disable`, whose
wrapper reports its calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import types
from typing import Any

from compilediag_harness.base.object_graph import WeakByIdentity, get_class
from compilediag_harness.torch_internals import torch_calls
from compilediag_harness.torch_internals.torch_names import (
    Remover,
    call_beside,
    get_imported,
    lookup,
)
from compilediag_harness.wire import Location

OUTPUT_GRAPH = "torch._dynamo.output_graph"

_INSIDE = "_torchdynamo_orig_callable"

_CALLS = ("call_function", "call_method", "call_module")

_NAMESPACES = (
    *("aten", "prims", "prim", "higher_order", "inductor", "profiler", "rngprims", "streams"),
    *("c10d", "_c10d_functional", "quantized", "quantized_decomposed"),
)
"""Of operators of torch's own that Dynamo puts into graphs."""

_PLAIN_MODULES = ("builtins", "operator", "_operator", "math", "_thread", "itertools")
"""Modules whose functions hide nothing."""


NOT_COUNTED = -1
"""Calls of a graph that cannot be counted."""


@dataclasses.dataclass(slots=True)
class CapturedGraph:
    """One graph, and the calls of it so far."""

    frame: Location
    operations: int
    opaque: tuple[str, ...]
    """Operations whose definition is no part of the graph."""
    calls: int = NOT_COUNTED


class GraphCounter:
    """Counts the graphs that are captured from now on, and their calls."""

    def __init__(self) -> None:
        self.graphs: list[CapturedGraph] = []
        self.ran_in: set[int] = set()
        """Threads in which one was called; who reads it takes its own out."""
        # Invariant: weak: what was compiled goes when Dynamo drops it.
        self._by_callable = WeakByIdentity[Any, CapturedGraph]()
        self._undo: list[Remover] = []

    def install(self) -> None:
        """Begin; to be called when `OUTPUT_GRAPH` was imported."""
        owner = lookup(get_imported(OUTPUT_GRAPH), "OutputGraph")
        remover = call_beside(owner, "call_user_compiler", after=self._add_graph)
        self._undo += [] if remover is None else [remover]
        self._undo.append(torch_calls.watch_disabled_calls(None, self._count_call))

    def uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()

    def forget_calls(self) -> None:
        """Count from zero again."""
        for captured in self.graphs:
            captured.calls = min(captured.calls, 0)

    def _add_graph(self, compiled: Any, output: Any, graph: Any, *_: Any, **__: Any) -> None:
        captured = CapturedGraph(Location("", 0), 0, ())
        self.graphs.append(captured)
        with contextlib.suppress(Exception):  # of another torch: it stays one that is not counted
            where = output.co_fields
            frame = Location(where["co_filename"], where["co_firstlineno"], where["co_name"])
            captured.frame = frame
            nodes = [node for node in graph.graph.nodes if node.op in _CALLS]
            named = (_find_opaque(graph, node) for node in nodes)
            captured.operations = len(nodes)
            captured.opaque = tuple(dict.fromkeys(name for name in named if name is not None))
            # Raises where nothing can refer to it weakly.
            self._by_callable[_get_owner(compiled)] = captured
            captured.calls = 0

    def _count_call(self, function: Any) -> None:
        captured = self._by_callable.get(_get_owner(function))
        if captured is not None:
            captured.calls += 1
            self.ran_in.add(threading.get_ident())


def _get_owner(function: Any) -> Any:
    """Get what stands for a compiled graph: the function that `torch.compiler.disable` would call;
    of a bound method, which is made anew, its module."""
    while hasattr(function, _INSIDE):  # as `innermost_fn` of torch does
        function = getattr(function, _INSIDE)
    return function.__self__ if get_class(function) is types.MethodType else function


def _find_opaque(graph: Any, node: Any) -> str | None:
    """Find the name of an operation that hides what it computes; None for one of torch's own."""
    target = node.target
    if node.op == "call_method":
        return None
    if node.op == "call_module":
        kind = get_class(graph.get_submodule(target))
        return None if _is_torch(kind.__module__) else f"{kind.__module__}.{kind.__qualname__}"
    namespace = getattr(target, "namespace", None)  # of an operator; a packet has none
    if namespace is None and hasattr(target, "_qualified_op_name"):
        namespace = str(target._qualified_op_name).partition("::")[0]
    if isinstance(namespace, str):
        return None if namespace in _NAMESPACES else str(target)
    module = str(getattr(target, "__module__", None) or get_class(target).__module__)
    if _is_torch(module) or module in _PLAIN_MODULES:
        return None
    return f"{module}.{getattr(target, '__qualname__', get_class(target).__qualname__)}"


def _is_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"
