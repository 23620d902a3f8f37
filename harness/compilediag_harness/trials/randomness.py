"""One seed for every generator of random numbers that the program uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compilediag_harness.base.post_import import PostImport
from compilediag_harness.trials.plan import Notes
from compilediag_harness.wire import seed_label


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
