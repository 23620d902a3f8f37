"""The inputs that compiled entries accept, besides those that they were compiled for: their guards
are evaluated at the end of the process, and before a reset, with arguments of other sizes.

Nothing is compiled or called. Of the arguments of a compile are kept the metadata of plain tensors,
plain values, and weak references to all else: a model or a batch that dies is not kept alive. Then
only the guards on what can be made again are asked. Nothing is done in a call.
"""

from __future__ import annotations

import math
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import MISSING, WeakByIdentity, get_class, get_dict
from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.collectors import accepted_sizes
from compilediag_harness.shapes import trees
from compilediag_harness.torch_internals import torch_api, torch_guards, torch_replay
from compilediag_harness.torch_internals.torch_replay import CallModes
from compilediag_harness.wire import AcceptedSizes, InputsAsked, clip

MAX_S, MAX_FRAME_S = 2.0, 0.5
"""CPU seconds for all questions of a process, and for those about one frame."""

MAX_COMPILES = 8
"""Of a frame, whose arguments are kept: the last ones."""

MAX_ENTRIES = 16
"""Of a frame; one with more is not asked."""

MAX_GROUPS = 4
"""Groups of dimensions of a frame that get other sizes."""

MAX_MEMBERS, MAX_DEPTH = 256, 4
"""Of a container among the arguments that is kept."""

LARGEST, MAX_BYTES = 1 << 16, 1 << 27
"""The largest size, and the bytes of one tensor, which is not written to, that are asked for."""

MAX_TEXT = 4096
"""Characters of a text that is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tensor:
    """The metadata of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    device: Any
    requires_grad: bool
    inference: bool
    marks: Mapping[str, Any]
    """What the program has declared of it for Dynamo."""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def resize(self, sizes: Mapping[int, int]) -> _Tensor:
        """Get the same with other sizes, which lies in memory in the same order of dimensions."""
        shape = [sizes.get(dim, size) for dim, size in enumerate(self.shape)]
        strides, step = [0] * len(shape), 1
        # From the innermost on; of those of one stride, the last is the one with elements.
        dims = sorted(range(len(shape)), key=lambda dim: (self.strides[dim], self.shape[dim], -dim))
        for dim in dims:
            strides[dim], step = step, step * max(shape[dim], 1)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def is_dense(self) -> bool:
        """True if it has no gaps and no overlaps, so that other sizes have known strides."""
        same = self.resize({}).strides
        pairs = zip(self.shape, self.strides, same, strict=True)
        return all(size < 2 or ours == theirs for size, ours, theirs in pairs)


class _Container(NamedTuple):
    """A list, tuple or dict of the arguments."""

    kind: Any
    keys: tuple[Any, ...]
    members: tuple[Any, ...]


class _Compile(NamedTuple):
    """What was kept of one compile."""

    arguments: dict[str, Any]
    """Local variables of the frame by name."""
    left_out: tuple[str, ...]
    """Names of those that could not be kept."""
    modes: CallModes
    compile_id: str


class _Group(NamedTuple):
    """Dimensions that had one size in each compile, and get another one together."""

    size: int
    dims: list[tuple[_Tensor, int]]
    names: list[str]
    varied: bool


