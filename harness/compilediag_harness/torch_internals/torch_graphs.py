"""Graphs that Dynamo hands to the backend: their operations, how often each was called, and which
effects of the code they lack. And the schemas of torch's operators.

What the backend returns stays as it is. Dynamo puts it behind `torch.compiler.disable`, whose
wrapper reports its calls.
"""

from __future__ import annotations

import contextlib
import operator
import random
import threading
import types
from collections.abc import Callable, Collection
from typing import Any

from compilediag_harness.base.object_graph import WeakByIdentity, get_class
from compilediag_harness.torch_internals import torch_calls, torch_cudagraphs
from compilediag_harness.torch_internals.torch_names import (
    Remover,
    call_beside,
    get_imported,
    lookup,
)
from compilediag_harness.wire import GraphRun, Location

OUTPUT_GRAPH = "torch._dynamo.output_graph"
PARTITIONERS = "torch._functorch.partitioners"

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


EffectListener = Callable[[str, str, str, Location | None], None]
"""Called with source, operation, kind (`wire.EffectLost`), and the line."""
SETS_STATE = ("seed", "setstate")


def watch_left_out_writes(callback: EffectListener) -> Remover | None:
    """Call `callback` with each operation in place that torch takes out of a graph with the floats
    it made constants: of a tensor without dimensions of float64 on the host, if nothing uses the
    result. 2.7 to 2.14 do, 2.15 does not."""
    writes: list[tuple[Any, str, str]] = []

    # Invariant: neither raises, and Dynamo compiles one frame at a time (`compile_lock`).
    def remember_writes(output: Any, *_: Any, **__: Any) -> None:
        writes.clear()
        with contextlib.suppress(Exception):  # of another torch
            writes.extend(_list_unused_writes(output))

    def report_missing(_: Any, output: Any, *__: Any, **___: Any) -> None:
        left = set[Any](output.graph.nodes) if writes else ()
        for node, source, operation in writes:
            if node not in left:
                callback(source, operation, "left out", torch_cudagraphs.find_user_line(node))
        writes.clear()

    owner = lookup(get_imported(OUTPUT_GRAPH), "OutputGraph")
    removal = "remove_tensorify_specialized_graphargs"
    return call_beside(owner, removal, before=remember_writes, after=report_missing)


def _list_unused_writes(output: Any) -> list[tuple[Any, str, str]]:
    """List the nodes that write in place into a tensor of the program and whose result nothing
    uses, each with the tensor's source and the operation."""
    writes: list[tuple[Any, str, str]] = []
    inputs = [node for node in output.graph.nodes if node.op not in _CALLS]
    by_value = {id(node.meta.get("example_value")): node for node in inputs}
    for node in output.graph.nodes:
        if node.op not in _CALLS or node.users:
            continue
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        in_operator = name.startswith("i") and hasattr(operator, name)  # `t += 1` is `iadd`
        if not (name.endswith("_") or in_operator or "out" in node.kwargs):
            continue
        # What is done in place returns the tensor itself, also when torch traces.
        written = node.meta.get("example_value")
        given = None if written is None else by_value.get(id(written))
        if given is not None:
            # What an optimizer holds is an attribute of the graph.
            argument = given.meta.get("grapharg")
            source = argument.source if argument else output.param_name_to_source[given.target]
            writes.append((node, _get_name(source), name))
    return writes


def watch_draws(callback: EffectListener) -> Remover | None:
    """Call `callback` with each draw from a `random.Random` of the program that goes on from the
    state of this moment at every call of the graph (up to 2.14; pytorch issue 145445; in 2.15 that
    of `shuffle`, of `sample` and of what follows them), and with each `seed` and `setstate` of one,
    by which the code sets that state itself."""

    def report_call(_: Any, generator: Any, tx: Any, name: str, *__: Any, **___: Any) -> None:
        with contextlib.suppress(Exception):  # of another torch
            # Then each call of the graph ends with `setstate`, of the state that torch's own copy
            # of the generator has after it is traced.
            stored = tx.output.side_effects.is_modified(generator)
            drawn = stored and name not in ("getstate", *SETS_STATE)
            if generator.source is not None and (drawn or name in SETS_STATE):
                where = Location(tx.f_code.co_filename, tx.lineno, tx.f_code.co_name)
                callback(_get_name(generator.source), name, "repeated" if drawn else "", where)

    variable = lookup(get_imported("torch._dynamo.variables.misc"), "RandomVariable")
    return call_beside(variable, "call_method", after=report_call)


def watch_misread_draws(callback: EffectListener) -> Remover | None:
    """Call `callback` with each drawn float that a graph of inductor takes as a tensor of another
    dtype than it is given as, whose bytes inductor reads as they are (up to 2.14: float32 for
    float64; pytorch issue 198187)."""

    def report_inputs(output: Any, graph: Any, *_: Any, **__: Any) -> None:
        with contextlib.suppress(Exception):  # of another torch
            backend = getattr(output.compiler_fn, "__wrapped__", None)
            inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
            for node in inputs if getattr(backend, "compiler_name", "") == "inductor" else ():
                argument, traced = node.meta["grapharg"], node.meta["example_value"].dtype
                number = getattr(argument.source, "random_call_index", None)
                if number is None or not traced.is_floating_point or traced.itemsize == 8:
                    continue  # `torch._as_tensor_fullprec` makes a float64 one of a float
                drawn, user = output.random_calls[number][0], next(iter(node.users))
                # Of a generator `watch_draws` tells; a kernel of a device gets it by `item()`.
                on_host = user.meta["example_value"].device.type == "cpu"
                if drawn.__name__ in dir(random) and on_host:
                    where = torch_cudagraphs.find_user_line(user)
                    callback(f"random.{drawn.__name__}", drawn.__name__, "misread", where)

    owner = lookup(get_imported(OUTPUT_GRAPH), "OutputGraph")
    return call_beside(owner, "call_user_compiler", before=report_inputs)


