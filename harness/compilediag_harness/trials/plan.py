"""The plan of a trial, read from its file: every field by its type, or nothing at all."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import types
import typing
from collections.abc import Collection, Generator
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.wire import Location, TrialApplied, TrialPlan


class Notes:
    """Notes of one process on the parts of the plan: applied, or why not. A part that nothing in
    the process came to is never noted."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._noted: dict[tuple[str, str | None], None] = {}

    def record_change(self, change: str, problem: str | None = None) -> None:
        """Record that a part was applied, or why it was not; the same is recorded once."""
        if (change, problem) in self._noted:
            return
        self._noted[change, problem] = None
        if self._session is not None:
            self._session.emit(TrialApplied(self._session.now(), change, problem))

    @contextlib.contextmanager
    def record_errors(self, change: str) -> Generator[None]:
        """Record what a block raises that applies a part of the plan: why that was not applied."""
        try:
            yield
        except Exception as error:
            self.record_change(change, f"{type(error).__name__}: {error}")

    def attach(self, session: Session) -> None:
        """Emit what was recorded so far, and from now on."""
        self._session = session
        for change, problem in self._noted:
            session.emit(TrialApplied(session.now(), change, problem))


VARIABLE = "COMPILEDIAG_TRIAL"
"""Path of the plan; absent where the run is no trial."""

MAX_BYTES = 64 << 20


def read_plan(path: str) -> TrialPlan:
    """Read the plan in a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no plan; the message says where.
    """
    with open(path, "rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"the plan is larger than {MAX_BYTES >> 20} MiB")
    try:
        document = json.loads(content)
    except RecursionError as error:
        raise ValueError("the plan is nested too deeply") from error
    return _decode(TrialPlan, document, "plan")


def _decode(kind: Any, value: Any, where: str) -> Any:
    """Decode a JSON value as one of the types that plans are made of.

    Raises:
        ValueError: it has another type, or a field too many or too few; the message says where.
    """
    if dataclasses.is_dataclass(kind):
        if type(value) is not dict:
            raise ValueError(f"{where} is no object")
        given: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        hints = _hints(kind)
        if unknown := sorted(given.keys() - hints.keys()):
            raise ValueError(f"{where} has a field {unknown[0]!r}, which is not known")
        fields = {key: _decode(hints[key], field, f"{where}.{key}") for key, field in given.items()}
        make: Any = kind
        try:
            return make(**fields)
        except TypeError as error:  # a field without a default is missing
            raise ValueError(f"{where}: {error}") from error
    if typing.get_origin(kind) is tuple:
        if type(value) is not list:
            raise ValueError(f"{where} is no list")
        elements: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        # `tuple[X, ...]` is the only form that plans have.
        inner = typing.get_args(kind)[0]
        return tuple(_decode(inner, element, f"{where}[{n}]") for n, element in enumerate(elements))
    if typing.get_origin(kind) is types.UnionType:
        for choice in typing.get_args(kind):
            with contextlib.suppress(ValueError):
                return _decode(choice, value, where)
    elif type(value) is kind:
        return value
    raise ValueError(f"{where} is {type(value).__name__}, not {getattr(kind, '__name__', kind)}")


_hints = functools.cache(typing.get_type_hints)
MAX_WRAPPERS = 16


def find_module_or_function(torch: Any, function: Any) -> Any:
    """Find what a compiled callable is: a module of a library is called by a function of torch's,
    one code for all of them."""
    inside = getattr(function, "__wrapped__", None)
    return inside if isinstance(inside, torch.nn.Module) else function


_CALLS_FORWARD = frozenset(("__call__", "_call_impl", "_wrapped_call_impl", "forward"))
"""Methods of a module that are the call of it; `Module.compile` compiles the second."""


def find_module_class(torch: Any, function: Any) -> type | None:
    """Find the class of the module that is called: by itself, or as one of its methods that are its
    call; None for any other function or method."""
    owner: Any = getattr(function, "__self__", function)
    is_call = owner is function or getattr(function, "__name__", "") in _CALLS_FORWARD
    if not is_call or not isinstance(owner, torch.nn.Module):
        return None
    kind: type = type(owner)  # pyright: ignore[reportUnknownVariableType]
    return kind


def list_wrapped_functions(torch: Any, function: Any) -> list[Any]:
    """List a function and those that it wraps, as `functools.wraps` leaves them: one wrapper may
    stand around the functions of many classes. Of the call of a module its `forward`. The function
    is first, the innermost last; never empty, at most `MAX_WRAPPERS`."""
    function = getattr(find_module_class(torch, function), "forward", function)
    functions = [function]
    while len(functions) < MAX_WRAPPERS:
        inner = getattr(functions[-1], "__dict__", {}).get("__wrapped__")
        if inner is None or not hasattr(inner, "__code__"):
            break
        functions.append(inner)
    return functions


def list_places(functions: list[Any]) -> list[tuple[Location, Any]]:
    """List (place, code) of each function; the code is None for a callable without one."""
    return [(get_definition(func), getattr(func, "__code__", None)) for func in functions]


def is_place_of(wanted: Location, place: Location, changed_files: Collection[str]) -> bool:
    """True if a function of a plan is the one at a place. In `changed_files` it may stand at
    another line than in the plan."""
    if wanted.file != place.file:
        return False
    same_name = wanted.function.rpartition(".")[2] == place.function.rpartition(".")[2]
    return wanted.line == place.line or (place.file in changed_files and same_name)
