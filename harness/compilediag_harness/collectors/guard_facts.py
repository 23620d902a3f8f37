"""Facts about guards that only the live process knows: from when they were built (user lines, root
objects, lengths) and of the values that they are about now.

Stored weakly: a code object, a module or an argument that dies takes its baseline with it.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import re
import types
import weakref
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from compilediag_harness.base.object_graph import TABLES, WeakByIdentity, format_type_name
from compilediag_harness.blame import source_locations, writers
from compilediag_harness.blame.guard_sources import (
    evaluate_source,
    find_cell_variable,
    find_closure,
    find_holder,
    parse_member,
    parse_root_name,
)
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import GuardFacts, Location, clip

if TYPE_CHECKING:
    from compilediag_harness.blame.write_tracing import WriteTracer

_LinesByGuard = dict[tuple[str, str], Location]


@dataclass(slots=True)
class FactsAtCompile:
    """One compile of one code object; nothing but its `functions` where it was not seen."""

    functions: set[tuple[str, str]]
    """(file, name) of the functions whose code went into it, as far as guards are of their lines:
    its own, and those that the user's lines are in."""
    roots: dict[str, tuple[weakref.ref[Any], type]] = field(
        default_factory=dict[str, tuple["weakref.ref[Any]", type]]
    )
    """Locals at compile time that can be referenced weakly, tensors left out, and their types."""
    inference_mode: bool | None = None
    lines: _LinesByGuard = field(default_factory=_LinesByGuard)
    """(source, kind of guard) to the user's line; kind "" is any guard of the source."""
    own_lines: _LinesByGuard = field(default_factory=_LinesByGuard)
    """By the same, the innermost line of the program's own, where that is another one."""
    readers: dict[str, dict[Location, None]] = field(
        default_factory=dict[str, dict[Location, None]]
    )
    """By source, the innermost lines that read it, those of torch among them."""
    lengths: dict[str, int] = field(default_factory=dict[str, int])
    """Of guarded containers, by their source."""
    keys: dict[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    """Of an optimizer's parameter groups, by their source."""

    def add_guard(self, guard: Any, known: dict[Location, Location]) -> None:
        """Notes the lines of one guard, and the length that it requires. `known`: the lines noted
        so far, for a line has many guards."""
        source, kind = str(guard.name), torch_guards.get_guard_kind(guard)
        stack = list(guard.user_stack or ())
        location = source_locations.find_innermost_user_line(stack)
        if location is not None:
            innermost = Location(stack[-1].filename, stack[-1].lineno or 0, stack[-1].name)
            self.readers.setdefault(source, {})[known.setdefault(innermost, innermost)] = None
            self.functions.add((location.file, location.function.split(".")[-1]))
            _add_line(self.lines, source, kind, known.setdefault(location, location))
            own = source_locations.find_innermost_own_line(stack)
            if own is not None and own.file != location.file:
                _add_line(self.own_lines, source, kind, known.setdefault(own, own))
        length = torch_guards.get_required_length(guard)
        if length is not None:
            self.lengths[source] = length

    def find_line(self, leaf: torch_guards.Leaf, *, own: bool = False) -> Location | None:
        """The user's line of a guard, or of another one of its source; or the program's own."""
        lines = self.own_lines if own else self.lines
        return lines.get((leaf.source, leaf.kind)) or lines.get((leaf.source, ""))

    def has_instance_changed(self, name: str | None, value: Any) -> bool | None:
        """True if local `name` held another object of the same type then; None: not known."""
        reference, kind = self.roots.get(name or "", (None, None))
        return None if reference is None or kind is not type(value) else reference() is not value


def _add_line(lines: _LinesByGuard, source: str, kind: str, location: Location) -> None:
    lines.setdefault((source, kind), location)
    lines.setdefault((source, ""), location)


def _make_unseen_facts(code: types.CodeType) -> FactsAtCompile:
    return FactsAtCompile({(code.co_filename, code.co_name)})


class Baselines:
    """The `FactsAtCompile` of this process, by code object and compile id; and the write tracer
    that watches the values they are about, if there is one."""

    def __init__(self, tensor_type: type, write_tracer: WriteTracer | None) -> None:
        self.tensor_type, self.write_tracer = tensor_type, write_tracer
        self._by_code = WeakByIdentity[types.CodeType, dict[str, FactsAtCompile]]()
        self._fresh: list[weakref.ref[types.CodeType]] = []
        """Code objects compiled since `take_fresh`."""

    def remember(
        self, code: types.CodeType, compile_id: str, scope: dict[str, Any], guards: Iterable[Any]
    ) -> None:
        known_facts = self._by_code.setdefault(code, {})
        known_facts.pop(compile_id, None)  # after a reset, ids begin again: the newest is the last
        baseline = known_facts[compile_id] = _make_unseen_facts(code)
        baseline.inference_mode = torch_guards.read_global_modes().get("inference_mode")
        for name, value in scope.items():
            if not isinstance(value, self.tensor_type):
                with contextlib.suppress(TypeError):  # integers, tuples... cannot be referenced
                    baseline.roots[name] = weakref.ref(value), type(value)
        known: dict[Location, Location] = {}
        for guard in guards:
            with contextlib.suppress(Exception):
                baseline.add_guard(guard, known)
        for source in filter(_GROUP.search, baseline.lengths):
            baseline.keys[source] = list_keys(evaluate_source(source, {"L": scope}))
        # Weak: generated code may be gone before the step ends.
        self._fresh.append(weakref.ref(code))

    def get_facts(self, code: types.CodeType, compile_id: str) -> FactsAtCompile:
        return (self._by_code.get(code) or {}).get(compile_id) or _make_unseen_facts(code)

    def get_newest(self, code: types.CodeType) -> FactsAtCompile | None:
        known = self._by_code.get(code)
        return list(known.values())[-1] if known else None

    def take_fresh(self) -> list[types.CodeType]:
        """Code objects compiled since the last call, each once."""
        taken = [code for ref in self._fresh if (code := ref()) is not None]
        self._fresh.clear()
        return list(dict.fromkeys(taken))


_GROUP = re.compile(r"\.param_groups\[\d{1,4}\]$")
_PASSED_ON = re.compile(r"L\['args'\]\[(\d{1,4})\]")
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def collect(
    leaf: torch_guards.Leaf,
    value: Any,
    scope: Mapping[str, Any],
    code: types.CodeType,
    baseline: FactsAtCompile,
) -> GuardFacts:
    """Collect all facts of the value that a false guard is about."""
    source, now = leaf.source, torch_guards.read_global_modes().get("inference_mode")
    holder, name = find_holder(source, scope), parse_root_name(source)
    root = scope["L"].get(name)
    if name is None:
        root_kind = "global" if "G[" in source else None
    else:
        root_kind = "free_variable" if name in code.co_freevars else "argument"
    checks_member = leaf.kind in ("NO_HASATTR", "DICT_CONTAINS")
    checks_mode = leaf.kind == "TENSOR_MATCH" and baseline.inference_mode is not None
    return GuardFacts(
        root=root_kind,
        instance_changed=baseline.has_instance_changed(name, root),
        free_variable=find_cell_variable(source, scope),
        holder_kind=None if holder is None else _classify_holder(holder.value),
        holder_type=None if holder is None else type(holder.value).__name__,
        value_type=format_type_name(value),
        is_enum=isinstance(value, enum.Enum) or None,
        member_type=_find_member_type(leaf.parts[0], value) if checks_member else None,
        inference_mode=now if checks_mode and now != baseline.inference_mode else None,
        root_type=type(root).__name__ if _classify_holder(root) == "module" else None,
        parameter=_find_parameter(source, scope["L"], code),
    )


def _find_parameter(source: str, f_locals: Mapping[str, Any], code: types.CodeType) -> str | None:
    """`L['args'][0]` of torch's `inner(*args, **kwargs)` by the signature of the `fn` it calls."""
    match = _PASSED_ON.match(source)
    if match is None or not source_locations.is_library(code.co_filename):
        return None
    called = f_locals.get("fn")
    is_module = _classify_holder(called) == "module"
    forward: Any = getattr(cast(Any, type(called)), "forward", None) if is_module else called
    inner = getattr(forward, "__code__", None)
    if not isinstance(inner, types.CodeType):
        return None
    named = inner.co_varnames[: inner.co_argcount][forward is not called :]
    index = int(match[1])
    return named[index] if index < len(named) else None


def _find_member_type(text: str, container: Any) -> str | None:
    """The type of the attribute or key that a guard is about, when it is there now."""
    name = parse_member(text)
    is_dict = isinstance(container, dict)
    members = cast(dict[str, Any], container if is_dict else getattr(container, "__dict__", {}))
    # A module keeps its tensors and submodules beside its attributes.
    for table in (members, *(members.get(key) for key in TABLES)):
        if isinstance(table, dict) and name in table:
            return format_type_name(cast(dict[Any, Any], table)[name])
    return None


def _classify_holder(value: Any) -> str:
    names = {base.__name__ for base in type(value).__mro__ if base.__module__.startswith("torch")}
    if "Module" in names:
        return "module"
    if "Optimizer" in names:
        return "optimizer"
    if isinstance(value, tuple):
        return "namedtuple" if hasattr(cast(Any, value), "_fields") else "tuple"
    for kind in (dict, list, set, frozenset):
        if isinstance(value, kind):
            return kind.__name__
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial, types.CellType)):
        return "callable"
    if isinstance(value, types.ModuleType):
        return "python_module"
    return "class" if isinstance(value, type) else "object"


