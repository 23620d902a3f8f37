"""The knee of throughput: the batch size beyond which more rows a call give no more a second.

Sizes are measured in turn, so that a machine that is busy for a while slows all of them and not
one. A sudden loss is measured again before it is believed. Where the noise is larger than the gain,
no size is named. Of a `FixedShape` is measured what callers pay: the copy into the buffer, the
call, the cut, and the backward pass where gradients are enabled.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from compilediag_harness.shapes.buckets import BucketsImpossible
from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.side_effects import preserve_modules
from compilediag_harness.shapes.warming import count_warm_calls, repeat_example, run_backward
from compilediag_harness.wire import KneeMeasured

WITHIN = 0.05
"""The knee is the smallest size whose throughput is within this share of the best."""

CLIFF = 1.5
"""A size at which throughput falls by this factor below that of a smaller one is past a cliff."""

ROUNDS = 5
"""Measurements of each size, and of a cliff before it is believed."""

LONG_ENOUGH_S = 0.005
"""Brief calls are repeated and measured as one until they take so many seconds."""


@dataclass(frozen=True, slots=True)
class SizeMeasured:
    """One size and the seconds of its calls."""

    size: int
    seconds: tuple[float, ...]
    """In the order they were measured; empty where the first call failed."""
    problem: str | None = None
    """Why sizes from here on are not considered."""

    @property
    def call_s(self) -> float:
        """The lower quartile: what disturbs a call only makes it slower."""
        return _compute_quartiles(self.seconds)[0]

    @property
    def rows_per_s(self) -> float:
        return self.size / self.call_s

    @property
    def spread(self) -> float:
        """Between the quartiles, as a share of the lower one."""
        low, high = _compute_quartiles(self.seconds)
        return high / low - 1.0


@dataclass(frozen=True, slots=True)
class Knee:
    """The result of a search for the knee."""

    size: int | None
    """None: it could not be determined; `reason` says why."""
    measured: tuple[SizeMeasured, ...]
    """By size; the last may be the one with a problem."""
    gain: float | None
    """Throughput at the knee against that of the next smaller size, as a share of the latter."""
    noise: float | None
    """The widest spread of the sizes that decide."""
    reason: str | None = None


def find_knee(
    measure: Callable[[int], float],
    sizes: Iterable[int],
    *,
    fits: Callable[[int], bool] = lambda _: True,
    rounds: int = ROUNDS,
) -> Knee:
    """Find the smallest size within `WITHIN` of the best throughput.

    Args:
        measure: seconds of one call at a size, warm, with the device waited for.
        sizes: to be tried; larger ones than the first that fails, does not fit or lies past a cliff
            are not.
        fits: whether a size is below the cap of memory.
        rounds: measurements of each size.

    Raises:
        BucketsImpossible: there is no size, or a measurement is no positive number.
    """
    tried, stopped = _climb(measure, sorted(set(sizes)), fits, max(rounds, 1))
    for turn in range(1, max(rounds, 1)):
        # There and back: what warms up or slows down over the time meets all sizes alike.
        for size in sorted(tried, reverse=turn % 2 == 1):
            tried[size].append(_measure_seconds(measure, size))
    measured = [SizeMeasured(size, tuple(seconds)) for size, seconds in sorted(tried.items())]
    if not measured:
        return Knee(None, tuple(stopped), None, None, "not one size could be measured")
    best = max(point.rows_per_s for point in measured)
    index = next(i for i, point in enumerate(measured) if point.rows_per_s >= (1.0 - WITHIN) * best)
    knee, below = measured[index], measured[index - 1] if index else None
    gain = None if below is None else knee.rows_per_s / below.rows_per_s - 1.0
    fastest = max(measured, key=lambda point: point.rows_per_s)
    noise = max(point.spread for point in (knee, below or knee, fastest))
    # Of the smallest size it is only claimed that no other gains more than `WITHIN`.
    if noise > (WITHIN if gain is None else gain):
        reason = f"calls differ by {noise:.0%} at one size: more than what a size gains"
        return Knee(None, (*measured, *stopped), gain, noise, reason)
    return Knee(knee.size, (*measured, *stopped), gain, noise)


def _climb(
    measure: Callable[[int], float],
    sizes: Sequence[int],
    fits: Callable[[int], bool],
    rounds: int,
) -> tuple[dict[int, list[float]], list[SizeMeasured]]:
    """Climb the sizes, each once, until one fails, does not fit or lies past a cliff."""
    if not sizes or sizes[0] < 1:
        raise BucketsImpossible("the knee is looked for among sizes of at least 1")
    tried: dict[int, list[float]] = {}
    best = 0.0
    for size in sizes:
        if not fits(size):
            return tried, [SizeMeasured(size, (), "does not fit into memory")]
        try:
            seconds = [_measure_seconds(measure, size)]
            if size / seconds[0] * CLIFF < best:
                seconds += [_measure_seconds(measure, size) for _ in range(rounds)]
        except (RuntimeError, MemoryError) as error:  # how torch says that memory is exhausted
            return tried, [SizeMeasured(size, (), type(error).__name__)]
        if size / min(seconds) * CLIFF < best:
            return tried, [SizeMeasured(size, tuple(seconds), "past a cliff")]
        tried[size] = seconds
        best = max(best, size / min(seconds))
    return tried, []


def _measure_seconds(measure: Callable[[int], float], size: int) -> float:
    seconds = measure(size)
    if not 0.0 < seconds < float("inf"):
        raise BucketsImpossible(f"a call at size {size} took {seconds} seconds: no measurement")
    return seconds


def _compute_quartiles(seconds: Sequence[float]) -> tuple[float, float]:
    if len(seconds) == 1:
        return seconds[0], seconds[0]
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    return low, high


# --- of a FixedShape ----------------------------------------------------------------------------


def measure_knee(
    calls: PaddedCalls,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    cap: int | None,
    rounds: int,
) -> Knee:
    """Measure the knee among the sizes of a callable, with rows of the example.

    Raises:
        ShapeUnusable: the callable has several axes.
        BucketsImpossible: a measurement is no positive number.
    """
    torch, settings = calls.torch, calls.settings
    sizes, *others = settings.buckets
    if others:
        raise ShapeUnusable("knee measures the sizes of one axis: measure others by hand")
    call = calls.read_example(args, kwargs, "knee", ": its rows are repeated")
    # A compile of a frozen callable is a finding or an error, and new sizes compile.
    frozen, calls.frozen = calls.frozen, None

    @functools.cache
    def get_timer(size: int) -> Callable[[], float]:
        example = repeat_example(calls, call, (size,))
        return _make_timer(calls, *example, count_warm_calls(torch, call))

    most = math.inf if cap is None else cap
    try:
        with preserve_modules(torch, settings.function):
            knee = find_knee(
                lambda size: get_timer(size)(), sizes, fits=lambda size: size <= most, rounds=rounds
            )
    finally:
        calls.frozen = frozen
    called = [timing if timing.seconds else None for timing in knee.measured]
    calls.emit(
        KneeMeasured,
        sizes=tuple(timing.size for timing in knee.measured),
        call_s=tuple(timing and timing.call_s for timing in called),
        slow_call_s=tuple(timing and timing.call_s * (1.0 + timing.spread) for timing in called),
        problems=tuple(timing.problem for timing in knee.measured),
        knee=knee.size,
        reason=knee.reason,
        backward=torch.is_grad_enabled(),
    )
    return knee


def _make_timer(calls: PaddedCalls, args: Any, kwargs: Any, times: int) -> Callable[[], float]:
    """Make the measurement of a call at one size: seconds, warm, with the device waited for."""
    torch = calls.torch
    wait = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda: None

    def measure(count: int) -> float:
        wait()  # CUDA calls return before the device is done
        began = time.perf_counter()
        for _ in range(count):
            run_backward(torch, calls.run(args, kwargs, counted=False))
        wait()
        return (time.perf_counter() - began) / count

    measure(times)
    count = max(1, math.ceil(LONG_ENOUGH_S / max(measure(1), 1e-9)))
    return lambda: measure(count)
