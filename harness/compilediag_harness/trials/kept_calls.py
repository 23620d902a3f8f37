"""Calls that are kept to be made again: of each outermost compiled callable the last one of each
kind, with what was seen over all of its calls; and which functions called it.

"Last" is among the first calls of the callable and those whose number is a power of two, so that
two states of a program keep the same ones. What is kept are references: what the program writes
into an argument later is in the kept call, too. Of a tensor on a device it is a copy in memory of
the host, of an object that may hold such tensors a weak reference. With them comes the small state
that the call found: flags, counts, short buffers.
"""

from __future__ import annotations

import inspect
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.base.object_graph import get_attributes, get_class, iterate_reached
from compilediag_harness.base.session import Session
from compilediag_harness.blame.line_events import iterate_own_frames
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.shapes import trees
from compilediag_harness.shapes.layouts import read_parameters
from compilediag_harness.shapes.side_effects import SavedState, is_equal, list_roots
from compilediag_harness.torch_internals import torch_api, torch_open_calls, torch_replay
from compilediag_harness.torch_internals.torch_open_calls import CallArguments
from compilediag_harness.torch_internals.torch_replay import CallModes
from compilediag_harness.trials import forked
from compilediag_harness.trials.boundary_calls import BoundaryCalls, read_arguments
from compilediag_harness.trials.sampled_values import PLAIN
from compilediag_harness.wire import CallersSeen, Location, RecordingPlan

EVERY_CALL = 64
EVERY = 16
"""The first calls of a callable are looked at, and of later ones so many; and each in another mode
than the one before."""

FIRST = 16
"""The first calls of a callable that are kept."""

MAX_CALLABLES = 32
MAX_KINDS = 8
"""Of one callable."""

MAX_BYTES = 512 << 20
"""Of the tensors of all kept calls, parameters not counted."""

MAX_STATE = 1 << 16
"""Bytes of one tensor of the state that a call found."""

MAX_COUNTED = 4096
"""Elements of a tensor that the called object holds, and that is varied."""

MAX_SEEN = 64
"""Shapes of one tensor, and values of one number, that are told apart in one kind of call."""

MAX_NAMED = 4
"""Tensors that the label of a kind names."""

MAX_STACKS = 3
MAX_CALLERS = 8
MAX_LOOKS = 64
"""Calls of a callable whose callers are looked at."""

_GRADIENTS = {True: "gradients", False: "no gradients"}


