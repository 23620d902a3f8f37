"""State that a callable can reach, and so could change: attributes, variables, containers, tensors.

Read as values by path, so that two readings can be compared. Followed are attributes, members of
containers, closures, defaults, methods, and the globals that functions of the program name; not
the globals of torch, of the standard library and of installed packages.
"""

from __future__ import annotations

import collections
import datetime as dt
import functools
import io
import logging
import operator
import pathlib
import queue
import random
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from compilediag_harness.base.object_graph import (
    MISSING,
    Holder,
    describe_kind_and_size,
    find_class_file,
    format_class_name,
    get_class,
    get_dict,
    is_a,
    is_pure_python,
    list_names,
    list_slots,
    refill,
)
from compilediag_harness.blame.source_locations import is_own
from compilediag_harness.shapes.trees import is_plain, is_plain_type
from compilediag_harness.torch_internals import torch_api

MAX_OBJECTS = 50_000
"""Objects that are followed."""

MANY = 64
"""Plain values in one container from which on they are one value of the reading."""

_WITHOUT_STATE = (
    *(types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodWrapperType),
    *(types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType),
    *(types.MemberDescriptorType, types.CodeType, types.ModuleType, type(NotImplemented)),
    *(re.Pattern, re.Match, type(threading.Lock()), type(threading.RLock()), threading.Thread),
    *(threading.Event, threading.Condition, threading.Semaphore, threading.Barrier),
    *(logging.Logger, logging.Handler, io.TextIOBase),
)
"""What is not followed: no result comes out of it again, or other threads wait for it."""

_VALUES = (dt.date, dt.time, dt.timedelta, dt.tzinfo, pathlib.PurePath)
"""Besides plain ones: they do not change."""

_OF_MODULES = {"_parameters": "parameter", "_buffers": "buffer", "_modules": ""}


class Path(NamedTuple):
    """The place of a value: what it is of the callable, and how to get there."""

    label: str
    """"attribute", "global", "variable", "argument", "class"; "buffer" and "parameter"."""
    dotted: str

    def __str__(self) -> str:
        return f"{self.label} {self.dotted}".rstrip()

    def join_member(self, name: str) -> Path:
        return Path(self.label, f"{self.dotted}.{name}" if self.dotted else name)

    def join_key(self, key: object) -> Path:
        return Path(self.label, f"{self.dotted}[{key!r}]")


