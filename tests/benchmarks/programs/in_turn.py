"""Blocks of work in one process, every second one observed: what programs `*_in_turn.py` share.

Both kinds of block meet the same drift of the machine, so that a cost far below the noise between
processes can be resolved. What is done once at an attachment and at its end is not in a block.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from compilediag_harness import attach
from compilediag_harness.base.journal import Journal
from compilediag_harness.base.session import Session
from compilediag_harness.wire import ProcessStarted, encode


def opening() -> bytes:
    return encode(ProcessStarted(0.0, 1, 0, 0, None, None, (), "", "", "", ""))


def measure(
    make: Callable[[], Callable[[], float]],
    pairs: int,
    folder: str,
    out: str,
    observed_less: Callable[[], AbstractContextManager[Any]] | None = None,
) -> None:
    """Writes pairs of what a block measured of itself, unobserved and observed, to `out`.

    `make()` gives the block; it is called while the process is observed, as a program that is run
    under compilediag from its start. With `observed_less` the first of each pair is observed too,
    in that context.
    """
    journal = Journal(folder, opening)

    def observed(action: Callable[[], Any]) -> Any:
        session = Session(journal.write)
        attach.install(session)
        try:
            return action()
        finally:
            attach.finish(session)
            attach.uninstall(session)

    def base(block: Callable[[], float]) -> float:
        if observed_less is None:
            return block()
        with observed_less():
            return observed(block)

    block = observed(make)
    found: list[tuple[float, float]] = []
    for number in range(-2, pairs):  # two pairs to warm up
        if number % 2:
            seen = observed(block)
            found.append((base(block), seen))
        else:
            found.append((base(block), observed(block)))
    with open(out, "w") as file:
        json.dump(found[2:], file)
