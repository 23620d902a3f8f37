"""Which methods of packages the program may run: those whose names lead from its own code there.

A library's base classes have methods that write an attribute and that this program never calls
(`_load_from_state_dict`, `offload`). A name is reached where the program's own code or a call in
progress has it, or a function of the same package whose name is reached. That is more than what
runs, never less, but for what another package calls by a name of its own.
"""

from __future__ import annotations

import functools
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, cast

from compilediag_harness.source import source_locations
from compilediag_harness.wire import Location

_PACKAGE = re.compile(r".*[/\\\\](?:site|dist)-packages[/\\\\][^/\\\\]+")
_IMPLIED = frozenset({
    *("forward", "__call__", "__enter__", "__exit__", "__iter__", "__next__", "__getitem__"),
    *("__setitem__", "__len__", "__bool__", "__add__", "__iadd__", "__setattr__", "__getattr__"),
})  # fmt: skip
"""Methods that run without being named."""
_MAX_CALLS = 200


def may_run(writer: Location) -> bool:
    """Whether names lead to the function; always for code that is not in an installed package."""
    package = _PACKAGE.match(writer.file)
    if package is None or source_locations.is_own(writer.file):
        return True
    return writer.function.rpartition(".")[2] in _reached(package[0])


def _reached(package: str) -> set[str]:
    found = set(_IMPLIED)
    for code in (*_codes_in_progress(), *_own_codes()):
        found |= _names(code)
    called = _functions_of(package, len(sys.modules))
    waiting = found & called.keys()
    while waiting:
        new = set[str]().union(*(called[name] for name in waiting)) - found
        found |= new
        waiting = new & called.keys()
    return found


def _codes_in_progress() -> Iterator[types.CodeType]:
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    for _ in range(_MAX_CALLS):
        if frame is None:
            return
        file = frame.f_code.co_filename
        if not source_locations.is_torch(file) and not source_locations.is_ours(file):
            yield frame.f_code
        frame = frame.f_back


def _own_codes() -> Iterator[types.CodeType]:
    for file, names in source_locations.loaded_modules():
        if source_locations.is_own(file):
            yield from _codes_of(names)


@functools.lru_cache(maxsize=16)
def _functions_of(package: str, modules: int) -> dict[str, frozenset[str]]:
    """The functions of a package by name, with the names in them; `modules`: how many are loaded,
    as more of the package may be later."""
    found: dict[str, frozenset[str]] = {}
    for file, names in source_locations.loaded_modules():
        if file.startswith(package):
            for code in _codes_of(names):
                found[code.co_name] = found.get(code.co_name, frozenset()) | _names(code)
    return found


def _codes_of(members: dict[str, Any]) -> Iterator[types.CodeType]:
    """The functions of a module and the methods of its classes, properties included."""
    for member in list(members.values()):  # another thread may add one
        held = list(vars(member).values()) if isinstance(member, type) else [member]
        for value in held:
            parts = (value.fget, value.fset) if type(value) is property else (value,)
            for part in parts:
                wrapped = type(part) in (staticmethod, classmethod)
                function: Any = cast("Any", part).__func__ if wrapped else part
                for _ in range(8):
                    if type(function) is not types.FunctionType:
                        break
                    yield function.__code__
                    function = function.__dict__.get("__wrapped__")


@functools.lru_cache(maxsize=65536)
def _names(code: types.CodeType) -> frozenset[str]:
    """What a function reads or calls by name, functions inside it included; a function that it
    defines is a variable of it."""
    inner = (item for item in code.co_consts if isinstance(item, types.CodeType))
    own = (*code.co_names, *code.co_varnames, *code.co_cellvars)
    return frozenset(own).union(*map(_names, inner))