class AcceptedInputCollector:
    """Keeps what compiles were for, and asks their guards; for one session."""

    def __init__(self, session: Session, torch: Any) -> None:
        self._session, self._torch = session, torch
        self._below = torch_api.get_torch_function_disabler()
        self.forget()
        self._left_s = MAX_S

    def forget(self) -> None:
        """Forget what was kept: those entries are gone, or another process's."""
        self._compiles = WeakByIdentity[types.CodeType, list[_Compile]]()

    @property
    def has_compiles(self) -> bool:
        """True if compiles have been kept since the last question."""
        return len(self._compiles) > 0

    def remember(self, code: types.CodeType, compile_id: str, scope: Mapping[str, Any]) -> None:
        """Keep what the guards of a compile that ends were built for."""
        with self._below():
            held = {name: self._hold(value, 0) for name, value in scope.items()}
        left_out = tuple(name for name, its in held.items() if its is MISSING)
        arguments = {name: its for name, its in held.items() if its is not MISSING}
        kept = self._compiles.setdefault(code, [])
        modes = torch_replay.read_modes(self._torch)
        kept.append(_Compile(arguments, left_out, modes, compile_id))
        del kept[:-MAX_COMPILES]

    def _hold(self, value: Any, depth: int) -> Any:
        """Hold a value without keeping an object of the program alive; `MISSING`: impossible."""
        kind, torch = get_class(value), self._torch
        if trees.is_plain_type(kind) and not issubclass(kind, type):
            return MISSING if issubclass(kind, (str, bytes)) and len(value) > MAX_TEXT else value
        if kind is torch.Tensor and value.layout is torch.strided:
            return _Tensor(
                *(tuple(value.shape), tuple(value.stride()), value.dtype, value.device),
                requires_grad=value.requires_grad,
                inference=value.is_inference(),
                marks={name: mark for name, mark in get_dict(value).items() if "_dynamo" in name},
            )
        if kind in (list, tuple, dict):
            members = tuple(value.values() if kind is dict else value)
            if len(members) > MAX_MEMBERS or depth >= MAX_DEPTH:
                return MISSING
            keys = tuple(value) if kind is dict else ()
            held = tuple(self._hold(its, depth + 1) for its in (*keys, *members))
            names, parts = held[: len(keys)], held[len(keys) :]
            return (
                MISSING if any(its is MISSING for its in held) else _Container(kind, names, parts)
            )
        try:
            return weakref.ref(value)
        except TypeError:
            return MISSING

    def ask(self) -> None:
        """Ask the guards of every entry that is left, and report what they accept."""
        began = time.monotonic()
        for code, kept in self._compiles.items():
            started = time.thread_time()
            deadline = started + min(MAX_FRAME_S, self._left_s)
            with self._session.catch_faults("accepted inputs"):
                self._session.emit(self._ask_frame(code, kept, deadline))
            self._left_s -= time.thread_time() - started
        self.forget()
        self._session.add_overhead(time.monotonic() - began)

    def _ask_frame(
        self, code: types.CodeType, kept: list[_Compile], deadline: float
    ) -> InputsAsked:
        session, began = self._session, time.monotonic()
        where = source_locations.get_location(code)
        known = torch_guards.get_cache_entries(code)
        entries = [entry for entry in known if not torch_guards.is_deleted(entry)]
        answers: dict[str, Any] = {}
        try:
            asked = _Questions(self._torch, self._below, entries, kept, deadline)
            modes = asked.find_call()
            with torch_replay.enter_modes(self._torch, modes):
                answers = {
                    "compile_id": str(asked.serving.compile_id),
                    "sizes": tuple(asked.ask_sizes()),
                    "gradients": tuple(asked.ask_gradients()),
                    "partial": asked.partial,
                }
        except _NotAsked as reason:
            answers["not_asked"] = str(reason)
        seconds = time.monotonic() - began
        t, step = session.now(), session.step
        return InputsAsked(t, step, session.epoch, where, len(entries), seconds, **answers)


class _NotAsked(Exception):
    """The guards of a frame cannot be asked."""


