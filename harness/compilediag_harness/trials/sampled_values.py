"""Sampled values that the program computed: elements, norm and digest of each tensor in them.
Nothing of a value is stored or changed, and no code of the program runs.

Outputs, and what modules and optimizers hold that compiled functions reach. Those are followed by
weak references: a program that drops its model drops it as in a plain run. What it held then is
read in a recorded run.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import math
import re
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import get_attributes, get_class, iterate_reached
from compilediag_harness.torch_internals import torch_api, torch_replay
from compilediag_harness.torch_internals.torch_names import Remover
from compilediag_harness.torch_internals.torch_open_calls import CallArguments
from compilediag_harness.trials.weights import Weights
from compilediag_harness.wire import MAIN, SampledValue, StateRead, clip

MAX_VALUES = 64
"""Elements of one tensor that are written."""

MAX_DEPTH = 8
MAX_BYTES = 128 << 20
"""Of a larger tensor only the written elements are looked at."""

_CHUNK = 1 << 22
_NUMBERS = (int, float, bool)
_sequences: tuple[Any, ...] = (list, tuple)
"""Their methods are called as functions of the builtin classes: a subclass may have its own."""


class ValueSampler:
    """Samples values; for one process."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._below = torch_api.get_torch_function_disabler()
        self._weights = Weights(torch_module)

    def read_leaves(
        self, leaves: Iterable[tuple[str, Any]], most: int, size: int, budget: float = math.inf
    ) -> tuple[tuple[SampledValue, ...], bool]:
        """Read at most so many values by path, and tell whether that is all; of each tensor `size`
        elements are written, of all together so many bytes read."""
        samples: list[SampledValue] = []
        complete = True
        for path, leaf in leaves:
            if len(samples) == most:
                return tuple(samples), False
            if math.isfinite(budget) and issubclass(get_class(leaf), self._torch.Tensor):
                bytes_of_leaf = int(leaf.numel()) * int(leaf.element_size())
                if bytes_of_leaf > budget:
                    complete = False
                    continue
                budget -= bytes_of_leaf
            sample, whole = self.read_leaf(path, leaf, size)
            samples.append(sample)
            complete = complete and whole
        return tuple(samples), complete

    def read_leaf(self, path: str, value: Any, size: int = MAX_VALUES) -> tuple[SampledValue, bool]:
        """Read one value, and whether all of it was; of a tensor `size` elements are written."""
        kind = get_class(value)
        if issubclass(kind, self._torch.Tensor):
            with torch_replay.skip_overwritten(), self._below(), self._torch.no_grad():
                return self._read_tensor(path, value, size)
        if kind in _NUMBERS:
            return _read_number(path, value), True
        plain = kind is str or kind is bytes or value is None
        digest = compute_digest(repr(value).encode()) if plain else ""
        return SampledValue(path, "other", kind.__name__, digest=digest), plain

    def _read_tensor(self, path: str, tensor: Any, values: int) -> tuple[SampledValue, bool]:
        torch = self._torch
        if not torch_api.is_plain_data(torch, tensor):
            return SampledValue(path, "other", type(tensor).__name__), False
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(map(int, tensor.shape))
        flat = tensor.detach().resolve_conj().resolve_neg()
        count = flat.numel()
        whole = count * flat.element_size() <= MAX_BYTES
        if whole:
            flat = flat.cpu().contiguous()
        sampled = _convert_to_float64(torch, _select_elements(torch, flat, values)).tolist()
        sample = SampledValue(
            path,
            "tensor",
            dtype,
            shape,
            tuple(value if math.isfinite(value) else None for value in sampled),
        )
        if not whole:
            return sample, False
        measured = self._measure(flat.reshape(-1))
        size = count * flat.element_size()  # on the host, and not copied
        # Invariant: `flat` is on the host, contiguous and alive until the digest is computed: the
        # memory is read in place, also of types that numpy does not have (bfloat16).
        content = (ctypes.c_char * size).from_address(flat.data_ptr()) if size else b""
        return dataclasses.replace(sample, digest=compute_digest(content), **measured), True

    def _measure(self, flat: Any) -> dict[str, Any]:
        """Measure the fields of a `SampledValue` that are about all elements, in chunks: no copy in
        float64 is larger than one."""
        torch = self._torch
        squares, largest, not_finite, weighted = 0.0, 0.0, 0, 0.0
        for number, start in enumerate(range(0, flat.numel(), _CHUNK)):
            chunk = _convert_to_float64(torch, flat[start : start + _CHUNK])
            lost = chunk.numel() - int(chunk.isfinite().sum())
            if lost:
                not_finite += lost
                chunk = chunk.nan_to_num(0.0, 0.0, 0.0)
            squares += float(torch.dot(chunk, chunk))
            largest = max(largest, float(chunk.abs().max()))
            weighted += float(torch.dot(chunk, self._weights.get(chunk))) / (number + 1)
        norm, measured = math.sqrt(squares), {"largest": largest, "not_finite": not_finite}
        return measured | ({"norm": norm, "weighted": weighted} if math.isfinite(norm) else {})


