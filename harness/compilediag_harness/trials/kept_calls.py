"""Calls that are kept to be made again: of each outermost compiled callable the last one of each
kind, and what varied over all of its calls.

"Last" is among the last few, since not every call is looked at (`call_watcher.py`). What is kept
are references: a call costs microseconds, no tensor is read or copied, and what the
program writes into an argument later is in the kept call, too.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.base.object_graph import get_class
from compilediag_harness.shapes import trees
from compilediag_harness.torch_internals import (
    torch_api,
    torch_replay,
)
from compilediag_harness.torch_internals.torch_replay import CallModes
from compilediag_harness.wire import Location

MAX_CALLABLES = 32
MAX_KINDS = 8
"""Of one callable."""

MAX_BYTES = 512 << 20
"""Of the tensors of all kept calls, parameters not counted."""

MAX_SIZES = 64
MAX_VALUES = 16
"""Sizes of one dimension, and values of one number, that are told apart."""

MAX_NAMED = 4
"""Tensors that the label of a kind names."""

_GRADIENTS = {True: "gradients", False: "no gradients"}
PLAIN = (bool, int, float, str)


@dataclass(slots=True)
class KeptCall:
    """The last call of one kind."""

    label: str
    """The same in two runs, and in two states of the program."""
    paths: tuple[str, ...]
    """Of each leaf of the arguments, from the name of its parameter on."""
    root: Any = None
    """The original callable, from which everything is reached that a call can change."""
    get_function: Callable[[], Any] = lambda: None
    """Gets what is called again."""
    arguments: Any = ()
    """Positional and keyword arguments."""
    leaves: tuple[Any, ...] = ()
    inner: frozenset[int] = frozenset()
    """Positions of leaves that other operations gave, with a gradient to come: kept without it."""
    modes: CallModes | None = None
    modules: tuple[Any, ...] = ()
    training: tuple[tuple[Any, bool], ...] = ()
    """These modules and all in them, and whether each was in training."""
    nbytes: int = 0
    content: tuple[Any, ...] = ()
    """Shapes and numbers of the call."""
    sizes: dict[tuple[str, int], set[int]] = field(default_factory=dict[tuple[str, int], set[int]])
    """Sizes that were seen in calls of the kind, by path and dimension."""

    def replace(
        self,
        root: Any,
        get_function: Callable[[], Any],
        arguments: _Arguments,
        modes: CallModes,
        modules: tuple[Any, ...],
    ) -> None:
        """Replace the call by a later one of its kind."""
        leaves, tensors = arguments.leaves, {id(its): its for its in arguments.tensors}
        self.inner = frozenset(
            index
            for index, leaf in enumerate(leaves)
            if id(leaf) in tensors and leaf.requires_grad and not leaf.is_leaf
        )
        self.leaves = tuple(
            leaf.detach() if index in self.inner else leaf for index, leaf in enumerate(leaves)
        )
        # Containers that the program may change later are copied, what is in them is not.
        self.arguments = trees.rebuild(arguments.given, iter(self.leaves))
        self.root, self.get_function, self.modes = root, get_function, modes
        if self.modules != modules:
            every = {id(part): part for module in modules for part in module.modules()}
            self.training = tuple((part, part.training) for part in every.values())
            self.modules = modules


@dataclass(slots=True)
class KeptCallable:
    """A callable whose calls are kept, and what varied over them."""

    place: Location
    code: Any
    optional: frozenset[str] = frozenset()
    """Parameters that are None where they are not given."""
    reached: tuple[Any, ...] = ()
    """Modules that a function has by name."""
    calls: int = 0
    stacks: set[Any] = field(default_factory=set[Any])
    kinds: dict[Any, KeptCall] = field(default_factory=dict[Any, KeptCall])
    values: dict[str, dict[tuple[type, Any], None]] = field(
        default_factory=dict[str, dict[tuple[type, Any], None]]
    )
    """Numbers, flags and texts that were seen, each with its type, by path."""
    absent: set[str] = field(default_factory=set[str])
    """Paths where None was seen."""

    @property
    def name(self) -> str:
        return self.place.function

    def list_sizes(self, path: str, dimension: int, beside: str) -> set[int]:
        """List the sizes of a dimension in calls that have a tensor at the path `beside`, too."""
        calls = (its for its in self.kinds.values() if any(p == beside for p, _ in its.sizes))
        return {size for its in calls for size in its.sizes.get((path, dimension), ())}

    def note_content(self, call: KeptCall, arguments: _Arguments) -> None:
        """Note the sizes and values of a call, unless they are those of the last one."""
        if arguments.content == call.content:
            return
        call.content = arguments.content
        for path, leaf, kind in zip(call.paths, arguments.leaves, arguments.kinds, strict=True):
            if leaf is None:
                self.absent.add(path)
            elif kind in PLAIN:
                values = self.values.setdefault(path, {})
                if len(values) < MAX_VALUES:
                    values[kind, leaf] = None
            elif isinstance(kind, tuple):
                for dimension, size in enumerate(leaf.shape):
                    sizes = call.sizes.setdefault((path, dimension), set())
                    if len(sizes) < MAX_SIZES:
                        sizes.add(size)


class CallKeeper:
    """Keeps calls of a process."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._below = torch_api.get_torch_function_disabler()
        self.callables: dict[Any, KeptCallable] = {}
        self.left_out: dict[str, None] = {}
        """What is not kept, in words."""
        self._bytes = 0
        # Reentrant: a finalizer that runs in our code may call compiled code.
        self._lock = threading.RLock()

    def find_callable(self, code: Any, make: Callable[[], KeptCallable]) -> KeptCallable | None:
        """Find the callable of a code object or class, made at its first call; None above the
        limit."""
        with self._lock:
            kept = self.callables.get(code)
            if kept is None:
                if len(self.callables) == MAX_CALLABLES:
                    self.leave_out(f"callables after the first {MAX_CALLABLES}")
                    return None
                kept = self.callables[code] = make()
            return kept

    def keep(
        self,
        kept: KeptCallable,
        root: Any,
        get_function: Callable[[], Any],
        given: tuple[tuple[Any, ...], dict[str, Any]],
    ) -> None:
        """Keep a call that begins as the last one of its kind."""
        torch = self._torch
        with self._below(), self._lock:  # attributes of tensors are functions, too
            arguments = _Arguments(torch, given)
            modules = self._find_modules(kept, root, arguments.leaves)
            modes = torch_replay.read_modes(torch)
            training = tuple(module.training for module in modules)
            key = (arguments.structure, arguments.kinds, modes, training)
            call = kept.kinds.get(key)
            if call is None:
                if len(kept.kinds) == MAX_KINDS:
                    self.leave_out(f"{kept.name}: kinds of calls after the first {MAX_KINDS}")
                    return
                paths = _name_paths(kept.code, root, trees.list_paths(arguments.structure))
                call = KeptCall(_describe_kind(kept, training, modes, arguments), paths)
                kept.absent |= kept.optional.difference(path.partition(".")[0] for path in paths)
            kept.note_content(call, arguments)
            nbytes = arguments.count_bytes()
            if self._bytes + nbytes - call.nbytes > MAX_BYTES:
                self.leave_out(f"{kept.name}: calls with larger arguments ({nbytes >> 20} MiB)")
            elif arguments.is_on_device() and torch_replay.is_pool_in_use():
                self.leave_out(f"{kept.name}: calls after the first CUDA graph was recorded")
            else:
                self._bytes += nbytes - call.nbytes
                kept.kinds[key] = call
                call.replace(root, get_function, arguments, modes, modules)
                call.nbytes = nbytes

    def leave_out(self, what: str) -> None:
        """Note what is not kept, once."""
        self.left_out[what] = None

    def _find_modules(self, kept: KeptCallable, root: Any, leaves: list[Any]) -> tuple[Any, ...]:
        """Find the modules that a call runs: the one called, else those that it is given or has by
        name."""
        module = self._torch.nn.Module
        owner = getattr(root, "__self__", root)
        if issubclass(get_class(owner), module):
            return (owner,)
        modules = {id(leaf): leaf for leaf in leaves if issubclass(get_class(leaf), module)}
        modules.update((id(its), its) for its in kept.reached)
        return tuple(modules.values())