@dataclass(slots=True)
class Reading:
    """The values that were found."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """By path: a plain value, a tensor, array or generator itself, or the kind of thing there."""
    holders: list[Holder] = field(default_factory=list[Holder])
    unseen: dict[str, str] = field(default_factory=dict[str, str])
    """What could not be looked into, by path: its type."""
    modules: list[Any] = field(default_factory=list[Any])
    followed: list[Any] = field(default_factory=list[Any])
    """Everything that was followed: its id must not be given to something else meanwhile."""


def read(torch: Any, roots: Iterable[tuple[Path, Any]]) -> Reading:
    """Read everything that can be reached from the roots, up to `MAX_OBJECTS` objects."""
    return _Reader(torch).read(roots)


def find_tensors(value: Any, tensor: type) -> Iterator[tuple[str, Any]]:
    """Find the tensors that can be reached from a value, with their paths."""
    for path, reached in read(sys.modules["torch"], [(Path("", ""), value)]).values.items():
        if is_a(reached, tensor):
            yield path.strip(), reached


class _Reader:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._reading = Reading()
        self._met: set[int] = set()
        self._named: set[tuple[int, str]] = set()
        self._stack: list[tuple[Path, Any]] = []
        self._module_tables = get_dict(torch.nn.Module()).keys() - {"training"}

    def read(self, roots: Iterable[tuple[Path, Any]]) -> Reading:
        self._stack = list(roots)[::-1]
        while self._stack:
            path, value = self._stack.pop()
            if len(self._met) >= MAX_OBJECTS:
                self._reading.unseen["everything else"] = f"more than {MAX_OBJECTS} objects"
                break
            try:
                self._visit(path, value)
            except Exception:  # of an object of the program's that is not what it seems
                self.read_unseen(path, value)
        return self._reading

    def _visit(self, path: Path, value: Any) -> None:
        reader = _find_reader(get_class(value))
        if reader is None:
            return
        if reader is not _Reader.read_plain:
            original = torch_api.get_original(value) if hasattr(value, "__dict__") else value
            if original is not value:
                self._stack.append((path, original))
                return
            if id(value) in self._met:
                return
            self._met.add(id(value))
            self._reading.followed.append(value)
        reader(self, path, value)

    def read_plain(self, path: Path, value: Any) -> None:
        self.read_value(path, value)

    def read_value(self, path: Path, value: Any) -> None:
        key, number = str(path), 1
        while key in self._reading.values:  # two functions may have a variable of one name
            number += 1
            key = f"{path} ({number})"
        self._reading.values[key] = value

    def read_tensor(self, path: Path, value: Any) -> None:
        if value.layout is not sys.modules["torch"].strided:
            self.read_unseen(path, value)  # a sparse or jagged one has no memory to be compared
            return
        self.read_value(path, value)
        if value.is_leaf and value.requires_grad:
            grad = value.grad
            self._add_holder(lambda its: setattr(value, "grad", its), lambda: value.grad, grad)
            self._stack += [] if grad is None else [(path.join_member("grad"), grad)]
        for name, member in get_dict(value).items():
            if not name.startswith("_dynamo"):
                self._stack.append((path.join_member(name), member))

    def read_unseen(self, path: Path, value: Any) -> None:
        kind = get_class(value)
        if hasattr(kind, "__get__"):  # a way to read attributes, with none of its own
            return
        self._reading.unseen.setdefault(str(path), format_class_name(value))

    # --- containers --------------------------------------------------------------------------

    def read_mapping(self, path: Path, value: Any) -> None:
        if is_a(value, dict):
            ordered = is_a(value, collections.OrderedDict)
            of: Any = collections.OrderedDict if ordered else dict
            # Not `dict(value)`: what a subclass makes of its items is code of the program.
            items = functools.partial(of.items, value)
            members: dict[Any, Any] = dict(items())
            self._add_holder(
                lambda its: refill(of, value, its), lambda: dict(items()), dict(members)
            )
        else:
            members = dict(value)
        self.read_value(path, describe_kind_and_size(value))
        if len(members) > MANY and all(map(is_plain, members.values())):
            self.read_value(path.join_member("*"), members)
        else:
            self.follow(
                (path.join_key(key) if is_plain(key) else path.join_key(index), member)
                for index, (key, member) in enumerate(members.items())
            )
        self._read_attributes(path, value)

    def read_collection(self, path: Path, value: Any) -> None:
        """Read a list, deque, tuple or set; plain items of a set, unordered, are one value."""
        is_set = is_a(value, (set, frozenset))
        copy: Any = set if is_set else list
        of: Any = next((kind for kind in (list, collections.deque, set) if is_a(value, kind)), None)
        if of is not None:
            self._add_holder(
                functools.partial(refill, of, value), functools.partial(copy, value), copy(value)
            )
        members: list[Any] = list(value)
        as_one = (is_set or len(members) > MANY) and all(map(is_plain, members))
        if not (is_set and as_one):
            self.read_value(path, describe_kind_and_size(value))
        if as_one:
            self.read_value(path.join_member("*"), copy(value))
        else:
            self.follow((path.join_key(index), member) for index, member in enumerate(members))
        self._read_attributes(path, value)

    # --- objects -----------------------------------------------------------------------------

    def read_object(self, path: Path, value: Any) -> None:
        self.read_value(path, format_class_name(value))
        self._read_attributes(path, value)
        kind = get_class(value)
        for name, member in list_slots(kind):
            self._read_place(
                path.join_member(name),
                functools.partial(member.__get__, value),
                functools.partial(member.__set__, value),
                functools.partial(member.__delete__, value),
            )
        if is_a(value, self._torch.nn.Module):
            self._reading.modules.append(value)
        self._stack.append((Path("class", kind.__qualname__), kind))

    def _read_attributes(self, path: Path, value: Any) -> None:
        inside: Any = getattr(value, "__dict__", None)
        if not is_a(inside, dict):
            return
        attrs = cast(dict[str, Any], inside)
        if attrs or not is_a(value, (dict, list, tuple, set)):
            self._add_holder(lambda its: refill(dict, attrs, its), lambda: dict(attrs), dict(attrs))
        of_torch = self._module_tables if is_a(value, self._torch.nn.Module) else ()
        for name, member in attrs.items():
            if name not in of_torch:
                self._stack.append((path.join_member(name), member))
            elif name in _OF_MODULES and is_a(member, dict):
                # Parameters, buffers or submodules, by torch's names for them.
                table = cast(dict[str, Any], member)
                self._add_holder(functools.partial(refill, dict, table), table.copy, table.copy())
                label = _OF_MODULES[name] or path.label
                self._stack += [
                    (Path(label, path.join_member(key).dotted), entry)
                    for key, entry in table.items()
                    if entry is not None
                ]
            elif member:  # most other tables of most modules are empty
                self._stack.append((path.join_member(name), member))

    def read_class(self, path: Path, value: Any) -> None:
        for owner in value.__mro__:
            if not is_own(find_class_file(owner)):
                continue
            for name, member in list(get_dict(owner).items()):
                dunder = name.startswith("__") and name.endswith("__")
                if not dunder and not is_a(member, _OF_CLASSES):
                    give = functools.partial(type.__setattr__, owner, name)
                    self._add_holder(give, functools.partial(get_dict(owner).get, name), member)
                if not dunder or is_a(member, types.FunctionType):
                    self._stack.append((Path("class", f"{owner.__qualname__}.{name}"), member))

    # --- functions ---------------------------------------------------------------------------

    def read_function(self, path: Path, value: Any) -> None:
        if str(value.__module__).startswith("compilediag_harness."):
            return
        code = value.__code__
        self.read_value(path, f"{value.__module__}.{value.__qualname__}")
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=False):
            self._read_place(
                Path("variable", name),  # which may not be assigned yet
                functools.partial(getattr, cell, "cell_contents"),
                functools.partial(setattr, cell, "cell_contents"),
            )
        named: dict[str, Any] = value.__kwdefaults__ or {}
        defaults: list[Any] = [*(value.__defaults__ or ()), *named.values()]
        default = Path("default", value.__qualname__)
        self.follow((default.join_key(index), member) for index, member in enumerate(defaults))
        self._read_attributes(path, value)
        if is_own(code.co_filename):
            self._read_globals(value.__globals__, list_names(code), "")

    def _read_globals(
        self, table: dict[str, Any], names: frozenset[str], prefix: str, seen: tuple[Any, ...] = ()
    ) -> None:
        """Read what code with these names finds in the globals of its module."""
        for name in sorted(names):
            member = table.get(name, MISSING)
            if is_a(member, types.ModuleType):
                if is_own(getattr(member, "__file__", None) or "") and member not in seen:
                    self._read_globals(get_dict(member), names, f"{prefix}{name}.", (*seen, member))
                continue
            if (id(table), name) in self._named:
                continue
            self._named.add((id(table), name))
            self._read_place(
                Path("global", f"{prefix}{name}"),
                functools.partial(operator.getitem, table, name),
                functools.partial(operator.setitem, table, name),
                functools.partial(table.pop, name, None),
            )

    def read_partial(self, path: Path, value: Any) -> None:
        self._stack.append((path, value.func))
        args = (*value.args, *value.keywords.values())
        self.follow((path.join_member("partial").join_key(i), arg) for i, arg in enumerate(args))

    def follow(self, members: Iterable[tuple[Path, Any]]) -> None:
        self._stack.extend(list(members)[::-1])

    def _read_place(
        self,
        path: Path,
        get: Callable[[], Any],
        give: Callable[[Any], None],
        empty: Callable[[], object] | None = None,
    ) -> None:
        """Read what may hold nothing: a slot, a variable of a closure, a global."""

        def read_now() -> Any:
            try:
                return get()
            except (AttributeError, ValueError, KeyError):
                return MISSING

        def put_back(its: Any) -> None:
            if its is not MISSING:
                give(its)
            elif empty is not None:
                empty()

        member = read_now()
        self._add_holder(put_back, read_now, member)
        if member is not MISSING:
            self._stack.append((path, member))

    def _add_holder(self, undo: Callable[[Any], None], now: Callable[[], Any], before: Any) -> None:
        self._reading.holders.append(Holder(undo, now, before))


_Read = Callable[[_Reader, Path, Any], None]


@functools.lru_cache(maxsize=4096)
def _find_reader(kind: Any) -> _Read | None:
    """Find the method that reads instances of a class; None for those that are not followed."""
    if kind.__module__.startswith("compilediag_harness."):
        return _lead_to("wrapped") if hasattr(kind, "wrapped") else None
    for its, reader in _iterate_readers():
        if issubclass(kind, its):
            return reader
    if is_plain_type(kind) or issubclass(kind, _VALUES):
        return _Reader.read_plain
    return _Reader.read_object if is_pure_python(kind) else _Reader.read_unseen


def _lead_to(*names: str) -> _Read:
    """Read what stands for others: what it has by these names has its path."""
    return lambda reader, path, value: reader.follow((path, getattr(value, its)) for its in names)


def _iterate_readers() -> Iterator[tuple[Any, _Read | None]]:
    # In order: the first whose classes an instance is of reads it.
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    yield type, _Reader.read_class
    yield torch.Tensor, _Reader.read_tensor
    yield (torch.Generator, random.Random), _Reader.read_value
    if numpy is not None:
        yield (numpy.ndarray, numpy.random.Generator, numpy.random.RandomState), _Reader.read_value
        yield (numpy.ufunc, numpy.dtype), None
    yield types.FunctionType, _Reader.read_function
    yield types.MethodType, _lead_to("__self__", "__func__")
    yield functools.partial, _Reader.read_partial
    yield (staticmethod, classmethod), _lead_to("__func__")
    yield property, _lead_to("fget", "fset", "fdel")
    yield type(functools.lru_cache(len)), _lead_to("__wrapped__")
    yield weakref.ReferenceType, lambda reader, path, value: reader.follow([(path, value())])
    yield _WITHOUT_STATE, None
    yield (dict, types.MappingProxyType), _Reader.read_mapping
    yield (list, collections.deque, tuple, set, frozenset), _Reader.read_collection
    yield threading.local, _Reader.read_object
    yield (queue.Queue, queue.SimpleQueue), _Reader.read_unseen  # other threads wait for them


_OF_CLASSES = (types.FunctionType, staticmethod, classmethod, property, types.MemberDescriptorType)
"""Entries of classes that are replaced by nobody."""
