"""Calls of a callable at every size it will run at, forward and backward: once before they count,
and measured, for the batch size from which on more rows a call bring no more rows a second.

Warmed up are exactly the sizes, the largest first: what CUDA graphs record later then fits into the
memory of those before. Modules, gradients and random states are as before afterwards.

Sizes are measured in turn, so that a machine that is busy for a while slows all of them and not
one. A sudden loss is measured again before it is believed. Where the noise is larger than the gain,
no size is named. Of a `FixedShape` is measured what callers pay: the copy into the buffer, the
call, the cut, and the backward pass where gradients are enabled.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from compilediag_harness.shapes import padded_calls, shape_log
from compilediag_harness.shapes.buckets import BucketsImpossible
from compilediag_harness.shapes.dims import ShapeUnusable, Sizes, again
from compilediag_harness.shapes.layouts import FlatCall
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.side_effects import modules_of, restored
from compilediag_harness.shapes.trees import flatten
from compilediag_harness.torch_internals import torch_api, torch_compiles
from compilediag_harness.wire import FixedShapeWarmed, KneeMeasured

CALLS = 2
"""At each size: what the second call still compiles, the first did not warm."""

CUDA_CALLS = 3
"""CUDA graphs warm up, record and replay."""


def warm(calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Calls at every size with rows of the example; how many compiles and recordings began."""
    torch, settings = calls.torch, calls.settings
    call = calls.read_example(args, kwargs, "warmup", ": its rows are repeated")
    graphs = math.prod(len(sizes) for sizes in settings.buckets)
    _check_limit(calls, graphs)
    with restored(torch, settings.function):
        calls.outputs_of(call)
        listening = padded_calls.listen()
        before, at, has_backward = padded_calls.begun(), time.monotonic(), False
        calls.frozen = None
        every = [(math.prod(sizes), sizes) for sizes in itertools.product(*settings.buckets)]
        for _, bucket in sorted(every, reverse=True):
            for _ in range(calls_to_warm(torch, call)):
                # Anew each time: a backward frees what leads to rows that need a gradient.
                repeated_args, repeated_kwargs = repeated(calls, call, bucket)
                result = calls.run(repeated_args, repeated_kwargs, counted=False)
                has_backward = backward(torch, result) or has_backward
    padded_calls.listen()  # Dynamo may have been imported only now
    begun = len(padded_calls.since(before)) if listening else 0
    of, took_s = calls.declared, time.monotonic() - at
    shape_log.sinks.emit(
        lambda t, step: FixedShapeWarmed(
            t, step, of.number, of.function, graphs, begun, has_backward, t - took_s
        )
    )
    return begun


def _check_limit(calls: PaddedCalls, graphs: int) -> None:
    """Raises above the limit at which torch runs eagerly, without a word."""
    torch, function = calls.torch, calls.settings.function
    modules = modules_of(torch, function)
    training = (f"{id(module)} {module.training}" for module in modules)
    mode = frozenset((torch.is_grad_enabled(), *training))
    calls.warmed_modes.add(mode)
    if torch_api.original_of(function) is function:
        return
    limit = torch_compiles.recompile_limit_of(function)
    needed = graphs * len(calls.warmed_modes)
    if limit is None or needed <= limit:
        return
    modes = len(calls.warmed_modes)
    times = f" in {modes} modes (gradients, training)" if modes > 1 else ""
    calls.warmed_modes.discard(mode)
    raise ShapeUnusable(
        f"{graphs} sizes{times} need {needed} graphs, but torch compiles a function {limit} times "
        "and then runs it eagerly without saying so: choose fewer sizes, or set "
        f"torch._dynamo.config.recompile_limit = {needed} before (or what torch.compile was given)"
    )


def calls_to_warm(torch: Any, call: FlatCall) -> int:
    """Calls after which nothing more is compiled or recorded at a size."""
    tensors = (leaf for leaf in call.leaves if isinstance(leaf, torch.Tensor))
    return CUDA_CALLS if any(leaf.is_cuda for leaf in tensors) else CALLS


