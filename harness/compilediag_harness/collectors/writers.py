"""Which functions of the running program write a guarded variable.

Exact for a closure cell that is rebound (`nonlocal`): the functions that share the cell and store
to it. For a container in a cell, and for attributes and buffers of a module, the byte code of the
functions that can reach it is read; a write that reaches the object by another road is not seen.
"""

from __future__ import annotations

import dis
import functools
import gc
import types
from collections.abc import Iterable, Iterator
from typing import Any

from compilediag_harness.wire import Location

_MUTATORS = frozenset({
    *("append", "extend", "insert", "pop", "popitem", "clear", "update", "setdefault", "remove"),
    *("add", "discard", "sort", "reverse", "appendleft", "extendleft", "popleft"),
    *("copy_", "fill_", "add_", "mul_"),
})
_MOST_WRITERS = 8
_known_cells: dict[tuple[int, types.CodeType], tuple[Location, ...]] = {}
"""Answers by (id of the cell, code that closes over it): finding them walks the whole heap. An id
that is used again belongs to a cell of the same code, which has the same writers."""


def writers_of_cell(cell: Any, variable: str, code: types.CodeType) -> tuple[Location, ...]:
    """Functions that share `cell` and rebind it or mutate what it holds; those that store come
    first. `code` is the function whose closure the guard reads."""
    key = (id(cell), code)
    if key not in _known_cells:
        _known_cells[key] = _find_writers(cell, variable)
    return _known_cells[key]


def _find_writers(cell: Any, variable: str) -> tuple[Location, ...]:
    stores: list[Location] = []
    mutates: list[Location] = []
    for function in _functions_sharing(cell):
        name = _name_in(function, cell) or variable
        stored, mutated = _deref_writes(function.__code__, name)
        where = Location(
            function.__code__.co_filename,
            stored or mutated or function.__code__.co_firstlineno,
            function.__qualname__,
        )
        if stored:
            stores.append(where)
        elif mutated:
            mutates.append(where)
    return _unique(stores + mutates)


def writers_of_attribute(holder: object, name: str) -> tuple[Location, ...]:
    """Methods of `holder`'s class (and the closures inside them) that assign `self.<name>` or
    register it as a buffer; `__init__` counts only if nothing else writes it."""
    return _class_writers(type(holder), name)


@functools.lru_cache(maxsize=1024)
def _class_writers(kind: type, name: str) -> tuple[Location, ...]:
    found = list(_attribute_writes(kind, name))
    outside = [place for place in found if not place.function.endswith("__init__")]
    return _unique(outside or found)


def _unique(places: Iterable[Location]) -> tuple[Location, ...]:
    return tuple(dict.fromkeys(places))[:_MOST_WRITERS]


def _functions_sharing(cell: Any) -> Iterator[types.FunctionType]:
    """One pass over the heap; `gc.get_referrers` would take one per closure."""
    for thing in gc.get_objects():
        closure = thing.__closure__ if type(thing) is types.FunctionType else None
        if closure and any(content is cell for content in closure):
            yield thing


def _name_in(function: types.FunctionType, cell: Any) -> str | None:
    names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return next((name for name, content in names if content is cell), None)


@functools.lru_cache(maxsize=1024)
def _deref_writes(code: types.CodeType, name: str) -> tuple[int | None, int | None]:
    """(line of the first rebinding, line of the first mutation) of a free variable in `code`."""
    stored = mutated = None
    line, pending = code.co_firstlineno, False
    for instruction in dis.get_instructions(code):
        line = _line_of(instruction) or line
        operation = instruction.opname
        if operation == "STORE_DEREF" and instruction.argval == name:
            stored = stored or line
        elif operation in ("LOAD_DEREF", "LOAD_CLASSDEREF") and instruction.argval == name:
            pending = True
        elif pending and operation in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            mutated, pending = mutated or line, False
        elif pending and operation in ("LOAD_METHOD", "LOAD_ATTR"):
            if instruction.argval in _MUTATORS:
                mutated = mutated or line
            pending = False
        elif operation in ("POP_TOP", "STORE_FAST", "RETURN_VALUE", "BINARY_SUBSCR"):
            pending = False
    return stored, mutated


@functools.lru_cache(maxsize=1024)
def first_read_line(code: types.CodeType, name: str) -> int | None:
    """Line where `code` first reads its free variable `name`."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = _line_of(instruction) or line
        if instruction.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and instruction.argval == name:
            return line
    return None


def _line_of(instruction: Any) -> int | None:
    """The line an instruction starts; 3.13 turned `starts_line` into a flag."""
    line = getattr(instruction, "line_number", None) or instruction.starts_line
    return line if isinstance(line, int) and not isinstance(line, bool) else None


def _attribute_writes(kind: type, name: str) -> Iterator[Location]:
    for owner in kind.__mro__:
        if owner.__module__ == "builtins" or owner.__module__.startswith("torch.nn"):
            continue
        for value in list(vars(owner).values()):
            function = getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType):
                for code in _nested(function.__code__):
                    line = _store_line(code, name)
                    if line:
                        yield Location(code.co_filename, line, f"{owner.__name__}.{code.co_name}")


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


@functools.lru_cache(maxsize=4096)
def _store_line(code: types.CodeType, name: str) -> int | None:
    """Line where `code` assigns an attribute `name` or registers a buffer of that name."""
    line, registering = code.co_firstlineno, False
    for instruction in dis.get_instructions(code):
        line = _line_of(instruction) or line
        if instruction.opname == "STORE_ATTR" and instruction.argval == name:
            return line
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            registering = instruction.argval in ("register_buffer", "__setattr__")
        elif registering and instruction.opname == "LOAD_CONST" and instruction.argval == name:
            return line
    return None
