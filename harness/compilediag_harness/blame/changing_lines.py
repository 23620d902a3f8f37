"""Lines of calls in progress that probably changed guarded values, themselves or by what they call.

What a call calls is looked up without running code of the program: plain names, attributes of
objects and methods of their classes. Nothing is concluded of a call that cannot be looked up so.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from compilediag_harness.base.object_graph import (
    MISSING,
    cache_by_code,
    find_class_file,
    get_plain_attribute,
)
from compilediag_harness.blame import guard_sources, source_locations, writers
from compilediag_harness.blame.user_calls import copy_locals
from compilediag_harness.blame.writes_in_source import get_dotted_name, iterate_nodes
from compilediag_harness.wire import EntryDiff, FalseGuard, Location, UserCall, clip

_GRADIENTS = "requires_grad"
_MAX_LINES = 4
_TEXT_CHARS = 200
_MAX_HOPS = 32
_MAX_NAMES = 64
_MAX_REACHED = 48
"""Functions that are followed from one call."""


def add_changing_lines(
    diffs: Iterable[EntryDiff], compiled: types.CodeType, scope: Mapping[str, Any]
) -> list[EntryDiff]:
    """Add to each false guard the lines that probably changed its value: of other functions, where
    the compiled one does not write it itself. `scope`: the frame's locals and globals as {L, G}."""
    calls = _CallsInProgress()

    def find_lines(guard: FalseGuard) -> tuple[UserCall, ...]:
        holders = list(guard_sources.iterate_holders(guard.source, scope))
        known, name = guard.writers, _GRADIENTS
        if _GRADIENTS not in guard.text:
            source = guard.source
            while source and guard_sources.parse_attribute(source) is None:  # an element
                source = guard_sources.parse_container(source)
            name = guard_sources.parse_attribute(source) or ""
        elif not known:  # from the innermost module that has methods which switch them
            kinds: Iterator[type] = map(type, holders)
            switches = [_find_grad_switches(kind) for kind in kinds]
            known = next((writers for writers in switches if writers), ())
        if any(_is_in(writer, compiled) for writer in known):
            return ()
        return calls.find_lines(known, name, holders)

    def add_lines(guard: FalseGuard) -> FalseGuard:
        lines, known = find_lines(guard), guard.writers
        if not known and _GRADIENTS in guard.text and "._parameters[" in guard.source:
            known = calls.switches
            lines = (*map(source_locations.describe_line, known), *lines)[:_MAX_LINES]
        return replace(guard, changed_by=lines, writers=known)

    return [replace(diff, guards=tuple(map(add_lines, diff.guards))) for diff in diffs]