class _Questions:
    """Questions about the entries of one frame."""

    def __init__(
        self,
        torch: Any,
        below: Callable[[], Any],
        entries: list[Any],
        kept: list[_Compile],
        deadline: float,
    ) -> None:
        self._torch, self._below, self._deadline = torch, below, deadline
        self._entries, self._kept = entries, kept
        self.partial = False
        """Some objects that the frame was given are gone."""
        self._checks: dict[int, Callable[[dict[str, Any]], bool]] = {}
        """Of what is left, by the identity of an entry."""

    def find_call(self) -> CallModes:
        """Find the last compile whose arguments some entry still accepts, and return its modes.

        Raises:
            _NotAsked: there is none, or asking would run code of the program.
        """
        entries = self._entries
        if not entries:
            raise _NotAsked("no compiled entry is left")
        if len(entries) > MAX_ENTRIES:
            raise _NotAsked(f"it has more than {MAX_ENTRIES} compiled entries")
        if torch_guards.has_modes():
            raise _NotAsked("a mode of the program's would see it")
        for entry in entries:
            if (text := torch_guards.find_python_guard(entry)) is not None:
                raise _NotAsked(f"a guard calls Python code for a value: {clip(text, 200)}")
        for compiled in reversed(self._kept):
            made, dead = self._make_all(compiled.arguments)
            with torch_replay.enter_modes(self._torch, compiled.modes):
                serving = next((its for its in entries if self._accepts(its, made)), None)
            if serving is not None:
                return self._choose(compiled, made, serving)
        # Of a call whose objects are gone, its own entry accepted it; what is asked are the guards
        # on what can be made again.
        for compiled in reversed(self._kept):
            made, dead = self._make_all(compiled.arguments)
            own = [its for its in entries if str(its.compile_id) == compiled.compile_id]
            if own and (dead or compiled.left_out):
                modes = self._choose(compiled, made, own[0])
                self.partial = True
                if self._accepts_size(made):
                    return modes
        raise _NotAsked("what it was given, or reads, has changed since it was compiled")

    def _choose(self, compiled: _Compile, made: dict[str, Any], serving: Any) -> CallModes:
        """Choose the call that is varied, and the entry that serves it."""
        self._call, self._arguments, self.serving = compiled, made, serving
        self._checks.clear()
        lane = torch_guards.get_entry_lane(serving)
        self._lane = [its for its in self._entries if torch_guards.get_entry_lane(its) == lane]
        return compiled.modes

    def _accepts_size(self, values: dict[str, Any]) -> bool:
        """True if some entry accepts the call that is varied with these values.

        Raises:
            _NotAsked: it depends on an object that is gone.
        """
        if not self.partial:
            return any(self._accepts(entry, values) for entry in self._lane)
        accepted = self._accepts(self.serving, values)
        if not accepted and any(self._accepts(entry, values) for entry in self._lane):
            raise _NotAsked("another entry may accept it, by an object that is gone")
        return accepted

    def _make_all(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Make the arguments of a call, and list those that are gone."""
        self._made = dict[int, Any]()
        values = {name: self._make(its, {}, self._made) for name, its in arguments.items()}
        dead = [name for name, value in values.items() if value is MISSING]
        return {name: value for name, value in values.items() if value is not MISSING}, dead

    def _change(self, changed: Mapping[int, _Tensor]) -> dict[str, Any]:
        """Make the arguments of the call that is varied, with some tensors changed."""
        made = {key: its for key, its in self._made.items() if key not in changed}
        held = ((name, self._call.arguments[name]) for name in self._arguments)
        return {name: self._make(its, changed, made) for name, its in held}

    def _make(self, held: Any, changed: Mapping[int, _Tensor], made: dict[int, Any]) -> Any:
        kind: Any = type(held)
        if kind is _Tensor:
            if id(held) not in made:
                made[id(held)] = self._make_tensor(changed.get(id(held), held))
            return made[id(held)]
        if kind is _Container:
            members = [self._make(its, changed, made) for its in (*held.keys, *held.members)]
            if any(its is MISSING for its in members):
                return MISSING
            count = len(held.keys)
            if held.kind is dict:
                return dict(zip(members[:count], members[count:], strict=True))
            return held.kind(members)
        if kind is weakref.ref:
            value = held()
            return MISSING if value is None else value
        return held

    def _make_tensor(self, held: _Tensor) -> Any:
        torch = self._torch
        options = {"dtype": held.dtype, "device": held.device}
        other = held.inference != torch.is_inference_mode_enabled()
        mode = torch.inference_mode(held.inference) if other else self._below()
        try:
            with self._below(), mode:
                tensor = torch.empty_strided(held.shape, held.strides, **options)
                if held.requires_grad:
                    tensor.requires_grad_()
        except RuntimeError as error:
            raise _NotAsked(f"a tensor of {list(held.shape)} cannot be made") from error
        for name, mark in held.marks.items():
            setattr(tensor, name, mark)
        return tensor

    def _accepts(self, entry: Any, values: dict[str, Any]) -> bool:
        """True if the guards of an entry hold for a call with these local variables."""
        if time.thread_time() > self._deadline:
            raise _NotAsked(f"it takes more than {MAX_FRAME_S:g} s, or the process {MAX_S:g} s")
        try:
            if not self.partial:
                return torch_guards.holds(entry, values)
            if id(entry) not in self._checks:
                self._checks[id(entry)] = torch_guards.make_check_of(entry, values.keys())
            return self._checks[id(entry)](values)
        except Exception as error:
            raise _NotAsked(f"a guard raised {type(error).__name__}") from error

    def ask_sizes(self) -> Iterator[AcceptedSizes]:
        """Ask for other sizes of each group of dimensions."""
        numbers = {n for entry in self._lane for n in torch_guards.list_size_numbers(entry)}
        groups = self._group_dimensions()[:MAX_GROUPS]
        for group in groups:
            bytes_each = max(its.nbytes // max(its.shape[dim], 1) for its, dim in group.dims)
            largest = max(min(LARGEST, MAX_BYTES // max(bytes_each, 1)), group.size)

            def accepts(size: int, group: _Group = group) -> bool:
                changed = {id(tensor): tensor.resize({dim: size}) for tensor, dim in group.dims}
                return self._accepts_size(self._change(changed))

            try:
                spans, asked_to = accepted_sizes.find_spans(accepts, group.size, largest, numbers)
            except _NotAsked:
                if group is groups[0]:
                    raise
                return  # what is known of others holds
            dtype = str(group.dims[0][0].dtype).partition(".")[2]
            names = tuple(group.names)
            yield AcceptedSizes(names, dtype, group.size, group.varied, tuple(spans), asked_to)

    def _group_dimensions(self) -> list[_Group]:
        """Group the dimensions of the tensors that had the same sizes in each compile; those first
        whose sizes differed, then in the order of the arguments."""
        found: dict[str, _Tensor] = {}
        histories: dict[str, list[tuple[int, ...]]] = {}
        for compiled in self._kept:
            for path, tensor in _iterate_tensors(compiled.arguments):
                histories.setdefault(path, []).append(tensor.shape)
        groups: dict[Any, _Group] = {}
        for path, tensor in _iterate_tensors(self._call.arguments):
            if not tensor.is_dense() or any(tensor is its for its in found.values()):
                continue
            found[path] = tensor
            seen = [its for its in histories[path] if len(its) == len(tensor.shape)]
            keys: list[Any] = []
            for dim, size in enumerate(tensor.shape):
                key = tuple(shape[dim] for shape in seen), size
                # A tensor has the same size twice: only the first of them is the batch.
                key = (*key, dim if size < 2 else keys.count(key))
                keys.append(key[:2])
                group = groups.setdefault(key, _Group(size, [], [], len(set(key[0])) > 1))
                group.dims.append((tensor, dim))
                group.names.append(f"{path}.shape[{dim}]")
        return sorted(groups.values(), key=lambda group: not group.varied)

    def ask_gradients(self) -> Iterator[bool]:
        """Ask with gradients on, and off."""
        known = not (self.partial or self._call.modes.inference)
        for gradients in (True, False) if known else ():
            with self._torch.set_grad_enabled(gradients):
                accepted = any(self._accepts(its, self._arguments) for its in self._lane)
            if accepted:
                yield gradients


def _iterate_tensors(arguments: Mapping[str, Any]) -> Iterator[tuple[str, _Tensor]]:
    """Iterate over the tensors of the arguments, each with its path."""
    for name, held in arguments.items():
        yield from _iterate_members(name, held)


def _iterate_members(path: str, held: Any) -> Iterator[tuple[str, _Tensor]]:
    if type(held) is _Tensor:
        yield path, held
    elif type(held) is _Container:
        keys = held.keys or range(len(held.members))
        for key, member in zip(keys, held.members, strict=True):
            yield from _iterate_members(f"{path}[{key!r}]", member)
