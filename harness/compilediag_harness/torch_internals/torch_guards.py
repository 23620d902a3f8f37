"""torch's guards: recompile reasons, cache entries with their leaf guards, tensor properties."""

from __future__ import annotations

import functools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from compilediag_harness.base.hidden_frame import hide_own_frame
from compilediag_harness.torch_internals.torch_api import get_torch_function_disabler
from compilediag_harness.torch_internals.torch_compiles import get_compile_id
from compilediag_harness.torch_internals.torch_names import (
    CONVERT_FRAME,
    GUARDS,
    Remover,
    get_imported,
    lookup,
    replace_attribute,
)

PYTHON_LEAF = "LAMBDA_GUARD"
"""torch's leaf that calls a Python function; the others are C++ throughout."""


Value = TypeVar("Value")
_LENGTH = re.compile(r"len\(.*\) == (\d+)|not .*", re.DOTALL)
_SIZED = ("SEQUENCE_LENGTH", "DICT_KEYS_MATCH", "DICT_KEYS", "DICT_LENGTH")
"""Kinds of guards on the length of a container."""


def watch_recompile_reasons(
    callback: Callable[[list[Any], Any, list[str]], None],
) -> Remover | None:
    """Call `callback(cache_entries, frame, reasons)` each time torch determines why no cache
    entry of a frame fits. `frame` has `f_locals` and `f_code`. Calls made with `skip_logging` are
    repeats of the same event (2.9 to 2.11) or made for a stance, and are left out."""
    # It imports the function: replaced there, not in guards.
    convert_frame = get_imported(CONVERT_FRAME)
    original = getattr(convert_frame, "get_and_maybe_log_recompilation_reasons", None)
    if original is None:
        return None

    @functools.wraps(original)
    def get_reasons(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        # 2.7 has neither a backend nor `skip_logging`: (entries, frame) alone.
        repeat = bool(kwargs.get("skip_logging")) or (len(args) > 1 and bool(args[1]))
        reasons: list[str] = []
        try:
            with hide_own_frame:
                reasons = original(entries, frame, *args, **kwargs)
            return reasons
        # Also where torch raises: under `error_on_recompile` it does so from here, with no reasons.
        finally:
            if not repeat:
                callback(list_entries(entries), frame, list(reasons or ()))

    return replace_attribute(convert_frame, "get_and_maybe_log_recompilation_reasons", get_reasons)


def list_entries(first: Any) -> list[Any]:
    """List cache entries: torch <= 2.12 passes the head of a linked list, later versions a list."""
    if isinstance(first, (list, tuple)):
        return list(first)  # pyright: ignore[reportUnknownArgumentType]
    entries: list[Any] = []
    while first is not None:
        entries.append(first)
        first = first.next
    return entries


def watch_guard_builds(
    callback: Callable[[Any, str, dict[str, Any], Iterable[Any], Any], None],
) -> Remover | None:
    """Call `callback(code, compile_id, local_scope, guards, manager)` after each compile built its
    guards. `local_scope` is the frame's locals at compile time, `guards` torch's Guard objects,
    `manager` what evaluates them."""
    # torch has no callback for this. When `__init__` returns, torch has seen that the guards hold
    # (but for exports), and has not made the cache entry yet.
    manager = lookup(get_imported(GUARDS), "CheckFunctionManager")
    original = getattr(manager, "__init__", None)
    if manager is None or original is None:
        return None

    @functools.wraps(original)
    def build(self: Any, f_code: Any, output_graph: Any, *args: Any, **kwargs: Any) -> None:
        # Invariant: these hold the user's arguments: of them only weak references may be stored.
        scope = dict(getattr(output_graph, "local_scope", None) or {})
        guards = list(getattr(output_graph, "guards", None) or ())
        with hide_own_frame:
            original(self, f_code, output_graph, *args, **kwargs)
        manager = getattr(self, "guard_manager", None)
        callback(f_code, get_compile_id(), scope, guards, manager)

    return replace_attribute(manager, "__init__", build)


def get_cache_entries(code: Any) -> list[Any]:
    """Get the live cache entries of a code object, most recently used first."""
    # The C function itself: its namesake in eval_frame.py would need Dynamo to be imported.
    get = getattr(get_imported("torch._C._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return [] if get is None else list(get(code))


class Leaf(NamedTuple):
    """One leaf guard: `check` is callable with the value that `source` evaluates to."""

    source: str
    kind: str
    check: Any
    condition: str = ""
    """Text of a shape condition, which has no `check`."""

    @property
    def target(self) -> str:
        """Name of what it checks: its source, its type alone, or the kind of a global mode or shape
        condition."""
        if self.kind == "TYPE_MATCH":
            return self.type_target
        return self.kind if self.source in ("L", "G", "") else self.source

    @property
    def type_target(self) -> str:
        """Name of the type of what it checks."""
        return f"type({self.source})"

    @property
    def parts(self) -> list[str]:
        """Texts of the guard, with the trailing comments. torch makes them anew each time."""
        return [self.condition] if self.check is None else self.check.verbose_code_parts()


class DictSize:
    """The size that a dict's manager requires itself, without a leaf, in its own words."""

    def __init__(self, source: str, size: int) -> None:
        self._source, self._size = source, size

    def __call__(self, value: Any) -> bool:
        return len(value) == self._size

    def verbose_code_parts(self) -> list[str]:
        return [f"len({self._source}) != {self._size}"]


def get_required_length(guard: Any) -> int | None:
    """Get the length that a Guard object requires of a container, once its guards are built; None
    where it requires none."""
    texts = getattr(guard, "code_list", None) if get_guard_kind(guard) in _SIZED else None
    for text in texts or ():
        match = _LENGTH.fullmatch(text)
        if match is not None:
            return int(match[1] or 0)
    return None


def _iterate_managers(root: Any) -> Iterator[tuple[Any, bool]]:
    """Iterate over torch's managers of guards in their order, with whether it is one of a dict."""
    # `RootGuardManager` is C++ with Python bindings: leaf guards, then managers of what is reached
    # from the value by an attribute, an index or a key.
    stack = [root]
    while stack:
        manager = stack.pop()
        if manager is None:
            continue
        of_dict = hasattr(manager, "get_key_value_managers")
        yield manager, of_dict
        for of_key, of_value in manager.get_key_value_managers().values() if of_dict else ():
            stack += [of_value, of_key]
        stack.extend(reversed(manager.get_child_managers()))


def _list_epilogue(root: Any) -> Iterable[Any]:
    """List the guards that run last: shape conditions, as one lambda over all sizes."""
    return getattr(root, "get_epilogue_lambda_guards", tuple)()


def iterate_leaves(entry: Any, sizes: Mapping[str, int]) -> Iterator[Leaf]:
    """Iterate over every callable leaf guard of a cache entry, in guard order, and its symbolic
    shape conditions last (kind "SHAPE", `check` None, one leaf per condition). `sizes`: lengths of
    the guarded containers by their source."""
    # Of an entry that torch gave up nothing is yielded: callers take that as not known.
    root = getattr(entry.guard_manager, "root", None)
    # Guards over several values cannot be called from Python. 2.7 has no common base of them.
    native = get_imported("torch._C._dynamo.guards")
    names = ("RelationalGuard", "NO_TENSOR_ALIASING", "OBJECT_ALIASING", "STORAGE_OVERLAPPING")
    relational = tuple(t for name in names if isinstance(t := getattr(native, name, None), type))
    for manager, of_dict in _iterate_managers(root):
        for leaf in manager.get_leaf_guards():
            if not isinstance(leaf, relational):
                yield Leaf(manager.get_source(), type(leaf).__name__, leaf)
        if of_dict and sizes and (source := manager.get_source()) in sizes:
            yield Leaf(source, "DICT_LENGTH", DictSize(source, sizes[source]))
    for condition in list_size_conditions(entry.guard_manager):
        yield Leaf("", "SHAPE", None, condition)


def iterate_tensor_guards(manager: Any) -> Iterator[tuple[str, str]]:
    """Iterate over the guards on tensors of a compile: the source, and the guard as printed."""
    for managed, _ in _iterate_managers(getattr(manager, "root", None)):
        for leaf in managed.get_leaf_guards():
            if type(leaf).__name__ == "TENSOR_MATCH":
                yield managed.get_source(), leaf.verbose_code_parts()[0]


def list_size_conditions(manager: Any) -> list[str]:
    """List the conditions on symbolic sizes of a compile, with torch's comments."""
    leaves = _list_epilogue(getattr(manager, "root", None))
    return [text for leaf in leaves for text in leaf.verbose_code_parts()]


def build_scope(entry: Any, f_locals: dict[str, Any]) -> dict[str, Any]:
    """Build the scope that a guard's source is evaluated in: L, G and torch's closure helpers."""
    manager = entry.guard_manager
    scope = dict(getattr(manager, "closure_vars", None) or {})
    scope["L"] = f_locals
    global_scope: dict[str, Any] = getattr(manager, "global_scope", None) or {}
    scope["G"] = global_scope.get("G", {})
    return scope


def get_guard_kind(guard: Any) -> str:
    """Get the kind of a Guard object, such as "TENSOR_MATCH"."""
    if hasattr(guard, "create_fn_name"):
        return str(guard.create_fn_name())
    return str(getattr(guard.inner_create_fn(), "__name__", ""))  # 2.7


_MEMBER_SOURCES = {"HASATTR": ".{}", "NOT_PRESENT_IN_GENERIC_DICT": ".__dict__['{}']"}


def get_guarded_source(guard: Any) -> str:
    """Get the source of what a Guard object checks: of the member where it checks a presence."""
    source, member = str(guard.name), _MEMBER_SOURCES.get(get_guard_kind(guard))
    name = getattr(getattr(guard, "create_fn", None), "keywords", {}).get("attr")
    if not source or member is None or not isinstance(name, str) or not name.isidentifier():
        return source
    return source + member.format(name)


def read_dispatch_keys(tensor: Any) -> str | None:
    """Read the dispatch key set of a tensor as guards print it: what the thread includes is in it,
    what it excludes is not (LocalState::apply in torch/csrc/dynamo/guards.cpp). None if unknown."""
    native = get_imported("torch._C")
    keys = getattr(native, "_dispatch_keys", None)
    included = getattr(native, "_dispatch_tls_local_include_set", None)
    excluded = getattr(native, "_dispatch_tls_local_exclude_set", None)
    if keys is None or included is None or excluded is None:
        return None
    return str((keys(tensor) | included()) - excluded())


def read_global_modes() -> dict[str, Any]:
    """Read the modes that a GLOBAL_STATE guard compares, by its names, and inference mode."""
    torch = get_imported("torch")
    readers = {
        "grad_mode": "is_grad_enabled",
        "deterministic_algorithms": "are_deterministic_algorithms_enabled",
        "default_dtype": "get_default_dtype",
        "autocast_state": "is_autocast_enabled",
        "inference_mode": "is_inference_mode_enabled",
    }
    return {mode: read() for mode, name in readers.items() if (read := getattr(torch, name, None))}


# What follows is read below every `__torch_function__`: a subclass or a mode of the program's would
# run its own code for it, and Dynamo guards on a mode.


def is_on_host(tensor: Any) -> bool | None:
    """True if a tensor is on the CPU; None if not known."""
    native = get_imported("torch._C")
    keys, cpu = getattr(native, "_dispatch_keys", None), lookup(native, "DispatchKey.CPU")
    return None if keys is None or cpu is None else bool(keys(tensor).has(cpu))


def _read_directly(read: Callable[[Any], Value], tensor: Any) -> Value | None:
    """Call `read` below every `__torch_function__`; None for a tensor without memory of its own."""
    try:
        with get_torch_function_disabler()():
            return read(tensor)
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        return None


def get_storage_id(tensor: Any) -> int | None:
    """Get the identity of a tensor's memory, the same for its views; None where it has none."""
    # The address of the C++ storage, which another one may get later. Not `data_ptr()`: that is 0
    # of every storage without elements.
    return _read_directly(lambda below: int(below.untyped_storage()._cdata), tensor)


def is_tensor_type(kind: Any) -> bool:
    """True if a class is one of tensors."""
    tensor = getattr(get_imported("torch"), "Tensor", None)
    return tensor is not None and issubclass(kind, tensor)


def read_tensor_metadata(tensor: Any) -> tuple[Any, ...]:
    """Read (requires_grad, dtype, shape, device, strides), the first alone of a subclass of
    tensors, which may run its code for the others. For use where no `__torch_function__` runs."""
    torch = get_imported("torch")
    if torch is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return (tensor.requires_grad,)
    known = (tensor.requires_grad, tensor.dtype, tensor.shape, tensor.device)
    return (*known, tensor.stride()) if tensor.layout is torch.strided else known


def read_layout(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Read the shape, strides and offset of a tensor; None of what is none, or has no strides."""
    return _read_directly(lambda t: (tuple(t.shape), tuple(t.stride()), t.storage_offset()), tensor)


class TensorMemory(NamedTuple):
    """The memory of a tensor: its storage, sizes in bytes, and shape."""

    storage: int
    """As `get_storage_id` gives it."""
    storage_bytes: int
    element_bytes: int
    elements: int
    shape: tuple[int, ...]
    fresh: bool
    """Nothing has been written into it since it was made."""


def read_tensor_memory(tensor: Any) -> TensorMemory | None:
    """Read a tensor's memory; None for one without memory of its own. None of its data is read."""

    def read_memory(tensor: Any) -> TensorMemory:
        storage = tensor.untyped_storage()
        return TensorMemory(
            storage=int(storage._cdata),
            storage_bytes=int(storage.nbytes()),
            element_bytes=int(tensor.element_size()),
            elements=int(tensor.numel()),
            shape=tuple(int(size) for size in tensor.shape),
            # The version counter rises with each write in place; inference tensors have none.
            fresh=not tensor.is_inference() and tensor._version == 0,
        )

    return _read_directly(read_memory, tensor)


def time_guards(manager: Any, scope: Mapping[str, Any], most: int, budget_ns: int) -> list[float]:
    """Time some evaluations of guards that hold, in microseconds each, with the locals they were
    built with: `most`, or three where these took longer than the budget. Empty where they cannot be
    evaluated, or do not hold."""
    # torch itself evaluates them as often here: to see that they hold, and for its own figure.
    check = getattr(getattr(manager, "root", None), "check", None)
    if check is None:
        return []
    taken: list[float] = []
    began = time.perf_counter_ns()
    while len(taken) < most:
        before = time.perf_counter_ns()
        holds = check(scope)
        after = time.perf_counter_ns()
        if not holds:
            return []
        taken.append((after - before) / 1000)
        if len(taken) >= 3 and after - began > budget_ns:
            break
    return taken


def count_evaluated(manager: Any, shown: int) -> tuple[Counter[str], list[str]] | None:
    """Count what torch evaluates for one compile, by its names of leaf guards: fewer than its Guard
    objects, some of which need nothing to be evaluated. With the first `shown` of those that call a
    Python function each time, as torch writes them. None where they cannot be read."""
    root = getattr(manager, "root", None)
    if not hasattr(root, "get_leaf_guards"):
        return None
    kinds, texts = Counter[str](), list[str]()
    leaves = (leaf for manager, _ in _iterate_managers(root) for leaf in manager.get_leaf_guards())
    for leaf in chain(_list_epilogue(root), leaves):
        kind = type(leaf).__name__
        kinds[kind] += 1
        if kind == PYTHON_LEAF and len(texts) < shown:
            texts += leaf.verbose_code_parts()[:1]
    return kinds, texts
