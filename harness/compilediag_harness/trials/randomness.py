"""Random numbers: one seed for every generator that the program uses, and how far each has come."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from compilediag_harness.base.post_import import PostImport
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.trials.plan import Notes
from compilediag_harness.wire import seed_label

MAX_DEVICES = 64


def seed_when_imported(seed: int, notes: Notes, imports: PostImport) -> None:
    """Seeds the generators that do not need torch, each when its module was imported. A program
    that seeds them itself does so later."""

    def python(module: Any) -> None:
        _seeded(seed, notes, lambda: module.seed(seed))

    def numpy(module: Any) -> None:
        _seeded(seed, notes, lambda: module.seed(seed % 2**32))

    imports.on_import("random", python)
    imports.on_import("numpy.random", numpy)


def seed_torch(seed: int, notes: Notes, torch: Any) -> None:
    """Seeds torch's generators; CUDA's only when the program begins to use it."""
    _seeded(seed, notes, lambda: torch.manual_seed(seed))


def _seeded(seed: int, notes: Notes, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        notes.note(seed_label(seed), f"{type(error).__name__}: {error}")
    else:
        notes.note(seed_label(seed))


def digests(torch: Any) -> tuple[tuple[str, str], ...]:
    """The generators that are in use, and a digest of each one's state."""
    return tuple(
        (name, hashlib.blake2b(state, digest_size=16).hexdigest()) for name, state in _states(torch)
    )


def _states(torch: Any) -> Iterator[tuple[str, bytes]]:
    python, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    if python is not None:
        yield "random", repr(python.getstate()).encode()
    if numpy is not None:
        kind, keys, *rest = numpy.get_state()
        yield "numpy", repr((kind, rest)).encode() + keys.tobytes()
    yield "torch", bytes(torch.default_generator.get_state().tolist())
    if torch_api.cuda_in_use(torch):
        for index, generator in enumerate(torch.cuda.default_generators[:MAX_DEVICES]):
            yield f"cuda:{index}", bytes(generator.get_state().tolist())
