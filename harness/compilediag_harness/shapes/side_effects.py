"""What a call leaves behind besides its result: buffers and parameters of modules, random states.

Saved, compared and put back, so that a function can be tried without an effect on the program.
"""

from __future__ import annotations

import functools
import random
import threading
import types
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from compilediag_harness.torch_internals import torch_api, torch_names


@dataclass(frozen=True, slots=True)
class RandomStates:
    """States of the generators that a program usually draws from."""

    python: object
    cpu: Any
    cuda: tuple[Any, ...]

    @classmethod
    def now(cls, torch: Any) -> RandomStates:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
        return cls(random.getstate(), torch.get_rng_state(), tuple(cuda))

    def put_back(self, torch: Any) -> None:
        random.setstate(cast(Any, self.python))
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))

    def same(self, torch: Any, other: RandomStates) -> bool:
        tensors = zip((self.cpu, *self.cuda), (other.cpu, *other.cuda), strict=False)
        return self.python == other.python and all(torch.equal(a, b) for a, b in tensors)


def modules_of(function: Any, module: type) -> list[Any]:
    """The modules that a callable uses, as far as they can be found: itself, the object of a bound
    method, arguments of a partial, variables that it closes over, globals that it names."""
    found: dict[int, Any] = {}
    for item in _held(torch_api.original_of(function), depth=3):
        if isinstance(item, module):
            found.setdefault(id(item), item)
    return list(found.values())


def _held(item: Any, depth: int) -> Iterator[Any]:
    yield item
    if depth:
        for inner in _parts(item):
            yield from _held(torch_api.original_of(inner), depth - 1)


def _parts(item: Any) -> Iterable[Any]:
    if isinstance(item, functools.partial):
        partial = cast(Any, item)
        return (partial.func, *partial.args, *partial.keywords.values())
    if isinstance(item, types.MethodType):
        return (item.__self__, item.__func__)
    if not isinstance(item, types.FunctionType):
        return ()
    cells = (cell.cell_contents for cell in item.__closure__ or () if _is_filled(cell))
    named = (item.__globals__.get(name) for name in item.__code__.co_names)
    return (*cells, *named)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # its variable is not assigned yet
        return False
    return True


class SavedState:
    """The buffers and parameters of some modules and the random states, as they are."""

    def __init__(self, torch: Any, modules: Iterable[Any]) -> None:
        self._torch = torch
        self._random = RandomStates.now(torch)
        self._held: dict[str, tuple[Any, Any]] = {}
        for module in modules:
            for name, tensor in (*module.named_buffers(), *module.named_parameters()):
                if name not in self._held:
                    self._held[name] = (tensor, tensor.detach().clone())

    def put_back(self) -> None:
        with self._torch.no_grad():
            for tensor, value in self._held.values():
                if not self._same(tensor, value):
                    tensor.copy_(value)
        self._random.put_back(self._torch)

    def random_used(self) -> bool:
        """Random numbers were drawn since."""
        return not RandomStates.now(self._torch).same(self._torch, self._random)

    def changed(self) -> dict[str, Any]:
        """The tensors that are not as they were, as they are now."""
        return {
            name: tensor.detach().clone()
            for name, (tensor, value) in self._held.items()
            if not self._same(tensor, value)
        }

    def before(self, name: str) -> Any:
        return self._held[name][1]

    def _same(self, one: Any, other: Any) -> bool:
        return bool(self._torch.equal(one.detach().isnan(), other.isnan())) and bool(
            self._torch.equal(one.detach().nan_to_num(), other.nan_to_num())
        )


@contextmanager
def restored(torch: Any, function: Any) -> Generator[SavedState]:
    """A block whose calls of `function` leave modules and random states as they were. What they
    write elsewhere (attributes, files) stays."""
    state = SavedState(torch, modules_of(function, torch.nn.Module))
    try:
        yield state
    finally:
        state.put_back()


@contextmanager
def restored_eager(torch: Any, function: Any) -> Generator[SavedState]:
    """The same, and compiled callables run as they were written."""
    with restored(torch, function) as state:
        if torch_names.loaded(torch_names.EVAL_FRAME) is None:
            yield state
            return
        with _everything_eager(torch):
            yield state


_lock = threading.Lock()
_eager_blocks = 0
_stance: AbstractContextManager[Any] | None = None


@contextmanager
def _everything_eager(torch: Any) -> Generator[None]:
    """torch has one stance for all threads, and `set_stance` puts back the one that it found. Of
    blocks that overlap the last to end would find the other's, and nothing would compile again."""
    global _eager_blocks, _stance
    with _lock:
        if _stance is None:
            _stance = torch.compiler.set_stance("force_eager")  # in force from here on
        _eager_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _eager_blocks -= 1
            if not _eager_blocks and _stance is not None:
                _stance.__exit__(None, None, None)
                _stance = None


@contextmanager
def seeded(torch: Any, seed: int) -> Generator[None]:
    """A block that draws from generators with this seed; they go on afterwards as if it had not
    been."""
    states = RandomStates.now(torch)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        states.put_back(torch)