def iterate_leaves(path: str, value: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, leaf) in containers of Python, of torch's pytree, and in dataclasses."""
    kind = get_class(value)
    members = list_members(kind, value) if depth else None
    if members is None:
        yield path, value
        return
    for name, member in members:
        yield from iterate_leaves(path + name, member, depth - 1)


def list_members(kind: Any, value: Any) -> list[tuple[str, Any]] | None:
    """List (path, member) of a container; None of what is none, and of one of an unknown class."""
    for base in _sequences:
        if kind is base or (issubclass(kind, base) and hasattr(kind, "_fields")):
            return [(f"[{index}]", member) for index, member in enumerate(base.__iter__(value))]
    if kind is dict:
        return [(f"[{clip(repr(key), 64)}]", member) for key, member in value.items()]
    if torch_api.is_registered(kind):
        members = torch_api.get_members(value)
        return [(f".{name}", m) for name, m in zip(members.names, members.values, strict=True)]
    if dataclasses.is_dataclass(kind) and hasattr(value, "__dict__"):
        held: dict[str, Any] = object.__getattribute__(value, "__dict__")
        return [(f".{name}", member) for name, member in held.items()]
    return None


def _read_number(path: str, value: float) -> SampledValue:
    try:
        as_float = float(value)
    except OverflowError:
        as_float = math.inf
    size = abs(as_float) if math.isfinite(as_float) else None
    return SampledValue(
        path,
        "number",
        type(value).__name__,
        values=(None if size is None else as_float,),
        norm=size,
        largest=size,
        not_finite=int(size is None),
        digest=compute_digest(repr(value).encode()),
    )


