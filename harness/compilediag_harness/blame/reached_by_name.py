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
from collections.abc import Iterable, Iterator
from typing import Any, cast

from compilediag_harness.base.object_graph import cached_by_code
from compilediag_harness.blame import source_locations
from compilediag_harness.wire import Location

_PACKAGE = re.compile(r".*[/\\\\](?:site|dist)-packages[/\\\\][^/\\\\]+")
_IMPLIED = frozenset({
    *("forward", "__call__", "__enter__", "__exit__", "__iter__", "__next__", "__getitem__"),
    *("__setitem__", "__len__", "__bool__", "__add__", "__iadd__", "__setattr__", "__getattr__"),
})  # fmt: skip
"""Methods that run without being named."""
_MAX_CALLS = 200


class Reach:
    """What names lead to at one moment: looked up once for all false guards of a recompile."""

    def __init__(self) -> None:
        self._reached: dict[str, frozenset[str]] = {}
        """By package."""

    def may_run(self, writer: Location) -> bool:
        """Whether names lead to the function; always for code that is not in an installed
        package."""
        package = _PACKAGE.match(writer.file)
        if package is None or source_locations.is_own(writer.file):
            return True
        if package[0] not in self._reached:
            self._reached[package[0]] = self._reached_in(package[0])
        return writer.function.rpartition(".")[2] in self._reached[package[0]]

    @functools.cached_property
    def modules(self) -> list[tuple[str, dict[str, Any]]]:
        """File and names of each module that is loaded."""
        return list(source_locations.loaded_modules())

    @functools.cached_property
    def own_modules(self) -> list[dict[str, Any]]:
        """The names of the program's own modules."""
        return [names for file, names in self.modules if source_locations.is_own(file)]

    @functools.cached_property
    def _first(self) -> frozenset[str]:
        """The names in the program's own code and in the calls in progress."""
        own = (value for names in self.own_modules for value in list(names.values()))
        return _IMPLIED.union(*map(_names, (*_codes_in_progress(), *_codes_of(own))))

    def _reached_in(self, package: str) -> frozenset[str]:
        modules = [names for file, names in self.modules if file.startswith(package)]
        index = _indices.get(package)
        if index is None or index.modules != len(modules):  # more of it may be loaded by now
            index = _indices[package] = _Index(modules)
        return self._first | index.reached(self._first.intersection(index.codes))


class _Index:
    """The functions of a package by name."""

    def __init__(self, modules: list[dict[str, Any]]) -> None:
        self.modules = len(modules)
        self.codes: dict[str, list[types.CodeType]] = {}
        # Most members of a module are those of other modules of its package. Another thread may add
        # one meanwhile.
        members = {id(value): value for names in modules for value in list(names.values())}
        for code in _codes_of(members.values()):
            self.codes.setdefault(code.co_name, []).append(code)
        self.reached = functools.lru_cache(maxsize=8)(self._reached)

    def _reached(self, first: frozenset[str]) -> frozenset[str]:
        """The names in these functions, and in those that have such a name."""
        found, waiting = set(first), set(first)
        while waiting:
            codes = (code for name in waiting for code in self.codes[name])
            new = set[str]().union(*map(_names_in, codes)) - found
            found |= new
            waiting = new & self.codes.keys()
        return frozenset(found)


_indices: dict[str, _Index] = {}
"""By package."""


def _codes_in_progress() -> Iterator[types.CodeType]:
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    for _ in range(_MAX_CALLS):
        if frame is None:
            return
        file = frame.f_code.co_filename
        if not source_locations.is_torch(file) and not source_locations.is_ours(file):
            yield frame.f_code
        frame = frame.f_back


def _codes_of(members: Iterable[object]) -> Iterator[types.CodeType]:
    """The functions of a module and the methods of its classes, properties included."""
    for member in members:
        # Not `isinstance`: it asks an object for its class, and torch has some that warn then.
        is_class = issubclass(type(member), type)
        held = list(vars(cast(type, member)).values()) if is_class else [member]
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


def _names_in(code: types.CodeType) -> frozenset[str]:
    """What a function reads or calls by name, functions inside it included; a function that it
    defines is a variable of it."""
    inner = (item for item in code.co_consts if isinstance(item, types.CodeType))
    own = (*code.co_names, *code.co_varnames, *code.co_cellvars)
    return frozenset(own).union(*map(_names, inner))


_names = cached_by_code(_names_in)