class _Arguments:
    """Arguments of one call, taken apart."""

    def __init__(self, torch: Any, given: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        self.given = given
        self.leaves: list[Any] = []
        self.structure = trees.flatten(given, self.leaves)
        self._parameter, kinds, content = torch.nn.Parameter, list[Any](), list[Any]()
        self.tensors: list[Any] = []
        for leaf in self.leaves:
            kind = get_class(leaf)  # an object may say that `__class__` is another
            if issubclass(kind, torch.Tensor):
                self.tensors.append(leaf)
                kinds.append((leaf.dtype, leaf.ndim))
                content.append(leaf.shape)
            else:
                kinds.append(kind)
                content.append(leaf if kind in PLAIN else None)
        self.kinds, self.content = tuple(kinds), tuple(content)

    def count_bytes(self) -> int:
        """Count the bytes of the tensors, parameters left out."""
        own = (its for its in self.tensors if not issubclass(get_class(its), self._parameter))
        return sum(its.numel() * its.element_size() for its in own)

    def is_on_device(self) -> bool:
        return any(its.is_cuda for its in self.tensors)


def list_optional(function: Any) -> frozenset[str]:
    """List the parameters of a function whose default is None."""
    code, defaults = getattr(function, "__code__", None), getattr(function, "__defaults__", None)
    named: dict[str, Any] = dict(getattr(function, "__kwdefaults__", None) or {})
    if code is not None and defaults:
        names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        named.update(zip(names, defaults, strict=True))
    return frozenset(name for name, default in named.items() if default is None)


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
    kept: KeptCallable, training: tuple[bool, ...], modes: CallModes, arguments: _Arguments
) -> str:
    words = ["training" if training[0] else "evaluation"] if training else []
    words.append("inference mode" if modes.inference else _GRADIENTS[modes.gradients])
    words += [f"autocast to {str(dtype).partition('.')[2]}" for _, dtype in modes.autocast]
    tensors = [f"{str(its.dtype).partition('.')[2]}[{its.ndim}d]" for its in arguments.tensors]
    more = [f"{len(tensors) - MAX_NAMED} more"] if len(tensors) > MAX_NAMED else []
    label = f"{', '.join(words)}; {', '.join(tensors[:MAX_NAMED] + more)}"
    same = sum(call.label.partition(" #")[0] == label for call in kept.kinds.values())
    return f"{label} #{same + 1}" if same else label