def _select_elements(torch: Any, tensor: Any, values: int) -> Any:
    """Select so many elements, evenly spread; all, where there are no more."""
    count = tensor.numel()
    if count <= values:
        return tensor.reshape(-1)
    places = [index * count // values for index in range(values)]
    if tensor.is_contiguous():
        return tensor.reshape(-1)[torch.tensor(places, device=tensor.device)]
    # Of a large tensor that is not contiguous no copy is made.
    indices = torch.unravel_index(torch.tensor(places, device=tensor.device), tensor.shape)
    return tensor[indices]


def _convert_to_float64(torch: Any, tensor: Any) -> Any:
    """Convert to float64 on the host, complex numbers as pairs."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor).reshape(-1)
    return tensor.to(device="cpu", dtype=torch.float64)


def compute_digest(data: Any) -> str:
    """Compute the digest of bytes, or of memory."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


MAX_OBJECTS = 64
"""Objects of one reader that are distinguished."""

MAX_SAMPLES = 4096
MAX_IN_RECORD = 512
"""Values of one record, which stays far below the longest line of a journal."""

MAX_STATE_VALUES = 16
MAX_MODULES = 4096
MAX_ELEMENTS = 64
AT_END_BYTES = 512 << 20

MAX_RUN_S = 1e5
"""Numbers this near to what a clock shows are times."""
_TIMED = re.compile(
    r"(?i)time|took|elapsed|start|began|begin|duration|latency|speed|throughput|mfu|fps|per_s|^dt"
    r"|_dt|sec|_ms|^ms|^t\d?$|memory|_mb|_gb"
)

_ADDED = ("_compiled_call_impl", "_is_torch_compile")
"""What torch puts into modules that it compiles."""

PLAIN = (bool, int, float, str, type(None))


class _Followed(NamedTuple):
    """An object that is read."""

    reference: weakref.ref[Any]
    number: int
    """Of those of its class."""


class StateReader:
    """Reads what the objects hold that compiled calls reached, numbered by their class."""

    def __init__(self, torch_module: Any, reader: ValueSampler) -> None:
        self._torch, self._reader = torch_module, reader
        self._kinds = (torch_module.nn.Module, torch_module.optim.Optimizer)
        self._followed: dict[int, _Followed] = {}
        self._counts = Counter[str]()

    def follow(self, owner: Any, code: Any, call: CallArguments) -> None:
        """Follow, by weak references, the object whose method is called; else the modules and
        optimizers that the function is given or reaches."""
        if owner is not None:
            self.follow_object(owner)
            return
        inside = () if code is None else iterate_reached(call.function, code)
        for value in (*call.args, *call.kwargs.values(), *inside):
            if issubclass(get_class(value), self._kinds):
                self.follow_object(value)

    def follow_object(self, value: Any) -> None:
        """Follow one object, by a weak reference."""
        # An id may be used again: it is known only while its own object lives.
        known = self._followed.get(id(value))
        if (known is not None and known.reference() is value) or (
            self._counts.total() >= MAX_OBJECTS
        ):
            return
        name = get_class(value).__qualname__
        with contextlib.suppress(TypeError):  # it takes no weak references
            self._followed[id(value)] = _Followed(weakref.ref(value), self._counts[name])
            self._counts[name] += 1

    def watch_ends(self, handle_end: Callable[[Any], None]) -> Remover:
        """Call `handle_end` with each module and optimizer that is about to go: followed or not, by
        the garbage collector too."""
        kinds: list[Any] = [kind for kind in self._kinds if not hasattr(kind, "__del__")]

        def end(value: Any) -> None:  # of a class only a function is a method
            handle_end(value)

        for kind in kinds:
            kind.__del__ = end

        def restore() -> None:
            for kind in kinds:
                del kind.__del__

        return restore

    def read_last(self, now: float, value: Any) -> list[StateRead]:
        """Read what an object holds that is about to go, if it is followed."""
        followed = self._followed.pop(id(value), None)
        return [] if followed is None else self._read_object(now, followed, value)

    def read(self, now: float) -> list[StateRead]:
        """Read what the objects hold now that are still alive, and the names of the program."""
        pairs = [(followed, followed.reference()) for followed in self._followed.values()]
        events = [
            event
            for followed, value in pairs
            if value is not None
            for event in self._read_object(now, followed, value)
        ]
        return [*events, *self._read_main(now)]

    def _read_main(self, now: float) -> list[StateRead]:
        """Read the tensors and numbers that the names of the program's module hold, if there are
        any; but for times."""
        held = dict(vars(sys.modules["__main__"])).items()
        own = [(name, its) for name, its in held if not name.startswith("__")]
        leaves = (leaf for name, its in own for leaf in iterate_leaves(name, its))
        kept = (leaf for leaf in leaves if self._is_computed(*leaf))
        read = self._reader.read_leaves(kept, MAX_IN_RECORD, MAX_STATE_VALUES, AT_END_BYTES)
        return [StateRead(now, MAIN, *read)] if read[0] else []

    def _is_computed(self, path: str, value: Any) -> bool:
        kind = get_class(value)
        if kind is not float:
            return kind in _NUMBERS or issubclass(kind, self._torch.Tensor)
        clocks = (clock() for clock in (time.time, time.monotonic, time.perf_counter))
        is_time = any(abs(value - its) < min(MAX_RUN_S, its / 2) for its in clocks)
        return not is_time and _TIMED.search(path) is None

    def _read_object(self, now: float, followed: _Followed, value: Any) -> list[StateRead]:
        state = iterate_state(self._torch, value)
        limits = MAX_SAMPLES, MAX_STATE_VALUES, AT_END_BYTES
        samples, complete = self._reader.read_leaves(state, *limits)
        name, index = get_class(value).__qualname__, followed.number
        saved = tuple(self._iterate_saved_keys(value))
        events: list[StateRead] = []
        for start in range(0, max(len(samples), 1), MAX_IN_RECORD):
            part, keys = samples[start : start + MAX_IN_RECORD], saved if start == 0 else ()
            events.append(StateRead(now, name, part, complete, index, keys))
        return events

    def _iterate_saved_keys(self, module: Any, prefix: str = "", depth: int = 64) -> Iterator[str]:
        """Iterate over the keys of a module's `state_dict()`, without calling it."""
        base = self._torch.nn.Module
        if not issubclass(get_class(module), base) or depth == 0:
            return
        names = get_attributes(module)
        left_out = names.get("_non_persistent_buffers_set") or ()
        for table in ("_parameters", "_buffers"):
            for name, tensor in dict(names.get(table) or {}).items():
                if tensor is not None and not (table == "_buffers" and name in left_out):
                    yield f"{prefix}{name}"
        for name, held in dict(names.get("_modules") or {}).items():
            yield from self._iterate_saved_keys(held, f"{prefix}{name}.", depth - 1)
        if get_class(module).get_extra_state is not base.get_extra_state:
            yield f"{prefix}_extra_state"


def iterate_state(torch: Any, value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over attributes by path: of the object, of the modules in it and of theirs."""
    seen: set[int] = set()
    waiting = [(path, value)]
    while waiting and len(seen) < MAX_MODULES:
        path, owner = waiting.pop(0)
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        names = dict(get_attributes(owner))
        if issubclass(get_class(owner), torch.optim.Optimizer):
            yield from _iterate_optimizer(path, names)
        for table in ("_parameters", "_buffers"):
            for name, tensor in dict(names.get(table) or {}).items():
                if tensor is not None:
                    yield f"{path}.{name}", tensor
        for name, held in names.items():
            if name in _list_own_names(torch) or type(name) is not str:
                continue
            if issubclass(get_class(held), torch.nn.Module):
                waiting.append((f"{path}.{name}", held))
            elif _is_plain(held):
                yield from iterate_leaves(f"{path}.{name}", held)
        modules = dict(names.get("_modules") or {}).items()
        waiting.extend((f"{path}.{name}", held) for name, held in modules if held is not None)


@functools.cache
def _list_own_names(torch: Any) -> frozenset[str]:
    """List the attributes that every module has, and what torch puts into those it compiles."""
    return frozenset((*get_attributes(torch.nn.Module()), *_ADDED))


def _iterate_optimizer(path: str, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Iterate over what an optimizer writes: the parameters, and what it holds of each. Its
    hyperparameters may be tensors or numbers."""
    state: Any = names.get("state")
    groups: Any = names.get("param_groups")
    if not issubclass(get_class(state), dict) or get_class(groups) is not list:
        return
    for group, held in enumerate(groups):
        for place, parameter in enumerate(held["params"]):
            where = f"{path}.param_groups[{group}]['params'][{place}]"
            yield where, parameter
            written: dict[str, Any] = state.get(parameter) or {}
            for name, value in written.items():
                if hasattr(value, "numel"):
                    yield f"{where} {name}", value


def _is_plain(value: Any) -> bool:
    """True if a value is a number, a flag, a short text, or a list of some."""
    kind = get_class(value)
    if kind in PLAIN:
        return kind is not str or len(value) <= 256
    if kind is list or kind is tuple:
        return len(value) <= MAX_ELEMENTS and all(get_class(element) in PLAIN for element in value)
    return False
