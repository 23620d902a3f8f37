"""Which functions of the running program write a guarded variable.

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
import sys
import types
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from compilediag_harness.base.object_graph import cached_by_code, plain_attribute
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.reached_by_name import Reach
from compilediag_harness.blame.user_calls import locals_of
from compilediag_harness.blame.writes_in_source import attribute_stores, mutation_line
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


def writers_of_cell(cell: Any, variable: str, code: types.CodeType) -> tuple[Location, ...]:
    """Functions that rebind `cell`, or change the container it holds. `code` is the function whose
    closure the guard reads."""
    key = (id(cell), code)
    if key not in _known_cells:
        _known_cells[key] = _unique(_cell_writes(cell, variable))
    found = _known_cells[key]
    value = _content(cell)
    if isinstance(value, _CONTAINERS):
        found = _unique((*_container_writes_in_progress(value), *found))
    return found


def writers_of_attribute(
    holder: object, name: str, compiled: CompiledCode | None = None
) -> tuple[Location, ...]:
    """Where `holder.<name>` is assigned: in the code that is compiled, in the calls in progress and
    in the methods of its class that may run; `__init__` is left out, since it ran before the value
    changed."""
    inside = () if compiled is None else compiled.writes(holder, name)
    compiled_in = () if compiled is None else compiled.functions
    reach = Reach() if compiled is None else compiled.reach
    methods = [
        writer
        for writer in _class_writes(type(holder), name)
        if _in_functions(writer, compiled_in) or reach.may_run(writer)
    ]
    lines: dict[tuple[str, int], Location] = {}
    for writer in (*inside, *_attribute_writes_in_progress(holder, name), *methods):
        if not writer.function.endswith("__init__"):
            lines[writer.file, writer.line] = writer
    found = list(lines.values()) if compiled is None else compiled.first(lines.values())
    return _unique(found) or _writes_of_program(holder, name, reach.own_modules)


class CompiledCode(NamedTuple):
    """The function that is compiled, as it is called now."""

    code: types.CodeType
    scope: Mapping[str, Any]
    """Its locals and globals as {L, G}."""
    functions: Collection[tuple[str, str]]
    """(file, name) of functions that are known to have been compiled into it."""
    reach: Reach

    def writes(self, holder: object, name: str) -> Iterator[Location]:
        """Its own assignments to an attribute of the very object."""
        for base, line in attribute_stores(self.code, name):
            first, *rest = base.split(".")
            start = self.scope["L"].get(first, self.scope["G"].get(first))
            if _led_to(start, rest) is holder:
                yield Location(self.code.co_filename, line, self.code.co_name)

    def first(self, writers: Collection[Location]) -> list[Location]:
        """What runs in this code before the rest; methods of packages that are not known to run are
        left out where another one is."""
        inside = [item for item in writers if _in_functions(item, self.functions)]
        rest = [item for item in writers if item not in inside]
        return [*inside, *(i for i in rest if not inside or source_locations.is_own(i.file))]


def _in_functions(writer: Location, functions: Collection[tuple[str, str]]) -> bool:
    return (writer.file, writer.function.rpartition(".")[2]) in functions


def _unique(writers: Iterable[Location]) -> tuple[Location, ...]:
    return tuple(dict.fromkeys(writers))[:_MAX_WRITERS]


# --- closures --------------------------------------------------------------------------------


def _cell_writes(cell: Any, variable: str) -> list[Location]:
    """Functions that share the cell: those that rebind it first, then those that change what it
    holds."""
    rebinds: list[Location] = []
    changes: list[Location] = []
    for function in _functions_sharing(cell):
        code = function.__code__
        name = _name_in(function, cell) or variable
        rebound, changed = _store_line(code, "STORE_DEREF", name), mutation_line(code, name)
        if rebound:
            rebinds.append(Location(code.co_filename, rebound, function.__qualname__))
        elif changed:
            changes.append(Location(code.co_filename, changed, function.__qualname__))
    return rebinds + changes


def _functions_sharing(cell: Any) -> Iterator[types.FunctionType]:
    """One pass over the heap; `gc.get_referrers` would take one per closure."""
    for thing in gc.get_objects():
        closure = thing.__closure__ if type(thing) is types.FunctionType else None
        if closure and any(content is cell for content in closure):
            yield thing


def _name_in(function: types.FunctionType, cell: Any) -> str | None:
    names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return next((name for name, content in names if content is cell), None)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


@cached_by_code
def first_read_line(code: types.CodeType, name: str) -> int | None:
    """Line where `code` first reads its free variable `name`."""
    return _store_line(code, "LOAD_DEREF", name) or _store_line(code, "LOAD_CLASSDEREF", name)


# --- attributes ------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _class_writes(kind: type, name: str) -> tuple[Location, ...]:
    """Methods of a class (and closures inside them) that assign an attribute `name`."""
    found: list[Location] = []
    for owner in kind.__mro__:
        if owner.__module__ == "builtins" or owner.__module__.startswith("torch.nn"):
            continue
        for value in list(vars(owner).values()):
            for code in _codes_behind(value):
                line = _store_line(code, "STORE_ATTR", name) or _registration_line(code, name)
                if line:
                    where = f"{owner.__name__}.{code.co_name}"
                    found.append(Location(code.co_filename, line, where))
    return tuple(found)


def _codes_behind(value: Any) -> Iterator[types.CodeType]:
    """The code of a method and of what its decorators wrap, closures inside it included."""
    waiting, seen = [value], set[int]()
    while waiting and len(seen) < _MAX_FRAMES:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        for part in ("__func__", "__wrapped__", "fget", "fset", "func"):
            inner = getattr(item, part, None)
            if inner is not None:
                waiting.append(inner)
        if isinstance(item, types.FunctionType):
            yield from _nested(item.__code__)
            # A decorator without `__wrapped__` still closes over what it wraps.
            contents = [_content(cell) for cell in item.__closure__ or ()]
            waiting.extend(held for held in contents if isinstance(held, types.FunctionType))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


# --- functions of the program ----------------------------------------------------------------


class _Store(NamedTuple):
    """A line of a function of the program that assigns an attribute of some object."""

    base: str
    """What it is assigned to, such as "self.model"."""
    line: int
    function: Any
    owner: Any
    """The class of a method."""


def _writes_of_program(
    holder: object, name: str, modules: Iterable[dict[str, Any]]
) -> tuple[Location, ...]:
    """Assignments whose left side leads to the very object now."""
    known = _known_writes.get((id(holder), name))
    if known is not None and known[0]() is holder:
        return known[1]
    found = _search_program(holder, _stores_of_program(name, modules))
    with contextlib.suppress(TypeError):  # no weak reference, so that its id may be another's later
        _known_writes[id(holder), name] = weakref.ref(holder), found
    return found


def _search_program(holder: object, found: Iterable[_Store]) -> tuple[Location, ...]:
    stores = [item for item in found if not _is_init(item.function)]
    owners = frozenset(item.owner for item in stores if item.owner is not None)
    instances = _heap.instances_of(owners) if owners else []
    return _unique(
        Location(item.function.__code__.co_filename, item.line, item.function.__qualname__)
        for item in stores
        if any(found is holder for found in _assigned_by(item, instances))
    )


def _is_init(function: Any) -> bool:
    return function.__name__ == "__init__"


def _stores_of_program(name: str, modules: Iterable[dict[str, Any]]) -> Iterator[_Store]:
    for member in (member for members in modules for member in list(members.values())):
        owner = member if isinstance(member, type) else None
        for function in [member] if owner is None else list(vars(owner).values()):
            if isinstance(function, types.FunctionType) and name in function.__code__.co_names:
                for base, line in attribute_stores(function.__code__, name):
                    yield _Store(base, line, function, owner)


class _Heap:
    """Instances of classes of the program, of which no list is kept: each pass over the heap takes
    0.1 s of CPU time for a million objects, so there is one for the same classes in each analysis,
    and none after `_MAX_SCANNED` objects."""

    def __init__(self) -> None:
        self._scanned = 0
        self._found: dict[frozenset[type], list[weakref.ref[Any]]] = {}

    def new_analysis(self) -> None:
        """Instances may have been made since the last one."""
        self._found.clear()

    def instances_of(self, owners: frozenset[type]) -> list[object]:
        """Those that can be referenced weakly; no check of a class's own is called."""
        if owners not in self._found:
            self._found[owners] = list(self._scan(owners))
        return [thing for ref in self._found[owners] if (thing := ref()) is not None]

    def _scan(self, owners: frozenset[type]) -> Iterator[weakref.ref[Any]]:
        things = gc.get_objects() if self._scanned < _MAX_SCANNED else []
        self._scanned += len(things)
        kinds: dict[type[Any], bool] = {}
        for thing in things:
            kind = cast("type[Any]", type(thing))
            if kind not in kinds:
                kinds[kind] = not owners.isdisjoint(kind.__mro__)
            if kinds[kind]:
                with contextlib.suppress(TypeError):
                    yield weakref.ref(thing)