class _Call:
    """A call in the source of a function in progress, with the function that it calls."""

    def __init__(
        self, inside: types.CodeType, node: ast.Call, called: types.FunctionType, receiver: Any
    ) -> None:
        """`receiver`: the object that the function is looked up in; None where it is in none."""
        self._inside, self._node, self._target = inside, node, (called, receiver)
        # One level only, by global names: `_follow_calls` goes further, and costs more.
        names = map(called.__globals__.get, called.__code__.co_names[:_MAX_NAMES])
        in_turn = (held.__code__ for held in names if type(held) is types.FunctionType)
        self.codes = called.__code__, *in_turn
        """What it calls, and functions that this calls in turn by a global name."""

    @functools.cached_property
    def user_call(self) -> UserCall:
        code, text = self._inside, clip(ast.unparse(self._node), _TEXT_CHARS)
        return UserCall(code.co_filename, self._node.lineno, code.co_name, text)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Names of methods that what it calls calls in turn on objects that are not known."""
        return _follow_calls(*self._target).names


class _CallsInProgress:
    """The program's own functions in progress in this thread, and what each of them calls; looked
    up once for all guards of a recompile."""

    def __init__(self) -> None:
        own = [f for f in writers.iterate_calls_in_progress() if source_locations.is_own_frame(f)]
        self._codes = [frame.f_code for frame in own]
        self._frames = own
        self._methods: dict[tuple[type, str], tuple[types.CodeType, ...]] = {}
        self._lines_by_key: dict[Any, tuple[UserCall, ...]] = {}
        """By what the lines depend on: many guards are alike, as those of each layer."""

    def find_lines(
        self, known: tuple[Location, ...], name: str, holders: Sequence[Any]
    ) -> tuple[UserCall, ...]:
        """Find the lines in these functions that lead to a writer, or to one of an attribute
        `name`: at most `_MAX_LINES`."""
        kinds: tuple[type, ...] = tuple(map(type, holders))
        key = known, name, kinds
        if key not in self._lines_by_key:
            lines = self._find_writer_lines(known, name) or self._find_holder_calls(holders, name)
            self._lines_by_key[key] = self._select_in_loop(list(dict.fromkeys(lines)))[:_MAX_LINES]
        return self._lines_by_key[key]

    def _find_writer_lines(self, known: Iterable[Location], name: str) -> list[UserCall]:
        """Find the lines that are a writer's or call one; and the calls of functions that write the
        value by its name, whichever object it is of."""
        lines: list[UserCall] = []
        called: list[Location] = []
        for writer in known:
            code = next((c for c in self._codes if _is_in(writer, c)), None)
            if code is None:
                called.append(writer)
            else:
                lines.append(source_locations.describe_line(replace(writer, function=code.co_name)))
        direct = self._select_calls(lambda code: any(_is_in(writer, code) for writer in called))
        if not direct:
            names = {writer.function.rpartition(".")[2] for writer in called}
            direct = self._select_calls(lambda code: not names.isdisjoint(code.co_names))
        return [*lines, *direct, *self._select_calls(lambda code: _contains_write(code, name))]

    @functools.cached_property
    def switches(self) -> tuple[Location, ...]:
        """The lines of these functions themselves that switch `requires_grad` between two calls:
        in a loop around the call."""
        return tuple(
            Location(frame.f_code.co_filename, line, frame.f_code.co_name)
            for frame in self._frames
            for line in _list_grad_switches(frame.f_code)
            if any(line in loop for loop in _list_loops(frame.f_code, frame.f_lineno or 0))
        )

    def _find_holder_calls(self, holders: Iterable[Any], name: str) -> list[UserCall]:
        """Find the calls that lead, through methods of objects that they have, to a method of a
        holder of the value that writes it."""
        called = frozenset[str]().union(*(call.names for call in self._calls))
        names = {
            method
            for holder in holders
            for method in called
            if any(_contains_write(code, name) for code in self._list_reached_codes(holder, method))
        }
        return [call.user_call for call in self._calls if names & call.names]

    def _list_reached_codes(self, holder: Any, name: str) -> tuple[types.CodeType, ...]:
        """List what a method leads to, unless it is torch's or the one that makes the object."""
        kind = cast(Any, type(holder))
        if (kind, name) not in self._methods:
            method: object = inspect.getattr_static(kind, name, None)
            self._methods[kind, name] = ()
            if (
                isinstance(method, types.FunctionType)
                and name != "__init__"
                and not source_locations.is_torch(method.__code__.co_filename)
            ):
                self._methods[kind, name] = _follow_calls(method, holder).codes
        return self._methods[kind, name]

    def _select_calls(self, wanted: Callable[[types.CodeType], bool]) -> list[UserCall]:
        return [call.user_call for call in self._calls if any(map(wanted, call.codes))]

    def _select_in_loop(self, lines: Sequence[UserCall]) -> tuple[UserCall, ...]:
        """Select the lines in the innermost loop that runs, which come between two calls in it, and
        in what was called from there; all of them where none is."""
        inner: set[tuple[str, str]] = set()
        for frame in self._frames:
            loop = next(iter(_list_loops(frame.f_code, frame.f_lineno or 0)), range(0))
            here = frame.f_code.co_filename, frame.f_code.co_name
            inside = [
                at
                for at in lines
                if (at.file, at.function) in inner
                or ((at.file, at.function) == here and at.line in loop)
            ]
            if loop and inside:
                return tuple(inside)
            inner.add(here)
        return tuple(lines)

    @functools.cached_property
    def _calls(self) -> list[_Call]:
        """The calls of these functions but those of functions that are in progress themselves."""
        calls: list[_Call] = []
        for frame in self._frames:
            written = _list_calls(frame.f_code)
            names = {**frame.f_globals, **copy_locals(frame)} if written else {}
            for path, node in written:
                called = _resolve_function(path, names)
                if called is not None and called.__code__ not in self._codes:
                    receiver = _resolve_object(path[:-1], names)
                    calls.append(_Call(frame.f_code, node, called, receiver))
        return calls


@cache_by_code
def _list_loops(code: types.CodeType, line: int) -> tuple[range, ...]:
    """List the lines of the loops around a line, those of the innermost first."""
    loops = (node for node in iterate_nodes(code) if isinstance(node, (ast.For, ast.While)))
    ranges = (range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in loops)
    return tuple(sorted((lines for lines in ranges if line in lines), key=len))


def _is_in(writer: Location, code: types.CodeType) -> bool:
    """True if the line is one of this very function."""
    return writer.file == code.co_filename and writer.line in source_locations.list_lines(code)


