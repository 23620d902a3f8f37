"""What a call leaves behind besides its result: tensors, attributes, variables, random states.

Saved, compared and put back, so that a function can be tried without an effect on the program.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from compilediag_harness.base.object_graph import ABSENT, put_back
from compilediag_harness.shapes import reachable
from compilediag_harness.shapes.random_states import RandomStates, is_generator, set_state, state_of
from compilediag_harness.shapes.trees import class_of
from compilediag_harness.torch_internals import torch_api, torch_names


def modules_of(torch: Any, function: Any) -> list[Any]:
    """The modules that a callable can reach, outer ones first."""
    return reachable.read(torch, roots_of(function)).modules


Roots = tuple[tuple[reachable.Path, Any], ...]


def roots_of(function: Any, arguments: Mapping[str, Any] | None = None) -> Roots:
    """Where reading what a call can change begins."""
    given = ((reachable.Path("argument", path), item) for path, item in (arguments or {}).items())
    return ((reachable.Path("attribute", ""), torch_api.original_of(function)), *given)


class SavedState:
    """What a callable can reach, and the random states, as they are.

    With `only_modules` the buffers and parameters of modules alone: what a program sets up in its
    first call, as a cache, then stays.
    """

    def __init__(self, torch: Any, roots: Roots, *, only_modules: bool = False) -> None:
        self._torch, self._roots = torch, roots
        self._random = RandomStates.now(torch)
        reading = reachable.read(torch, roots)
        self.modules = reading.modules
        self._holders = [] if only_modules else reading.holders
        self._unseen = dict(reading.unseen)
        values = {
            path: value
            for path, value in reading.values.items()
            if not only_modules or path.startswith(_OF_MODULES)
        }
        self._before = self._copies(values)
        self._changeable = {path: value for path, value in values.items() if _is_changeable(value)}
        """What can be written to where it is."""

    @property
    def unseen(self) -> tuple[str, ...]:
        """What could not be looked into, with its type."""
        return tuple(f"{path} ({kind})" for path, kind in self._unseen.items())

    def put_back(self) -> None:
        """Makes everything as it was."""
        put_back(self._holders)
        for path, value in self._changeable.items():
            if not self._same(self._before[path], value):
                self._write(path, value)
        self._random.put_back(self._torch)

    def random_used(self) -> bool:
        """Random numbers were drawn since."""
        return not RandomStates.now(self._torch).same(self._random)

    def changed(self) -> dict[str, Any]:
        """The values that are not as they were, as they are now, by path."""
        now = reachable.read(self._torch, self._roots)
        for path, kind in now.unseen.items():
            self._unseen.setdefault(path, kind)
        found = self._copies(
            {
                path: value
                for path, value in now.values.items()
                if path not in self._before or not self._same(self._before[path], value)
            }
        )
        gone = self._before.keys() - now.values.keys()
        return {**found, **dict.fromkeys(gone, ABSENT)}

    def before(self, path: str) -> Any:
        return self._before.get(path, ABSENT)

    def _copies(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What the values are now, for ever."""
        copies: dict[str, Any] = {}
        room = MAX_BYTES
        for path, value in values.items():
            copies[path] = value
            if is_generator(class_of(value)):
                copies[path] = state_of(value)
            elif hasattr(value, "nbytes"):
                room -= 0 if path.startswith(_OF_MODULES) else value.nbytes
                copies[path] = self._copy(value) if room >= 0 else _TooLarge(value.nbytes)
                if room < 0:
                    self._unseen.setdefault(path, f"{value.nbytes} bytes, too many to be copied")
        return copies

    def _copy(self, value: Any) -> Any:
        return value.detach().clone() if isinstance(value, self._torch.Tensor) else value.copy()

    def _write(self, path: str, value: Any) -> None:
        before = self._before[path]
        if is_generator(class_of(value)):
            set_state(value, before)
        elif isinstance(value, self._torch.Tensor):
            with self._torch.no_grad(), self._torch.inference_mode(mode=value.is_inference()):
                if value.shape != before.shape:
                    value.resize_(before.shape)
                value.copy_(before)
        elif hasattr(value, "nbytes"):
            value[...] = before

    def _same(self, before: Any, value: Any) -> bool:
        if isinstance(before, _TooLarge):
            return True
        if is_generator(class_of(value)):
            value = state_of(value)
        return equal(self._torch, before, value)


MAX_BYTES = 1 << 30
"""Of tensors and arrays that are copied, those of modules not counted."""

_OF_MODULES = ("buffer ", "parameter ")


def _is_changeable(value: Any) -> bool:
    return hasattr(value, "nbytes") or is_generator(class_of(value))


@dataclass(frozen=True, slots=True)
class _TooLarge:
    nbytes: int


def equal(torch: Any, one: Any, other: Any) -> bool:
    """Whether two values are the same; NaN is the same as NaN."""
    if one is other:
        return True
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return _equal_tensors(torch, one, other)
    if class_of(one) is not class_of(other):
        return False
    if hasattr(one, "tobytes"):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and one.tobytes() == other.tobytes()
    try:
        return bool(one == other) or (_is_nan(one) and _is_nan(other))
    except Exception:  # of an object's own comparison
        return False


def _equal_tensors(torch: Any, one: Any, other: Any) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if torch.equal(one, other):
        return True
    first, second = one.detach(), other.detach()
    return bool(((first == second) | (first.isnan() & second.isnan())).all())


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 - NaN is no other


@contextmanager
def restored(torch: Any, function: Any) -> Generator[SavedState]:
    """A block whose calls of `function` leave the tensors of modules and the random states as they
    were. What they write elsewhere (attributes, files) stays."""
    state = SavedState(torch, roots_of(function), only_modules=True)
    try:
        yield state
    finally:
        state.put_back()


@contextmanager
def restored_eager(
    torch: Any, function: Any, arguments: Mapping[str, Any] | None = None
) -> Generator[SavedState]:
    """A block whose calls of `function` leave everything as it was that can be reached from it or
    from `arguments`, and in which compiled callables run as they were written."""
    state = SavedState(torch, roots_of(function, arguments))
    eager = torch_names.loaded(torch_names.EVAL_FRAME) is not None
    try:
        with _everything_eager(torch) if eager else nullcontext():
            yield state
    finally:
        state.put_back()


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