def watch_merged_draws(callback: EffectListener) -> Remover | None:
    """Call `callback` with each draw that torch takes out of a graph that computes gradients, as
    equal to another one: the operators that `fx_graph_cse` knows to draw are not all that do, as
    `uniform`, which `uniform_()` becomes, is not in torch 2.13."""

    def report_merged(kept: Any, given: Any, *_: Any, **__: Any) -> None:
        with contextlib.suppress(Exception):  # of another torch
            names = {node.name for node in kept.nodes}
            draws: Any = lookup(get_imported("torch"), "Tag.nondeterministic_seeded")
            for node in given.nodes:
                if node.name not in names and draws in getattr(node.target, "tags", ()):
                    name = str(node.target).split(".")[1]  # of "aten.uniform.default"
                    callback(name, name, "merged", torch_cudagraphs.find_user_line(node))

    return call_beside(get_imported(PARTITIONERS), "fx_graph_cse", after=report_merged)


def _get_name(source: Any) -> str:
    name = source.name  # a method before 2.10
    return str(name() if callable(name) else name)


class GraphCounter:
    """Counts the graphs that are captured from now on, and their calls."""

    def __init__(self) -> None:
        self.graphs: list[GraphRun] = []
        """Without their time and calls, which are in `calls`."""
        self.calls: list[int] = []
        self.ran_in: set[int] = set()
        """Threads in which one was called; who reads it takes its own out."""
        # Invariant: weak: what was compiled goes when Dynamo drops it.
        self._by_callable = WeakByIdentity[Any, int]()
        self._undo = contextlib.ExitStack()
        self.uninstall = self._undo.close

    def install(self) -> None:
        """Begin; to be called when `OUTPUT_GRAPH` was imported."""
        owner = lookup(get_imported(OUTPUT_GRAPH), "OutputGraph")
        remover = call_beside(owner, "call_user_compiler", after=self._add_graph)
        if remover is not None:
            self._undo.callback(remover)
        self._undo.callback(torch_calls.watch_disabled_calls(None, self._count_call))

    def forget_calls(self) -> None:
        """Count from zero again."""
        self.calls = [min(calls, 0) for calls in self.calls]

    def _add_graph(self, compiled: Any, output: Any, graph: Any, *_: Any, **__: Any) -> None:
        number = len(self.graphs)
        self.graphs.append(GraphRun(0.0, Location("", 0), 0, (), NOT_COUNTED))
        self.calls.append(NOT_COUNTED)
        with contextlib.suppress(Exception):  # of another torch: it stays one that is not counted
            where = output.co_fields
            frame = Location(where["co_filename"], where["co_firstlineno"], where["co_name"])
            nodes = [node for node in graph.graph.nodes if node.op in _CALLS]
            named = (_find_opaque(graph, node) for node in nodes)
            opaque = tuple(dict.fromkeys(name for name in named if name is not None))
            self.graphs[number] = GraphRun(0.0, frame, len(nodes), opaque, NOT_COUNTED)
            # Raises where nothing can refer to it weakly.
            self._by_callable[_get_owner(compiled)] = number
            self.calls[number] = 0

    def _count_call(self, function: Any) -> None:
        number = self._by_callable.get(_get_owner(function))
        if number is not None:
            self.calls[number] += 1
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


# --- schemas of operators -------------------------------------------------------------------------

_SCALARS = {"number": "scalar", "Optional[number]": "scalar", "float": "float"}


def classify_argument(name: str, argument: int | str, numbers: Collection[int | str]) -> str | None:
    """Classify what an operator, or a method of tensors, takes for an argument of its call.

    Args:
        name: of the operator, such as "lerp" or "add_".
        argument: its position, that of the tensor whose method it is counted as 0, or its name.
        numbers: the arguments that are numbers as the call is written: no overload takes them for
            tensors.

    Returns:
        "operand" for a tensor, "scalar" for any number, "float" for one that is no symbol,
        "number" for others of Python; None where torch has no such operator, or no such argument.
    """
    get_schemas = lookup(get_imported("torch._C"), "_jit_get_schemas_for_operator")
    kind = None
    for schema in () if get_schemas is None else get_schemas(f"aten::{name}"):
        types = {
            key: str(parameter.type)
            for at, parameter in enumerate(schema.arguments)
            for key in (parameter.name, *(() if parameter.kwarg_only else (at,)))
        }
        taken = types.get(argument, "")
        if "Tensor" in taken and not any("Tensor" in types.get(number, "") for number in numbers):
            return "operand"
        if taken and kind != "scalar":
            kind = _SCALARS.get(taken, "number")
    return kind


def is_symbolic(name: str) -> bool:
    """True where torch computes a function of `math` on symbols, as it is written."""
    return hasattr(get_imported("torch"), f"_sym_{name}")