def repeated(
    calls: PaddedCalls, call: FlatCall, bucket: Sizes
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call at exactly one size, with rows of `call` as often as needed."""
    torch, leaves = calls.torch, list(call.leaves)
    for leaf in call.layout.padded:
        given = leaves[leaf.index]
        rows = given.detach().requires_grad_(given.requires_grad)  # none reaches the example
        leaves[leaf.index] = again(torch, rows, {dim: bucket[axis] for axis, dim in leaf.dims})
    return calls.with_leaves(call, leaves)


def backward(torch: Any, result: Any) -> bool:
    """The backward pass of the sum of all outputs, whose gradients are thrown away; whether there
    was one."""
    if not torch.is_grad_enabled():
        return False
    outputs: list[Any] = []
    flatten(result, outputs)
    losses = _losses(torch, outputs)
    inputs = _leaves_behind(losses)
    if not inputs:
        return False
    ones = [torch.ones_like(leaf) for leaf in losses]
    torch.autograd.grad(losses, inputs, ones, allow_unused=True)
    return True


def gradients_of(
    torch: Any, outputs: list[Any], modules: Iterable[Any], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """The gradients of every parameter and of `inputs`, by name, for fixed weights of the real
    outputs; {} where there are none. Nothing is written to `.grad`."""
    losses = [leaf for leaf in _losses(torch, outputs) if leaf.numel()]
    names = {id(leaf): name for name, leaf in inputs.items()}
    for module in modules:
        for name, parameter in module.named_parameters():
            names.setdefault(id(parameter), name)
    wanted = [leaf for leaf in _leaves_behind(losses) if id(leaf) in names]
    if not wanted:
        return {}
    weights: list[Any] = []
    for leaf in losses:
        # Different for every entry: a sum may be constant (softmax), whatever the entries are.
        at = torch.arange(leaf.numel(), device=leaf.device, dtype=torch.float32)
        weights.append(((at * 0.37).sin() + 0.5).reshape(leaf.shape).to(leaf.dtype))
    found = torch.autograd.grad(losses, wanted, weights, allow_unused=True)
    return {
        names[id(leaf)]: gradient.detach()
        for leaf, gradient in zip(wanted, found, strict=True)
        if gradient is not None
    }


def _losses(torch: Any, outputs: list[Any]) -> list[Any]:
    return [leaf for leaf in outputs if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _leaves_behind(outputs: list[Any]) -> list[Any]:
    """The tensors that a backward pass from `outputs` would give a gradient, each once."""
    found: dict[int, Any] = {}
    waiting = [output.grad_fn for output in outputs if output.grad_fn is not None]
    met = set(waiting)
    while waiting:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.setdefault(id(variable), variable)
        for after, _ in node.next_functions:
            if after is not None and after not in met:
                met.add(after)
                waiting.append(after)
    return list(found.values())


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
        return _quartiles(self.seconds)[0]

    @property
    def rows_per_s(self) -> float:
        return self.size / self.call_s

    @property
    def spread(self) -> float:
        """Between the quartiles, as a share of the lower one."""
        low, high = _quartiles(self.seconds)
        return high / low - 1.0


@dataclass(frozen=True, slots=True)
class Knee:
    """What was found."""

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
    within: float = WITHIN,
    cliff: float = CLIFF,
) -> Knee:
    """The smallest size within `within` of the best throughput.

    Args:
        measure: seconds of one call at a size, warm, with the device waited for.
        sizes: to be tried; larger ones than the first that fails, does not fit or lies past a cliff
            are not.
        fits: whether a size is below the cap of memory.
        rounds: measurements of each size.
        within: how much of the best throughput may be given up.
        cliff: how much throughput must fall to be a cliff.

    Raises:
        BucketsImpossible: there is no size, or a measurement is no positive number.
    """
    tried, stopped = _climb(measure, sorted(set(sizes)), fits, max(rounds, 1), cliff)
    for turn in range(1, max(rounds, 1)):
        # There and back: what warms up or slows down over the time meets all sizes alike.
        for size in sorted(tried, reverse=turn % 2 == 1):
            tried[size].append(_seconds(measure, size))
    measured = [SizeMeasured(size, tuple(seconds)) for size, seconds in sorted(tried.items())]
    if not measured:
        return Knee(None, tuple(stopped), None, None, "not one size could be measured")
    best = max(item.rows_per_s for item in measured)
    index = next(i for i, item in enumerate(measured) if item.rows_per_s >= (1.0 - within) * best)
    knee, below = measured[index], measured[index - 1] if index else None
    gain = None if below is None else knee.rows_per_s / below.rows_per_s - 1.0
    fastest = max(measured, key=lambda item: item.rows_per_s)
    noise = max(item.spread for item in (knee, below or knee, fastest))
    # Of the smallest size it is only claimed that no other gains more than `within`.
    if noise > (within if gain is None else gain):
        reason = f"calls differ by {noise:.0%} at one size: more than what a size gains"
        return Knee(None, (*measured, *stopped), gain, noise, reason)
    return Knee(knee.size, (*measured, *stopped), gain, noise)


def _climb(
    measure: Callable[[int], float],
    sizes: Sequence[int],
    fits: Callable[[int], bool],
    rounds: int,
    cliff: float,
) -> tuple[dict[int, list[float]], list[SizeMeasured]]:
    """Every size once, upwards, until one fails, does not fit or lies past a cliff."""
    if not sizes or sizes[0] < 1:
        raise BucketsImpossible("the knee is looked for among sizes of at least 1")
    tried: dict[int, list[float]] = {}
    best = 0.0
    for size in sizes:
        if not fits(size):
            return tried, [SizeMeasured(size, (), "does not fit into memory")]
        try:
            seconds = [_seconds(measure, size)]
            if size / seconds[0] * cliff < best:
                seconds += [_seconds(measure, size) for _ in range(rounds)]
        except (RuntimeError, MemoryError) as error:  # how torch says that memory is exhausted
            return tried, [SizeMeasured(size, (), type(error).__name__)]
        if size / min(seconds) * cliff < best:
            return tried, [SizeMeasured(size, tuple(seconds), "past a cliff")]
        tried[size] = seconds
        best = max(best, size / min(seconds))
    return tried, []


def _seconds(measure: Callable[[int], float], size: int) -> float:
    seconds = measure(size)
    if not 0.0 < seconds < float("inf"):
        raise BucketsImpossible(f"a call at size {size} took {seconds} seconds: no measurement")
    return seconds


def _quartiles(seconds: Sequence[float]) -> tuple[float, float]:
    if len(seconds) == 1:
        return seconds[0], seconds[0]
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    return low, high


# --- of a FixedShape ----------------------------------------------------------------------------


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

    @functools.cache
    def timer(size: int) -> Callable[[], float]:
        return _timer(calls, *repeated(calls, call, (size,)), calls_to_warm(torch, call))

    most = math.inf if cap is None else cap
    try:
        with restored(torch, settings.function):
            knee = find_knee(
                lambda size: timer(size)(), sizes, fits=lambda size: size <= most, rounds=rounds
            )
    finally:
        calls.frozen = frozen
    called = [item if item.seconds else None for item in knee.measured]
    calls.emit(
        KneeMeasured,
        sizes=tuple(item.size for item in knee.measured),
        call_s=tuple(item and item.call_s for item in called),
        slow_call_s=tuple(item and item.call_s * (1.0 + item.spread) for item in called),
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
