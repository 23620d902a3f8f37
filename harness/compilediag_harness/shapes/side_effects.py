"""Side effects of a call, besides its result: tensors, attributes, variables, random states.

Saved, compared and put back, so that a function can be tried without an effect on the program.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from compilediag_harness.base.object_graph import MISSING, put_back
from compilediag_harness.shapes import reachable
from compilediag_harness.shapes.trees import get_class
from compilediag_harness.torch_internals import torch_api, torch_names, torch_replay


def find_modules(torch: Any, function: Any) -> list[Any]:
    """Find the modules that a callable can reach, outer ones first."""
    return reachable.read(torch, list_roots(function)).modules


Roots = tuple[tuple[reachable.Path, Any], ...]


def list_roots(function: Any, arguments: Mapping[str, Any] | None = None) -> Roots:
    """List the roots from which what a call can change is read."""
    given = ((reachable.Path("argument", path), arg) for path, arg in (arguments or {}).items())
    return ((reachable.Path("attribute", ""), torch_api.get_original(function)), *given)


class SavedState:
    """The values that a callable can reach, and the random states: put back after a block.

    With `only_modules` the buffers and parameters of modules alone: what a program sets up in its
    first call, as a cache, then stays. Tensors and arrays of more than `most` bytes are left out,
    and with it all parameters.
    """

    def __init__(
        self, torch: Any, roots: Roots, *, only_modules: bool = False, most: int | None = None
    ) -> None:
        self._torch, self._roots, self._most = torch, roots, most
        self._random = RandomStates.read(torch)
        reading = reachable.read(torch, roots)
        self.modules = reading.modules
        self._holders = [] if only_modules else reading.holders
        self._unseen = dict(reading.unseen)
        values = reading.values
        if only_modules:
            values = {path: value for path, value in values.items() if path.startswith(_OF_MODULES)}
        self._before = self._copy_values(values)
        self._changeable = {
            path: value
            for path, value in values.items()
            if hasattr(value, "nbytes") or is_generator(get_class(value))
        }
        """What can be written to where it is."""

    @property
    def unseen(self) -> tuple[str, ...]:
        """Values that could not be looked into, with their types."""
        return tuple(f"{path} ({kind})" for path, kind in self._unseen.items())

    def __enter__(self) -> SavedState:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.put_back()

    def put_back(self) -> None:
        put_back(self._holders)
        for path, value in self._changeable.items():
            with torch_replay.skip_overwritten():
                self._put_back_value(self._before[path], value)
        self._random.put_back(self._torch)

    def _put_back_value(self, before: Any, value: Any) -> None:
        if self._is_same(before, value):
            return
        if is_generator(get_class(value)):
            set_state(value, before)
        elif isinstance(value, self._torch.Tensor):
            with self._torch.inference_mode(mode=value.is_inference()), self._torch.no_grad():
                if value.shape != before.shape:
                    value.resize_(before.shape)
                value.copy_(before)
        else:
            value[...] = before

    def has_used_random(self) -> bool:
        return not RandomStates.read(self._torch).is_same(self._random)

    def read_changed(self) -> dict[str, Any]:
        """Read the values that are not as they were, as they are now, by path; `MISSING`: gone."""
        now = reachable.read(self._torch, self._roots)
        for path, kind in now.unseen.items():
            self._unseen.setdefault(path, kind)
        changed = self._copy_values(
            {
                path: value
                for path, value in now.values.items()
                if path not in self._before or not self._is_same(self._before[path], value)
            }
        )
        gone = self._before.keys() - now.values.keys()
        return {**changed, **dict.fromkeys(gone, MISSING)}

    def get_before(self, path: str) -> Any:
        return self._before.get(path, MISSING)

    def _copy_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the values: what later writes change is not in the copies."""
        copies: dict[str, Any] = {}
        room = MAX_BYTES
        for path, value in values.items():
            copies[path] = value
            if is_generator(get_class(value)):
                copies[path] = read_state(value)
            elif hasattr(value, "nbytes"):
                is_parameter = issubclass(get_class(value), self._torch.nn.Parameter)
                if self._most is not None and (is_parameter or value.nbytes > self._most):
                    copies[path] = LEFT_OUT
                    continue
                room -= 0 if path.startswith(_OF_MODULES) else value.nbytes
                copies[path] = self._copy_array(value) if room >= 0 else TOO_LARGE
                if isinstance(copies[path], _NotCopied):
                    self._unseen.setdefault(path, f"{value.nbytes} bytes, {copies[path].reason}")
        return copies

    def _copy_array(self, value: Any) -> Any:
        if not isinstance(value, self._torch.Tensor):
            return value.copy()
        try:
            return value.detach().clone()
        except RuntimeError as error:
            if not torch_replay.is_overwritten(error):
                raise
            return _NotCopied(str(error).partition("\n")[0])

    def _is_same(self, before: Any, value: Any) -> bool:
        if isinstance(before, _NotCopied):
            return True
        if is_generator(get_class(value)):
            value = read_state(value)
        return is_equal(self._torch, before, value)


MAX_BYTES = 1 << 30
"""Of tensors and arrays that are copied, those of modules not counted."""

_OF_MODULES = ("buffer ", "parameter ")