@dataclass(slots=True)
class KeptCall:
    """The last call of one kind."""

    label: str
    paths: tuple[str, ...]
    """Of each leaf of the arguments, from the name of its parameter on."""
    seen: dict[str, dict[tuple[Any, Any], None]]
    """Kinds of leaves with shapes or plain values, by path, over the calls of this kind."""
    modes: CallModes
    root: Any = None
    """The original callable, from which everything is reached that a call can change."""
    function: Any = None
    """What is called again."""
    arguments: Any = ()
    """Positional and keyword arguments."""
    number: int = 0
    """Which of the calls of the callable it is, from 0."""
    step: int = 0
    leaves: tuple[Any, ...] = ()
    devices: tuple[Any, ...] = ()
    """Of leaves that are held as copies in memory of the host, else None."""
    modules: tuple[Any, ...] = ()
    training: tuple[tuple[Any, bool], ...] = ()
    """These modules and all in them, and whether each was in training."""
    nbytes: int = 0
    found: SavedState | None = None
    """What it found where it began; None on a machine with a device."""
    held: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of `read_small`, what it found."""
    first: tuple[Any, dict[str, Any]] = (None, {})
    """The object of the first call of this kind, and what that found."""

    @property
    def owner(self) -> Any:
        """The module or object that is called, or whose method is."""
        return get_owner(self.root)

    def list_counters(self) -> list[str]:
        """List what the object holds that was another value in the first call, or is by now."""
        then = self.first[1] if self.first[0] is self.owner else self.held
        sides, torch = (then, read_small(self.owner)), sys.modules["torch"]
        return [
            name
            for name, its in self.held.items()
            if any(name in side and not is_equal(torch, its, side[name]) for side in sides)
        ]

    def restore(self) -> str | None:
        """Restore the arguments to what was given, at the end of the program; the path of one that
        is gone."""
        gone, leaves = list[str](), list[Any]()
        for path, held, device in zip(self.paths, self.leaves, self.devices, strict=True):
            leaf: Any = held() if get_class(held) is weakref.ref else held
            gone += [path] if leaf is None and held is not None else []
            leaves.append(leaf if device is None else torch_replay.copy_to_device(leaf, device))
        self.leaves, self.arguments = tuple(leaves), trees.rebuild(self.arguments, iter(leaves))
        return gone[0] if gone else None


@dataclass(slots=True)
class KeptCallable:
    """A callable whose calls are kept."""

    place: Location
    code: Any
    optional: frozenset[str]
    """Parameters that are None where they are not given."""
    reached: tuple[Any, ...]
    """Modules that it has by name."""
    calls: int = 0
    mode: Any = None
    """Of the last call."""
    changed_at: int = 0
    """Which call was the first in this mode."""
    stacks: set[Any] = field(default_factory=set[Any])
    kinds: dict[Any, KeptCall] = field(default_factory=dict[Any, KeptCall])

    @property
    def name(self) -> str:
        return self.place.function

    def list_sizes(self, path: str, dimension: int, beside: str) -> set[int]:
        """List the sizes of a dimension in calls that have a tensor at the path `beside`, too."""
        return {
            shape[dimension]
            for call in self.kinds.values()
            if any(isinstance(kind, tuple) for kind, _ in call.seen.get(beside, ()))
            for kind, shape in call.seen.get(path, ())
            if isinstance(kind, tuple) and len(shape) > dimension
        }

    def iterate_values(self, path: str) -> Iterator[Any]:
        """Iterate over the plain values that were seen at a path, each once."""
        every = {key: None for call in self.kinds.values() for key in call.seen.get(path, ())}
        return (value for kind, value in every if kind in PLAIN)


class CallKeeper:
    """Keeps calls of a process."""

    def __init__(self, session: Session, torch: Any, plan: RecordingPlan) -> None:
        self._session, self._torch = session, torch
        self._keeps = plan.vary_s > 0
        self.repeats = plan.repeats
        self._below = torch_api.get_torch_function_disabler()
        self.callables: dict[Any, KeptCallable] = {}
        self.left_out: dict[str, None] = {}
        """What is not kept, in words."""
        self._bytes = 0
        # Reentrant: a finalizer that runs in our code may call compiled code.
        self._lock = threading.RLock()
        self.boundaries: BoundaryCalls | None = None
        if self._keeps and plan.boundaries:
            self.boundaries = BoundaryCalls(plan.boundaries, self._keep_boundary)
            if not self.boundaries.events.resume():
                problem = self.boundaries.events.problem
                self.left_out[f"calls of {plan.boundaries[0].function}: {problem}"] = None

    def uninstall(self) -> None:
        """Look at no call any more; those that are kept stay."""
        if self.boundaries is not None:
            self.boundaries.events.close()

    def look_at_call(self, place: Location, root: Any, function: Any, call: CallArguments) -> None:
        """Look at an outermost compiled call that begins: note its callers, and keep it. `root`:
        the module or function that is called; `function`: the innermost one, with its place."""
        # Attributes of tensors are functions, too.
        with self._session.catch_faults("recording: a call is kept"), self._below(), self._lock:
            kept = self._find_callable(place, root, function)
            if kept is None or not self._should_look(kept, root, call):
                return
            frame = torch_open_calls.this_thread.open[-1].frame
            if kept.calls <= MAX_LOOKS and len(kept.stacks) < MAX_STACKS:
                self._note_callers(kept, frame.f_back)
            inside = self.boundaries is not None and self.boundaries.contains(frame.f_back)
            if self._keeps and not inside:
                wrapper = torch_replay.make_function(frame)
                self._keep(kept, root, wrapper, (call.args, call.kwargs))

    def _should_look(self, kept: KeptCallable, root: Any, call: CallArguments) -> bool:
        training = getattr(get_owner(root), "training", None)
        mode = self._torch.is_grad_enabled(), training, len(call.args), tuple(call.kwargs)
        count, before = kept.calls, kept.mode
        kept.calls, kept.mode = count + 1, mode
        kept.changed_at = kept.changed_at if mode == before else count
        return count < EVERY_CALL or not count % EVERY or mode != before

    def _note_callers(self, kept: KeptCallable, caller: types.FrameType | None) -> None:
        codes = [frame.f_code for frame in iterate_own_frames(caller)]
        # "<module>", "<lambda>" and the like cannot be called by name.
        named = [code for code in codes if not code.co_name.startswith("<")][:MAX_CALLERS]
        if tuple(named) in kept.stacks:
            return
        kept.stacks.add(tuple(named))
        parameters = tuple(tuple(inspect.getargs(code).args) for code in named)
        callers = tuple(map(get_definition, named))
        self._session.emit(CallersSeen(self._session.now(), kept.place, callers, parameters))

    def _keep_boundary(self, frame: types.FrameType) -> None:
        """Keep the call of a function of the program's that begins."""
        code = frame.f_code
        with self._session.catch_faults("recording: a call of the program's is kept"):
            arguments = read_arguments(frame)
            if arguments is None:
                self.left_out[f"{get_definition(code).function}: a generator or coroutine"] = None
                return
            function = torch_replay.make_function(frame)
            if code.co_varnames[:1] == ("self",):  # what it holds is varied, as of a compiled one
                (owner, *args), kwargs = arguments
                function, arguments = types.MethodType(function, owner), (tuple(args), kwargs)
            with self._below(), self._lock:
                kept = self._find_callable(get_definition(code), function, function)
                if kept is not None:
                    kept.calls += 1
                    self._keep(kept, function, function, arguments)

    def _find_callable(self, place: Location, root: Any, function: Any) -> KeptCallable | None:
        """Find the callable of a code or class, made at its first call; None above the limit."""
        code = getattr(function, "__code__", None)
        key = code or get_class(root)
        if key in self.callables:
            return self.callables[key]
        if len(self.callables) >= MAX_CALLABLES:
            self.left_out[f"callables after the first {MAX_CALLABLES}"] = None
            return None
        names = iterate_reached(function, code) if code is not None else ()
        reached = tuple(its for its in names if issubclass(get_class(its), self._torch.nn.Module))
        optional = frozenset(its.name for its in read_parameters(function) if its.default is None)
        kept = KeptCallable(place, code, optional, reached)
        return self.callables.setdefault(key, kept)

    def _keep(self, kept: KeptCallable, root: Any, function: Any, given: Any) -> None:
        """Keep a call that begins as the last one of its kind."""
        structure, leaves = trees.flatten(given)
        content = [_read_content(leaf) for leaf in leaves]
        modules = self._find_modules(kept, root, leaves)
        modes = torch_replay.read_modes(self._torch)
        training = tuple(module.training for module in modules)
        key = structure, tuple(kind for kind, _ in content), modes, training
        tensors = [leaf for leaf in leaves if is_tensor(leaf)]
        call = kept.kinds.get(key)
        if call is None:
            if len(kept.kinds) >= MAX_KINDS:
                self.left_out[f"{kept.name}: kinds of calls after the first {MAX_KINDS}"] = None
                return
            paths = _name_paths(kept.code, root, trees.list_paths(structure))
            absent = kept.optional.difference(path.partition(".")[0] for path in paths)
            label = _describe_kind(kept, training, modes, tensors)
            seen = {name: {(type(None), None): None} for name in absent}
            call = KeptCall(label, paths, seen, modes)
        for path, its in zip(call.paths, content, strict=True):
            seen = call.seen.setdefault(path, {})
            if len(seen) < MAX_SEEN:
                seen[its] = None
        own = [its for its in tensors if not self._is_parameter(its)]
        nbytes = sum(its.numel() * its.element_size() for its in own)
        copies = any(self._find_device(its) is not None for its in tensors)
        number = kept.calls - 1
        is_due = number < FIRST or kept.calls.bit_count() == 1 or number == kept.changed_at
        if self._bytes + nbytes - call.nbytes > MAX_BYTES:
            self.left_out[f"{kept.name}: calls with larger arguments ({nbytes >> 20} MiB)"] = None
        elif copies and not torch_api.is_cuda_in_use(self._torch):
            # A copy would break the capture of a graph.
            why = "calls in the capture of a CUDA graph, or of no CUDA device"
            self.left_out[f"{kept.name}: {why}"] = None
        elif is_due or key not in kept.kinds:
            # What can fail comes first: a call is kept whole, or as it was.
            found = self._read_small_state(root, call.paths, leaves)
            devices = tuple(map(self._find_device, leaves))
            held = tuple(map(self._hold, leaves))
            # Containers that the program may change later are copied, what is in them is not.
            call.arguments = trees.rebuild(given, iter(held))
            call.found, call.devices, call.leaves = found, devices, held
            kept.kinds[key] = call
            self._bytes += nbytes - call.nbytes
            call.root, call.function, call.nbytes = root, function, nbytes
            small = read_small(call.owner)
            call.held = {n: its.clone() if is_tensor(its) else its for n, its in small.items()}
            call.first = call.first if call.first[1] else (call.owner, call.held)
            call.number, call.step = number, self._session.step
            if call.modules != modules:
                every = {id(part): part for module in modules for part in module.modules()}
                call.training = tuple((part, part.training) for part in every.values())
                call.modules = modules

    def _read_small_state(self, root: Any, paths: Any, leaves: list[Any]) -> SavedState | None:
        """Read what a call that begins can change, but for parameters and large tensors."""
        if forked.has_accelerator(self._torch):
            return None
        roots = list_roots(root, dict(zip(paths, leaves, strict=True)))
        return SavedState(self._torch, roots, most=MAX_STATE)

    def _find_device(self, leaf: Any) -> Any:
        """Find the device of a tensor that is to be copied from it, else None."""
        is_on_host = not is_tensor(leaf) or leaf.is_cpu or self._is_parameter(leaf)
        return None if is_on_host else leaf.device

    def _is_parameter(self, leaf: Any) -> bool:
        return issubclass(get_class(leaf), self._torch.nn.Parameter)

    def _hold(self, leaf: Any) -> Any:
        """Hold a leaf of the arguments without the operations that gave it, nor memory of a
        device."""
        if is_tensor(leaf):
            if self._find_device(leaf) is not None:
                return torch_replay.copy_to_host(self._torch, leaf)
            cut = leaf.requires_grad and not leaf.is_leaf
            return torch_replay.copy_marks(leaf, leaf.detach().requires_grad_()) if cut else leaf
        kind, held = get_class(leaf), (*PLAIN, self._torch.nn.Module)
        if issubclass(kind, held) or not forked.has_accelerator(self._torch):
            return leaf
        try:
            return weakref.ref(leaf)
        except TypeError:  # as a dtype; what holds a tensor can be referred to so
            return leaf

    def _find_modules(self, kept: KeptCallable, root: Any, leaves: list[Any]) -> tuple[Any, ...]:
        """Find the modules that a call runs: the one called, else those it is given or names, and
        those that the object holds whose method it is."""
        module, owner = self._torch.nn.Module, get_owner(root)
        if issubclass(get_class(owner), module):
            return (owner,)
        named = *leaves, *kept.reached, *get_attributes(owner).values()
        every = map(torch_api.get_original, named)
        return tuple({id(its): its for its in every if issubclass(get_class(its), module)}.values())