@cache_by_code
def _list_calls(code: types.CodeType) -> tuple[tuple[tuple[str, ...], ast.Call], ...]:
    """List the calls in the source of a function with what they name; calls of something that has
    to be computed first are left out."""
    calls = [node for node in iterate_nodes(code) if isinstance(node, ast.Call)]
    named = ((get_dotted_name(node.func), node) for node in calls)
    return tuple((tuple(path.split(".")), node) for path, node in named if path)


class _ReachedCode(NamedTuple):
    """Functions that one function calls, and that these call in turn."""

    codes: tuple[types.CodeType, ...]
    """Its own first."""
    names: frozenset[str]
    """Of methods that are called on objects that are not known."""


def _follow_calls(function: types.FunctionType, receiver: Any) -> _ReachedCode:
    """Follow the calls on the receiver and on what it holds, and of functions by a global name."""
    codes: dict[types.CodeType, None] = {}
    names: set[str] = set()
    waiting = [(function, receiver)]
    while waiting and len(codes) < _MAX_REACHED:
        at, own = waiting.pop(0)
        code = at.__code__
        if code in codes:
            continue
        codes[code] = None
        known = dict(at.__globals__)
        if own is not None and code.co_argcount:
            known[code.co_varnames[0]] = own
        for path in dict.fromkeys(path for path, _ in _list_calls(code)):
            called = _resolve_function(path, known)
            if called is None:
                names.update(path[1:][-1:])
            elif not source_locations.is_torch(called.__code__.co_filename):
                waiting.append((called, _resolve_object(path[:-1], known)))
    return _ReachedCode(tuple(codes), frozenset(names))


def _resolve_object(path: Sequence[str], names: Mapping[str, Any]) -> Any:
    """Resolve a dotted name to the object it stands for; None where there is none."""
    value = names.get(path[0]) if path else None
    for name in path[1:]:
        value = None if value is None else _get_member(value, name)
    return value


def _resolve_function(path: Sequence[str], names: Mapping[str, Any]) -> types.FunctionType | None:
    """Resolve a dotted name to the function it stands for, unwrapped; None where there is none."""
    value = _resolve_object(path, names)
    for _ in range(_MAX_HOPS):
        if type(value) is types.FunctionType and "__wrapped__" not in value.__dict__:
            return value
        if type(value) is types.FunctionType:
            value = value.__dict__["__wrapped__"]
        elif type(value) in (types.MethodType, staticmethod, classmethod):
            value = value.__func__
        else:
            return None
    return None


def _get_member(holder: Any, name: str) -> Any:
    """Get an attribute as stored: of the object, of its class, of what a compiled module wraps."""
    held = get_plain_attribute(holder, name)
    if held is not MISSING:
        return held
    member = inspect.getattr_static(cast(Any, type(holder)), name, None)
    inner = get_plain_attribute(holder, "_orig_mod")
    return member if member is not None or inner is MISSING else _get_member(inner, name)


@functools.lru_cache(maxsize=1024)
def _find_grad_switches(kind: type) -> tuple[Location, ...]:
    """Find the methods of a module that switch `requires_grad` of parameters."""
    switches: list[Location] = []
    for owner in kind.__mro__:
        if source_locations.is_torch(find_class_file(owner)):
            continue
        for name, value in list(vars(owner).items()):
            code = getattr(value, "__code__", None)
            if not isinstance(code, types.CodeType) or name == "__init__":
                continue
            if _contains_write(code, _GRADIENTS):
                where = f"{owner.__name__}.{name}"
                switches.append(Location(code.co_filename, code.co_firstlineno, where))
    return tuple(switches)


@cache_by_code
def _contains_write(code: types.CodeType, name: str) -> bool:
    """True if code writes an attribute of that name; of a parameter's, also by its method."""
    if name != _GRADIENTS:
        return name in code.co_names and bool(writers.find_op(code, "STORE_ATTR", name))
    return bool(_list_grad_switches(code))


@cache_by_code
def _list_grad_switches(code: types.CodeType) -> tuple[int, ...]:
    """List the lines of code that switch `requires_grad` of something."""
    return tuple(
        node.lineno
        for node in iterate_nodes(code)
        if isinstance(node, ast.Attribute)
        and (
            node.attr == "requires_grad_"
            or (node.attr == _GRADIENTS and isinstance(node.ctx, ast.Store))
        )
        # Not that of its gradient, which `zero_grad` switches off.
        and not (isinstance(node.value, ast.Attribute) and node.value.attr == "grad")
    )
