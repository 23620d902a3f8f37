"""Generators of random numbers: their states kept, compared and put back."""

from __future__ import annotations

import functools
import hashlib
import random
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from compilediag_harness.torch_internals import torch_api

MAX_DEVICES = 64


class RandomStates(NamedTuple):
    """States of the generators that a program usually draws from, by name: "random", "numpy" once
    the program has imported it, "torch", and "cuda:0"... once CUDA is in use."""

    by_name: dict[str, Any]

    @classmethod
    def now(cls, torch: Any) -> RandomStates:
        numpy = sys.modules.get("numpy.random")
        cuda = torch.cuda.get_rng_state_all() if torch_api.cuda_in_use(torch) else ()
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

    def same(self, other: RandomStates) -> bool:
        return comparable(self.by_name) == comparable(other.by_name)

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        """A digest of each state."""
        texts = {name: repr(comparable(state)).encode() for name, state in self.by_name.items()}
        return tuple((n, hashlib.blake2b(t, digest_size=16).hexdigest()) for n, t in texts.items())


def comparable(state: Any) -> Any:
    """A state without the arrays and tensors in it, which cannot be compared as they are."""
    if hasattr(state, "tobytes"):
        return state.tobytes()
    if hasattr(state, "tolist"):
        return bytes(state.tolist())
    if isinstance(state, dict):
        items = cast(dict[Any, Any], state).items()
        return tuple((key, comparable(item)) for key, item in items)
    if type(state) is tuple and any(hasattr(item, "tobytes") for item in cast(Any, state)):
        return tuple(map(comparable, cast("tuple[Any, ...]", state)))
    return cast(Any, state)


@contextmanager
def restored_states(torch: Any, seed: int | None = None) -> Generator[None]:
    """A block after which the generators go on as if nothing had been drawn in it; with a seed it
    draws from that one."""
    states = RandomStates.now(torch)
    if seed is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        states.put_back(torch)


# --- a generator that an object holds -------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def is_generator(kind: type) -> bool:
    """Whether instances are generators of random numbers."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy.random")
    more = () if numpy is None else (numpy.Generator, numpy.RandomState)
    return issubclass(kind, (torch.Generator, random.Random, *more))


class GeneratorState:
    """The state of one generator, which can be compared."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GeneratorState) and comparable(self.raw) == comparable(other.raw)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return "a state of a generator"


def state_of(generator: Any) -> GeneratorState:
    """The state of a generator now."""
    if hasattr(generator, "bit_generator"):
        return GeneratorState(generator.bit_generator.state)
    read = generator.getstate if hasattr(generator, "getstate") else generator.get_state
    return GeneratorState(read())


def set_state(generator: Any, state: GeneratorState) -> None:
    """Puts a generator back to a state."""
    if hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state.raw
    else:
        write = generator.setstate if hasattr(generator, "setstate") else generator.set_state
        write(state.raw)