def is_tensor(value: Any) -> bool:
    """True for a tensor; an object may say that `__class__` is another."""
    return issubclass(get_class(value), sys.modules["torch"].Tensor)


def get_owner(root: Any) -> Any:
    """Get the module or object that is called, or whose method is."""
    return getattr(root, "__self__", root)


def read_small(owner: Any) -> dict[str, Any]:
    """Read the numbers and small tensors that an object holds itself, by name; parameters and what
    is on a device are left out."""
    torch, own = sys.modules["torch"], get_attributes(owner)
    held: dict[str, Any] = {**own, **(own.get("_buffers") or {})}
    kinds = torch.Tensor, torch.nn.Buffer if hasattr(torch.nn, "Buffer") else torch.Tensor
    return {
        name: its
        for name, its in held.items()
        if (get_class(its) in (bool, int, float) and name != "training")
        or (get_class(its) in kinds and its.is_cpu and torch_api.is_plain_tensor(torch, its))
        if get_class(its) not in kinds or (its.numel() <= MAX_COUNTED and not its.is_complex())
    }


def _read_content(leaf: Any) -> tuple[Any, Any]:
    """Read the kind of a leaf, and its shape or its plain value."""
    if is_tensor(leaf):
        return (leaf.dtype, leaf.ndim), leaf.shape
    kind = get_class(leaf)
    return kind, leaf if kind in PLAIN else None


