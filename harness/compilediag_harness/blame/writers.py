"""Functions of the running program that write a guarded variable.

A closure cell that is rebound (`nonlocal`) is exact: the functions that share the cell and store to
it. Containers and attributes are looked for in the functions that share the cell, in the methods of
the holder's class, in the calls in progress, and in functions of the program that reach the very
holder by a global or by an attribute of an instance. A write by another way is not found: no writer
then, never a guess.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import re
import sys
import types
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from compilediag_harness.base.object_graph import (
    cache_by_code,
    get_class,
    get_plain_attribute,
    iterate_frames,
    read_cell,
)
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.user_calls import copy_locals
from compilediag_harness.blame.writes_in_source import find_mutation_line, list_attribute_stores
from compilediag_harness.wire import Location

_MAX_WRITERS = 8
_MAX_FRAMES = 100
_MAX_SCANNED = 5_000_000
"""Objects of the heap that a session looks at in search of instances: about 0.7 s of CPU time."""
_CONTAINERS = (dict, list, set)
_known_writes: dict[tuple[int, str], tuple[weakref.ref[Any], tuple[Location, ...]]] = {}
_known_cells: dict[tuple[int, types.CodeType], tuple[Location, ...]] = {}
"""Results by (id of the cell, code that closes over it): finding them walks the whole heap. An id
that is used again belongs to a cell of the same code, which has the same writers."""


# --- functions that may run ----------------------------------------------------------------------

# A library's base classes have methods that write an attribute and that this program never calls
# (`_load_from_state_dict`, `offload`). A name is reached where the program's own code or a call in
# progress has it, or a function of the same package whose name is reached. That is more than what
# runs, never less, but for what another package calls by a name of its own.

_PACKAGE = re.compile(r".*[/\\\\](?:site|dist)-packages[/\\\\][^/\\\\]+")
_IMPLIED = frozenset({
    *("forward", "__call__", "__enter__", "__exit__", "__iter__", "__next__", "__getitem__"),
    *("__setitem__", "__len__", "__bool__", "__add__", "__iadd__", "__setattr__", "__getattr__"),
})  # fmt: skip
"""Methods that run without being named."""
_MAX_CALLS = 200


class ReachableNames:
    """Functions that names lead to now: looked up once for all false guards of a recompile."""

    def __init__(self) -> None:
        self._reached: dict[str, frozenset[str]] = {}
        """By package."""

    def may_run(self, writer: Location) -> bool:
        """True if names lead to the function; always for code outside installed packages."""
        package = _PACKAGE.match(writer.file)
        if package is None or source_locations.is_own(writer.file):
            return True
        folder = package[0]
        if folder not in self._reached:
            modules = [names for file, names in self.modules if file.startswith(folder)]
            index = _indices.get(folder)
            if index is None or index.modules != len(modules):  # more of it may be loaded by now
                index = _indices[folder] = _FunctionIndex(modules)
            names = index.collect_reached(self._starting_names.intersection(index.codes))
            self._reached[folder] = self._starting_names | names
        return writer.function.rpartition(".")[2] in self._reached[folder]

    def get_names(self, file: str) -> dict[str, Any]:
        """Get the names of the module of a file; none where it is not loaded."""
        empty: dict[str, Any] = {}
        return next((names for loaded, names in self.modules if loaded == file), empty)

    @functools.cached_property
    def modules(self) -> list[tuple[str, dict[str, Any]]]:
        """File and names of each module that is loaded."""
        return list(source_locations.iterate_loaded_modules())

    @functools.cached_property
    def own_modules(self) -> list[dict[str, Any]]:
        return [names for file, names in self.modules if source_locations.is_own(file)]

    @functools.cached_property
    def _starting_names(self) -> frozenset[str]:
        """The names in the program's own code and in the calls in progress."""
        own = (value for names in self.own_modules for value in list(names.values()))
        running = (frame.f_code for frame in iterate_frames(sys._getframe(1), _MAX_CALLS))  # pyright: ignore[reportPrivateUsage]
        codes = [code for code in running if not source_locations.is_torch(code.co_filename)]
        codes = [code for code in codes if not source_locations.is_ours(code.co_filename)]
        return _IMPLIED.union(*map(_get_names, (*codes, *_iterate_codes(own))))


