"""What is known of a false guard only in the live process: whose value it is, and its value now."""

from __future__ import annotations

import enum
import functools
import re
import types
from collections.abc import Mapping, Sized
from typing import Any, cast

from compilediag_harness.base.object_graph import TABLES, type_name
from compilediag_harness.blame import source_locations, writers
from compilediag_harness.blame.guard_sources import (
    cell_variable,
    closure_of,
    holder_of,
    member_of,
    root_name,
)
from compilediag_harness.wire import GuardFacts, Location, clip

_PASSED_ON = re.compile(r"L\['args'\]\[(\d{1,4})\]")
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def facts_of(
    source: str,
    value: Any,
    scope: Mapping[str, Any],
    code: types.CodeType,
    instance_changed: bool | None,
) -> GuardFacts:
    """All facts of the guarded value at `source`."""
    holder = holder_of(source, scope)
    return GuardFacts(
        root=_root_kind(source, code),
        instance_changed=instance_changed,
        free_variable=cell_variable(source, scope),
        holder_kind=None if holder is None else _holder_kind(holder.value),
        holder_type=None if holder is None else type(holder.value).__name__,
        value_type=type_name(value),
        is_enum=isinstance(value, enum.Enum) or None,
        root_type=_module_type(scope["L"].get(root_name(source))),
        parameter=_parameter(source, scope["L"], code),
    )


def _module_type(root: Any) -> str | None:
    return type(root).__name__ if root is not None and _holder_kind(root) == "module" else None


def _parameter(source: str, f_locals: Mapping[str, Any], code: types.CodeType) -> str | None:
    """`L['args'][0]` of torch's `inner(*args, **kwargs)` by the signature of the `fn` it calls."""
    found = _PASSED_ON.match(source)
    if found is None or not source_locations.is_library(code.co_filename):
        return None
    called = f_locals.get("fn")
    is_module = _holder_kind(called) == "module"
    forward: Any = getattr(cast(Any, type(called)), "forward", None) if is_module else called
    inner = getattr(forward, "__code__", None)
    if not isinstance(inner, types.CodeType):
        return None
    named = inner.co_varnames[: inner.co_argcount][forward is not called :]
    index = int(found[1])
    return named[index] if index < len(named) else None


def member_type(text: str, container: Any) -> str | None:
    """The type of that attribute or key, when it is there now."""
    name = member_of(text)
    is_dict = isinstance(container, dict)
    members = cast(dict[str, Any], container if is_dict else getattr(container, "__dict__", {}))
    # A module keeps its tensors and submodules beside its attributes.
    for table in (members, *(members.get(key) for key in TABLES)):
        if isinstance(table, dict) and name in table:
            return type_name(cast(dict[Any, Any], table)[name])
    return None


def _root_kind(source: str, code: types.CodeType) -> str | None:
    name = root_name(source)
    if name is not None:
        return "free_variable" if name in code.co_freevars else "argument"
    return "global" if "G[" in source else None


def _holder_kind(holder: Any) -> str:
    names = {base.__name__ for base in type(holder).__mro__ if base.__module__.startswith("torch")}
    if "Module" in names:
        return "module"
    if "Optimizer" in names:
        return "optimizer"
    if isinstance(holder, tuple):
        return "namedtuple" if hasattr(cast(Any, holder), "_fields") else "tuple"
    for kind in (dict, list, set, frozenset):
        if isinstance(holder, kind):
            return kind.__name__
    if isinstance(
        holder, (types.FunctionType, types.MethodType, functools.partial, types.CellType)
    ):
        return "callable"
    if isinstance(holder, types.ModuleType):
        return "python_module"
    return "class" if isinstance(holder, type) else "object"


def writers_of(source: str, compiled: writers.CompiledCode) -> tuple[Location, ...]:
    """Functions that write the variable at `source`; see `writers.py` for what can be known."""
    scope = compiled.scope
    closure = closure_of(source, scope, compiled.code)
    if closure is not None:
        function, index = closure
        cells, inner = function.__closure__ or (), function.__code__
        return writers.writers_of_cell(cells[index], inner.co_freevars[index], inner)
    holder = holder_of(source, scope)
    if holder is None:
        return ()
    if holder.is_attribute and _holder_kind(holder.value) in ("module", "object", "optimizer"):
        return writers.writers_of_attribute(holder.value, holder.name, compiled)
    return ()


def closure_line(source: str, scope: Mapping[str, Any], code: types.CodeType) -> Location | None:
    """Where the function that closes over the guarded variable reads it first."""
    closure = closure_of(source, scope, code)
    if closure is None:
        return None
    inner = closure[0].__code__
    line = writers.first_read_line(inner, inner.co_freevars[closure[1]])
    return Location(inner.co_filename, line or inner.co_firstlineno, inner.co_name)


def enum_member(value: Any, object_id: int) -> str | None:
    """The member with this `id` of the enumeration that `value` is of, as `shown` writes it."""
    if not isinstance(value, enum.Enum):
        return None
    return next((_enum_text(each) for each in type(value) if id(each) == object_id), None)


def _enum_text(member: enum.Enum) -> str:
    return f"{type(member).__name__}.{member.name}"


def shown(value: Any, tensor_type: type) -> str:
    """A value as a person would compare it, bounded; user objects are named by type, their
    `__repr__` is never called."""
    if isinstance(value, tensor_type):
        return f"Tensor {list(value.shape)} {value.dtype}"
    if isinstance(value, enum.Enum):
        return _enum_text(value)
    if type(value) in _SCALARS:
        return clip(repr(value), 120)
    if type(value) is tuple and all(type(item) in _SCALARS for item in cast(Any, value)):
        return clip(repr(value), 120)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        return counted(cast(Sized, value))
    if isinstance(value, (type, types.FunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__module__ == "torch":  # dtypes, devices, sizes, layouts
        return clip(str(value), 120)
    return f"{type_name(value)} object"


def counted(value: Sized, size: int | None = None) -> str:
    """How much a container holds, or should: "1 key" of a dict, "3 items" of a list."""
    size, noun = len(value) if size is None else size, "key" if isinstance(value, dict) else "item"
    return f"{size} {noun}" if size == 1 else f"{size} {noun}s"