def find_writers(source: str, compiled: writers.CompiledCode) -> tuple[Location, ...]:
    """Find functions that write the variable at `source`; see `writers.py` for what is known."""
    scope = compiled.scope
    holder = find_holder(source, scope)
    kinds = ("module", "object", "optimizer")
    # Also of a module that a closure holds: what torch wraps around one has it in a cell.
    if holder is not None and holder.is_attribute and _classify_holder(holder.value) in kinds:
        return writers.find_attribute_writers(holder.value, holder.name, compiled)
    closure = find_closure(source, scope, compiled.code)
    if closure is None:
        return ()
    function, index = closure
    return writers.find_cell_writers((function.__closure__ or ())[index], function.__code__)


def find_closure_line(
    source: str, scope: Mapping[str, Any], code: types.CodeType
) -> Location | None:
    """Find where the function that closes over the guarded variable reads it first; None where the
    variable is no function's closure variable."""
    closure = find_closure(source, scope, code)
    if closure is None:
        return None
    inner = closure[0].__code__
    line = writers.find_first_read(inner, inner.co_freevars[closure[1]])
    return Location(inner.co_filename, line or inner.co_firstlineno, inner.co_name)


def find_enum_member(value: Any, object_id: int) -> str | None:
    """Find the member with this `id` of `value`'s enumeration, as `format_value` writes it."""
    members = type(value) if isinstance(value, enum.Enum) else ()
    return next((f"{type(value).__name__}.{m.name}" for m in members if id(m) == object_id), None)


def format_value(value: Any, tensor_type: type) -> str:
    """Format a value as a person would compare it, clipped; user objects are named by type, their
    `__repr__` is never called."""
    if isinstance(value, tensor_type):
        return f"Tensor {list(value.shape)} {value.dtype}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value) in _SCALARS:
        return clip(repr(value), 120)
    if type(value) is tuple and all(type(member) in _SCALARS for member in cast(Any, value)):
        return clip(repr(value), 120)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        return format_size(cast(Sized, value))
    if isinstance(value, (type, types.FunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__module__ == "torch":  # dtypes, devices, sizes, layouts
        return clip(str(value), 120)
    return f"{format_type_name(value)} object"


def list_keys(value: Any) -> frozenset[str]:
    """List the names among the keys of a plain dict."""
    held = cast("dict[Any, Any]", value) if type(value) is dict else ()
    return frozenset(key for key in held if type(key) is str)


def format_size(value: Sized, size: int | None = None) -> str:
    """Format how much a container holds, or should: "1 key" of a dict, "3 items" of a list."""
    size, noun = len(value) if size is None else size, "key" if isinstance(value, dict) else "item"
    return f"{size} {noun}" if size == 1 else f"{size} {noun}s"