class _FunctionIndex:
    """The functions of a package by name."""

    def __init__(self, modules: list[dict[str, Any]]) -> None:
        self.modules = len(modules)
        self.codes: dict[str, list[types.CodeType]] = {}
        # Most members of a module are those of other modules of its package. Another thread may add
        # one meanwhile.
        members = {id(value): value for names in modules for value in list(names.values())}
        for code in _iterate_codes(members.values()):
            self.codes.setdefault(code.co_name, []).append(code)
        self.collect_reached = functools.lru_cache(maxsize=8)(self._collect_reached)

    def _collect_reached(self, first: frozenset[str]) -> frozenset[str]:
        """Collect the names in these functions, and in those that have such a name."""
        names, waiting = set(first), set(first)
        while waiting:
            codes = (code for name in waiting for code in self.codes[name])
            new = set[str]().union(*map(_collect_names, codes)) - names
            names |= new
            waiting = new & self.codes.keys()
        return frozenset(names)


_indices: dict[str, _FunctionIndex] = {}
"""By package."""


def _iterate_codes(members: Iterable[object]) -> Iterator[types.CodeType]:
    """Iterate over a module's functions and the methods of its classes, properties included."""
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


def _collect_names(code: types.CodeType) -> frozenset[str]:
    """Collect what a function reads or calls by name, functions inside it included; a function that
    it defines is a variable of it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    own = (*code.co_names, *code.co_varnames, *code.co_cellvars)
    return frozenset(own).union(*map(_get_names, inner))


_get_names = cache_by_code(_collect_names)


def find_cell_writers(cell: Any, code: types.CodeType) -> tuple[Location, ...]:
    """Find the functions that rebind `cell`, or change the container it holds: at most
    `_MAX_WRITERS`, calls in progress first. `code` is the function whose closure the guard reads.
    """
    key = (id(cell), code)
    if key not in _known_cells:
        _known_cells[key] = _deduplicate(_find_cell_writes(cell))
    value = read_cell(cell)
    if not isinstance(value, _CONTAINERS):
        return _known_cells[key]
    changed: list[Location] = []
    for frame in iterate_calls_in_progress():
        inside = frame.f_code
        for name, held in copy_locals(frame).items():
            line = find_mutation_line(inside, name) if held is value else None
            if line:
                changed.append(Location(inside.co_filename, line, inside.co_name))
    return _deduplicate((*changed, *_known_cells[key]))


class CompiledCode(NamedTuple):
    """The function that is compiled, as it is called now."""

    code: types.CodeType
    scope: Mapping[str, Any]
    """Its locals and globals as {L, G}."""
    functions: Collection[tuple[str, str]]
    """(file, name) of functions that are known to have been compiled into it."""
    reach: ReachableNames

    def holds(self, writer: Location) -> bool:
        """True if a function is known to have been compiled into it."""
        return (writer.file, writer.function.rpartition(".")[2]) in self.functions


def find_attribute_writers(
    holder: object, name: str, compiled: CompiledCode
) -> tuple[Location, ...]:
    """Find where `holder.<name>` is assigned: in the code that is compiled, in the calls in
    progress and in the methods of its class that may run; `__init__` is left out, since it ran
    before the value changed. First what runs in the compiled code; methods of packages that are not
    known to run are left out where another one is."""
    calls = [(compiled.code, compiled.scope["L"], compiled.scope["G"])]
    calls += (
        (frame.f_code, copy_locals(frame), frame.f_globals)
        for frame in iterate_calls_in_progress()
        if name in frame.f_code.co_names
    )
    writers = [
        Location(code.co_filename, line, code.co_name)
        for code, own, others in calls
        for base, line in list_attribute_stores(code, name)
        if _resolve_path(base, own, others) is holder
    ]
    writers += (
        writer
        for writer in _find_class_writes(type(holder), name)
        if compiled.holds(writer) or compiled.reach.may_run(writer)
    )
    lines = {(w.file, w.line): w for w in writers if not w.function.endswith("__init__")}
    inside = [writer for writer in lines.values() if compiled.holds(writer)]
    rest = [writer for writer in lines.values() if not compiled.holds(writer)]
    chosen = [*inside, *(w for w in rest if not inside or source_locations.is_own(w.file))]
    return _deduplicate(chosen) or _find_program_writes(holder, name, compiled.reach.own_modules)


def _deduplicate(writers: Iterable[Location]) -> tuple[Location, ...]:
    return tuple(dict.fromkeys(writers))[:_MAX_WRITERS]


def _resolve_path(path: str, names: Mapping[str, Any], others: Mapping[str, Any]) -> Any:
    """Resolve a dotted name by attributes, without running any code of the program. What
    `torch.compile` gives for a module is that module: it passes on what is assigned to it."""
    first, *attributes = path.split(".")
    value = _unwrap(names.get(first, others.get(first)))
    for name in attributes:
        value = _unwrap(get_plain_attribute(value, name))
    return value


def _unwrap(value: Any) -> Any:
    modules: Any = get_plain_attribute(value, "_modules")
    known: dict[str, Any] = modules if get_class(modules) is dict else {}
    return known.get("_orig_mod", value)


# --- closures --------------------------------------------------------------------------------


def _find_cell_writes(cell: Any) -> list[Location]:
    """Find the functions that share the cell: those that rebind it, then those that change it."""
    rebinds: list[Location] = []
    changes: list[Location] = []
    # `type(x) is`: `isinstance` would ask each object of the heap for its class, by its own code.
    for function in gc.get_objects():  # one pass; `gc.get_referrers` would take one per closure
        closure = function.__closure__ if type(function) is types.FunctionType else None
        at = next((at for at, held in enumerate(closure or ()) if held is cell), None)
        if at is None:
            continue
        code: types.CodeType = function.__code__
        name = code.co_freevars[at]
        rebound = find_op(code, "STORE_DEREF", name)
        changed = find_mutation_line(code, name)
        if rebound:
            rebinds.append(Location(code.co_filename, rebound, function.__qualname__))
        elif changed:
            changes.append(Location(code.co_filename, changed, function.__qualname__))
    return rebinds + changes


@cache_by_code
def find_first_read(code: types.CodeType, name: str) -> int | None:
    """Find the line where `code` first reads its free variable `name`; None where it never does."""
    return find_op(code, "LOAD_DEREF", name) or find_op(code, "LOAD_CLASSDEREF", name)


# --- attributes ------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _find_class_writes(kind: type, name: str) -> tuple[Location, ...]:
    """Find the methods of a class (and closures inside them) that assign an attribute `name`."""
    writes: list[Location] = []
    for owner in kind.__mro__:
        # `Tensor.__deepcopy__` sets what the copy has: none of a tensor that is guarded.
        if owner.__module__ in ("builtins", "torch") or owner.__module__.startswith("torch.nn"):
            continue
        for value in list(vars(owner).values()):
            for code in _iterate_wrapped(value):
                line = find_op(code, "STORE_ATTR", name) or _find_registration(code, name)
                line = line or find_mutation_line(code, name)
                if line:
                    where = f"{owner.__name__}.{code.co_name}"
                    writes.append(Location(code.co_filename, line, where))
    return tuple(writes)


def find_class_reads(kind: type, name: str, compiled: CompiledCode) -> Iterator[Location]:
    """Find the methods of a class that read an attribute `name` in the compiled code: those known
    to be in it, and those that these name."""
    methods: dict[str, types.CodeType] = {}
    for owner in kind.__mro__:
        for value in list(vars(owner).values()) if owner.__module__ != "builtins" else ():
            for code in _iterate_wrapped(value):
                methods.setdefault(code.co_name, code)
    inside = [
        n for n, code in methods.items() if compiled.holds(source_locations.get_location(code))
    ]
    reached = dict.fromkeys(inside)
    while inside:
        named = (other for other in _get_names(methods[inside.pop()]) if other in methods)
        new = [other for other in named if other not in reached]
        reached.update(dict.fromkeys(new))
        inside += new
    for method in reached:
        line = find_op(methods[method], "LOAD_ATTR", name)
        if line:
            yield Location(methods[method].co_filename, line, method)


def _iterate_wrapped(value: Any) -> Iterator[types.CodeType]:
    """Iterate over the code of a method, of what its decorators wrap, and of closures inside it."""
    waiting, seen = [value], set[int]()
    while waiting and len(seen) < _MAX_FRAMES:
        member = waiting.pop()
        if id(member) in seen:
            continue
        seen.add(id(member))
        for part in ("__func__", "__wrapped__", "fget", "fset", "func"):
            inner = getattr(member, part, None)
            if inner is not None:
                waiting.append(inner)
        if isinstance(member, types.FunctionType):
            yield from _iterate_nested(member.__code__)
            # A decorator without `__wrapped__` still closes over what it wraps.
            contents = map(read_cell, member.__closure__ or ())
            waiting.extend(held for held in contents if isinstance(held, types.FunctionType))


def _iterate_nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _iterate_nested(constant)


# --- functions of the program ----------------------------------------------------------------


class _Store(NamedTuple):
    """A line of a function of the program that assigns an attribute of some object."""

    base: str
    """What it is assigned to, such as "self.model"."""
    line: int
    function: Any
    owner: Any
    """The class of a method."""


def _find_program_writes(
    holder: object, name: str, modules: Iterable[dict[str, Any]]
) -> tuple[Location, ...]:
    """Find the assignments of the program whose left side leads to the very object now."""
    known = _known_writes.get((id(holder), name))
    if known is not None and known[0]() is holder:
        return known[1]
    stores: list[_Store] = []
    for member in (member for names in modules for member in list(names.values())):
        owner = member if isinstance(member, type) else None
        for function in [member] if owner is None else list(vars(owner).values()):
            if not isinstance(function, types.FunctionType) or function.__name__ == "__init__":
                continue
            if name in function.__code__.co_names:
                places = list_attribute_stores(function.__code__, name)
                stores += (_Store(base, line, function, owner) for base, line in places)
    owners = frozenset(store.owner for store in stores if store.owner is not None)
    instances = _find_instances(owners) if owners else []
    writes = _deduplicate(
        Location(store.function.__code__.co_filename, store.line, store.function.__qualname__)
        for store in stores
        if any(target is holder for target in _iterate_assigned(store, instances))
    )
    # Invariant: by id only with a weak reference beside it, which tells whether it is the same one.
    with contextlib.suppress(TypeError):  # no weak reference, so that its id may be another's later
        _known_writes[id(holder), name] = weakref.ref(holder), writes
    return writes


def _iterate_assigned(store: _Store, instances: Iterable[object]) -> Iterator[object]:
    """Iterate over the objects whose attribute it assigns, as far as names lead to them now."""
    first = store.base.partition(".")[0]
    code = store.function.__code__
    if first in code.co_varnames[: code.co_argcount]:
        if store.owner is not None and first == code.co_varnames[0]:
            for thing in instances:
                if store.owner in type(thing).__mro__:
                    yield _resolve_path(store.base, {first: thing}, {})
    elif first not in code.co_varnames and first not in code.co_freevars:
        yield _resolve_path(store.base, store.function.__globals__, {})


_scanned = 0
_instances: dict[frozenset[type], list[weakref.ref[Any]]] = {}
"""Of classes of the program, of which Python has no list: each pass over the heap takes 0.1 s of
CPU time for a million objects, so there is one for the same classes in each analysis, and none
after `_MAX_SCANNED` objects."""


def _find_instances(owners: frozenset[type]) -> list[object]:
    """Find the instances that can be referenced weakly; no check of a class's own is called."""
    global _scanned
    if owners not in _instances:
        references = _instances[owners] = list[weakref.ref[Any]]()
        things = gc.get_objects() if _scanned < _MAX_SCANNED else []
        _scanned += len(things)
        kinds: dict[type[Any], bool] = {}
        for thing in things:
            kind = cast("type[Any]", type(thing))
            if kind not in kinds:
                kinds[kind] = not owners.isdisjoint(kind.__mro__)
            if kinds[kind]:
                with contextlib.suppress(TypeError):
                    references.append(weakref.ref(thing))
    return [thing for ref in _instances[owners] if (thing := ref()) is not None]