def _name_paths(code: Any, root: Any, paths: list[str]) -> tuple[str, ...]:
    """Name the leaves of arguments by the parameters of a function instead of their positions."""
    is_bound = not isinstance(root, types.FunctionType)
    count = getattr(code, "co_argcount", 0)
    names = code.co_varnames[is_bound:count] if count else ()
    named: list[str] = []
    for path in paths:
        by_keyword, _, rest = path.partition(".")
        first, dot, inner = rest.partition(".")
        if by_keyword == "0":
            first = names[int(first)] if int(first) < len(names) else f"args[{first}]"
        named.append(f"{first}{dot}{inner}")
    return tuple(named)


def _describe_kind(
    kept: KeptCallable, training: tuple[bool, ...], modes: CallModes, tensors: list[Any]
) -> str:
    words = ["training" if training[0] else "evaluation"] if training else []
    words.append("inference mode" if modes.inference else _GRADIENTS[modes.gradients])
    words += [f"autocast to {str(dtype).partition('.')[2]}" for _, dtype in modes.autocast]
    named = [f"{str(its.dtype).partition('.')[2]}[{its.ndim}d]" for its in tensors]
    more = [f"{len(named) - MAX_NAMED} more"] if len(named) > MAX_NAMED else []
    label = f"{', '.join(words)}; {', '.join(named[:MAX_NAMED] + more)}"
    same = sum(call.label.partition(" #")[0] == label for call in kept.kinds.values())
    return f"{label} #{same + 1}" if same else label