_heap = _Heap()


def new_session() -> None:
    """What was found in an earlier session is forgotten."""
    global _heap
    _heap = _Heap()
    _known_cells.clear()
    _known_writes.clear()


def new_analysis() -> None:
    """Another recompile is looked at."""
    _heap.new_analysis()


def _assigned_by(store: _Store, instances: Iterable[object]) -> Iterator[object]:
    """The objects whose attribute it assigns, as far as names lead to them now."""
    first, *rest = store.base.split(".")
    code = store.function.__code__
    if first in code.co_varnames[: code.co_argcount]:
        is_self = store.owner is not None and first == code.co_varnames[0]
        starts: list[Any] = [
            thing for thing in instances if is_self and store.owner in type(thing).__mro__
        ]
    elif first in code.co_varnames or first in code.co_freevars:
        return
    else:
        starts = [store.function.__globals__.get(first)]
    for start in starts:
        yield _led_to(start, rest)


def _led_to(start: Any, names: Iterable[str]) -> Any:
    """What attributes lead to, found without running any code of the program."""
    for name in names:
        start = plain_attribute(start, name)
    return start


# --- calls in progress -----------------------------------------------------------------------


def calls_in_progress() -> Iterator[types.FrameType]:
    """The calls in progress in this thread that are not torch's, innermost first."""
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        file = frame.f_code.co_filename
        if not source_locations.is_library(file) and not source_locations.is_ours(file):
            yield frame
        frame = frame.f_back