@dataclass(frozen=True, slots=True)
class _NotCopied:
    reason: str


TOO_LARGE = _NotCopied("too many to be copied")
LEFT_OUT = _NotCopied("left out")


def is_equal(torch: Any, one: Any, other: Any) -> bool:
    """True if two values are the same; NaN is the same as NaN."""
    if one is other:
        return True
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return False
        first, second = one.detach(), other.detach()
        if torch.equal(first, second):
            return True
        return bool(((first == second) | (first.isnan() & second.isnan())).all())
    if get_class(one) is not get_class(other):
        return False
    if hasattr(one, "tobytes"):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and one.tobytes() == other.tobytes()
    try:
        return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - NaN
    except Exception:  # of an object's own comparison
        return False


def preserve_modules(torch: Any, function: Any) -> SavedState:
    """Preserve the tensors of modules and the random states in a block that calls `function`. What
    its calls write elsewhere (attributes, files) stays."""
    return SavedState(torch, list_roots(function), only_modules=True)


@contextmanager
def preserve_eagerly(
    torch: Any, function: Any, arguments: Mapping[str, Any] | None = None
) -> Generator[SavedState]:
    """Preserve everything that can be reached from `function` or from `arguments` in a block that
    calls it, and in which compiled callables run as they were written."""
    state = SavedState(torch, list_roots(function, arguments))
    eager = torch_names.get_imported(torch_names.EVAL_FRAME) is not None
    with state, _force_eager(torch) if eager else nullcontext():
        yield state


_lock = threading.Lock()
_eager_blocks = 0
_stance: AbstractContextManager[Any] | None = None


@contextmanager
def _force_eager(torch: Any) -> Generator[None]:
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


# --- generators of random numbers: their states saved, compared and put back ----------------------

MAX_DEVICES = 64


class RandomStates(NamedTuple):
    """States of the generators that a program usually draws from, by name: "random", "numpy" once
    the program has imported it, "torch", and "cuda:0"... once CUDA is in use."""

    by_name: dict[str, Any]

    @classmethod
    def read(cls, torch: Any) -> RandomStates:
        numpy = sys.modules.get("numpy.random")
        cuda = torch.cuda.get_rng_state_all() if torch_api.is_cuda_in_use(torch) else ()
        states: dict[str, Any] = {"random": random.getstate()}
        if numpy is not None:
            states["numpy"] = numpy.get_state()
        states["torch"] = torch.get_rng_state()
        return cls(states | {f"cuda:{i}": its for i, its in enumerate(cuda[:MAX_DEVICES])})

    def put_back(self, torch: Any) -> None:
        random.setstate(self.by_name["random"])
        torch.set_rng_state(self.by_name["torch"])
        for name, state in self.by_name.items():
            if name.startswith("cuda:"):
                torch.cuda.set_rng_state(state, name)
        if "numpy" in self.by_name:
            sys.modules["numpy.random"].set_state(self.by_name["numpy"])

    def is_same(self, other: RandomStates) -> bool:
        return make_comparable(self.by_name) == make_comparable(other.by_name)

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        texts = {key: repr(make_comparable(state)).encode() for key, state in self.by_name.items()}
        return tuple((n, hashlib.blake2b(t, digest_size=16).hexdigest()) for n, t in texts.items())


def make_comparable(state: Any) -> Any:
    """Make a state comparable: arrays and tensors in it, which are not, become bytes."""
    if hasattr(state, "tobytes"):
        return state.tobytes()
    if hasattr(state, "tolist"):
        return bytes(state.tolist())
    if isinstance(state, dict):
        members = cast(dict[Any, Any], state).items()
        return tuple((key, make_comparable(member)) for key, member in members)
    if type(state) is tuple and any(hasattr(member, "tobytes") for member in cast(Any, state)):
        return tuple(map(make_comparable, cast("tuple[Any, ...]", state)))
    return cast(Any, state)


@contextmanager
def preserve_random_states(torch: Any, seed: int | None = None) -> Generator[None]:
    """Preserve the generators in a block: they go on as if nothing had been drawn in it; with a
    seed it draws from that one."""
    states = RandomStates.read(torch)
    if seed is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        states.put_back(torch)


@functools.lru_cache(maxsize=4096)
def is_generator(kind: type) -> bool:
    """True if instances are generators of random numbers."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy.random")
    more = () if numpy is None else (numpy.Generator, numpy.RandomState)
    return issubclass(kind, (torch.Generator, random.Random, *more))


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """The state of one generator, which can be compared."""

    comparable: Any
    raw: Any = field(compare=False)

    def __repr__(self) -> str:
        return "a state of a generator"


def read_state(generator: Any) -> GeneratorState:
    """Read the state of a generator now."""
    if hasattr(generator, "bit_generator"):
        raw = generator.bit_generator.state
    else:
        read = generator.getstate if hasattr(generator, "getstate") else generator.get_state
        raw = read()
    return GeneratorState(make_comparable(raw), raw)


def set_state(generator: Any, state: GeneratorState) -> None:
    """Put a generator back to a state."""
    if hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state.raw
    else:
        write = generator.setstate if hasattr(generator, "setstate") else generator.set_state
        write(state.raw)
