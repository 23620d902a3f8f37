"""Measures what a callable takes at each of its sizes, and finds the knee of its throughput.

What is measured is what callers pay: the copy into the buffer, the call, the cut, and the backward
pass where gradients are enabled. Modules, gradients and random states are as before afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from compilediag_harness.shapes.gradients import backward
from compilediag_harness.shapes.knee import Knee, SizeMeasured, find_knee
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.side_effects import restored
from compilediag_harness.shapes.warming import calls_to_warm, repeated
from compilediag_harness.wire import KneeMeasured

LONG_ENOUGH_S = 0.005
"""Brief calls are repeated and measured as one until they take so many seconds."""


def knee_of(
    calls: PaddedCalls,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    cap: int | None,
    rounds: int,
) -> Knee:
    """The knee among the sizes of a callable, measured with rows of the example."""
    torch, settings = calls.torch, calls.settings
    sizes, *others = settings.buckets
    if others:
        raise ShapeUnusable("knee measures the sizes of one axis: measure others by hand")
    call = calls.read_example(args, kwargs, "knee", ": its rows are repeated")
    frozen, calls.frozen = calls.frozen, None
    timers: dict[int, Callable[[], float]] = {}

    def seconds(size: int) -> float:
        if size not in timers:
            timers[size] = _timer(
                calls, *repeated(calls, call, (size,)), calls_to_warm(torch, call)
            )
        return timers[size]()

    def fits(size: int) -> bool:
        return cap is None or size <= cap

    try:
        with restored(torch, settings.function):
            knee = find_knee(seconds, sizes, fits=fits, rounds=rounds)
    finally:
        calls.frozen = frozen
    calls.emit(
        KneeMeasured,
        sizes=tuple(item.size for item in knee.measured),
        call_s=tuple(item.call_s if item.seconds else None for item in knee.measured),
        slow_call_s=tuple(_slow(item) for item in knee.measured),
        problems=tuple(item.problem for item in knee.measured),
        knee=knee.size,
        reason=knee.reason,
        backward=torch.is_grad_enabled(),
    )
    return knee


def _timer(calls: PaddedCalls, args: Any, kwargs: Any, times: int) -> Callable[[], float]:
    """Measures a call at one size, warm, with the device waited for."""
    torch = calls.torch
    wait = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda: None

    def seconds(count: int) -> float:
        wait()
        began = time.perf_counter()
        for _ in range(count):
            backward(torch, calls.run(args, kwargs, counted=False))
        wait()
        return (time.perf_counter() - began) / count

    seconds(times)
    count = max(1, math.ceil(LONG_ENOUGH_S / max(seconds(1), 1e-9)))
    return lambda: seconds(count)


def _slow(item: SizeMeasured) -> float | None:
    return item.call_s * (1.0 + item.spread) if item.seconds else None