def _container_writes_in_progress(value: Any) -> Iterator[Location]:
    for frame in calls_in_progress():
        for name, held in locals_of(frame).items():
            if held is value:
                line = mutation_line(frame.f_code, name)
                if line:
                    yield Location(frame.f_code.co_filename, line, frame.f_code.co_name)


def _attribute_writes_in_progress(holder: object, attribute: str) -> Iterator[Location]:
    for frame in calls_in_progress():
        for base, line in attribute_stores(frame.f_code, attribute):
            if _resolved(base, frame) is holder:
                yield Location(frame.f_code.co_filename, line, frame.f_code.co_name)


def _resolved(base: str, frame: types.FrameType) -> Any:
    first, *rest = base.split(".")
    return _led_to(locals_of(frame).get(first, frame.f_globals.get(first)), rest)


# --- byte code -------------------------------------------------------------------------------


@cached_by_code
def _store_line(code: types.CodeType, operation: str, name: str) -> int | None:
    """Line of the first `operation` on `name` in `code`."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = _line_of(instruction) or line
        if instruction.opname == operation and instruction.argval == name:
            return line
    return None


@cached_by_code
def _registration_line(code: types.CodeType, name: str) -> int | None:
    """Line where `code` registers a buffer or sets an attribute called `name`."""
    line, registering = code.co_firstlineno, False
    for instruction in dis.get_instructions(code):
        line = _line_of(instruction) or line
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            registering = instruction.argval in ("register_buffer", "__setattr__")
        elif registering and instruction.opname == "LOAD_CONST" and instruction.argval == name:
            return line
    return None


def _line_of(instruction: Any) -> int | None:
    """The line an instruction starts; 3.13 turned `starts_line` into a flag."""
    line = getattr(instruction, "line_number", None) or instruction.starts_line
    return line if isinstance(line, int) and not isinstance(line, bool) else None