def clear_session() -> None:
    """Forget what was found in an earlier session."""
    global _scanned
    _scanned = 0
    for cache in (_instances, _known_cells, _known_writes):
        cache.clear()


def clear_instances() -> None:
    """Forget the instances: before another recompile, since which more may have been made."""
    _instances.clear()


def iterate_calls_in_progress() -> Iterator[types.FrameType]:
    """Iterate over the calls in progress in this thread that are not torch's, innermost first."""
    for frame in iterate_frames(sys._getframe(1), _MAX_FRAMES):  # pyright: ignore[reportPrivateUsage]
        file = frame.f_code.co_filename
        if not source_locations.is_library(file) and not source_locations.is_ours(file):
            yield frame


# --- byte code -------------------------------------------------------------------------------


@cache_by_code
def find_op(code: types.CodeType, operation: str, name: str) -> int | None:
    """Find the line of the first `operation` on `name` in `code`."""
    for line, instruction in _iterate_instructions(code):
        if instruction.opname == operation and instruction.argval == name:
            return line
    return None


@cache_by_code
def _find_registration(code: types.CodeType, name: str) -> int | None:
    """Find the line where `code` registers a buffer or sets an attribute called `name`."""
    registering = False
    for line, instruction in _iterate_instructions(code):
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            registering = instruction.argval in ("register_buffer", "__setattr__")
        elif registering and instruction.opname == "LOAD_CONST" and instruction.argval == name:
            return line
    return None


def _iterate_instructions(code: types.CodeType) -> Iterator[tuple[int, dis.Instruction]]:
    """Iterate over (line, instruction); Python 3.13 turned `starts_line` into a flag."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        begun = getattr(instruction, "line_number", None) or instruction.starts_line
        line = begun if begun and type(begun) is int else line
        yield line, instruction
