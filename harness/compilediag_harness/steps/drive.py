"""Runs a user's step function for N steps: a loop that the harness can lengthen and shorten."""

from __future__ import annotations

from collections.abc import Callable

from compilediag_harness.base import process_options
from compilediag_harness.steps import step_hooks, step_limit


def drive(train: Callable[[int], object], steps: int = 60) -> int:
    """Calls `train(0)`, `train(1)`, ... and returns how often.

    Each call is one step, unless `train` calls `step()` itself. `compilediag run --steps N` sets
    the number of steps, in place of `steps`; what follows the loop then still runs.

    Raises:
        ValueError: `steps` is negative.
    """
    if steps < 0:
        raise ValueError(f"drive: steps must be 0 or more, not {steps}")
    step_limit.own_the_loop()
    steps = process_options.read().steps or steps
    for index in range(steps):
        before = step_hooks.marks()
        train(index)
        if step_hooks.marks() == before:
            step_hooks.step()
    return steps
