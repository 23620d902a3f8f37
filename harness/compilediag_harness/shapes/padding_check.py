"""Whether padding is harmless: the callable is run with different padding, and without any.

Runs of one shape are compared bit by bit; a padded run with an unpadded one within the noise that
the callable itself shows between two sizes. Everything runs eagerly, and leaves modules and random
states as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from compilediag_harness.shapes import probes, shape_log, unpadding
from compilediag_harness.shapes.call_parts import Call
from compilediag_harness.shapes.gradients import gradients_of
from compilediag_harness.shapes.output_search import outputs_of
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.padding import REPEAT, padded
from compilediag_harness.shapes.padding_report import PaddingReport
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.side_effects import ModuleState, RandomStates, unnoticed
from compilediag_harness.shapes.trees import flatten
from compilediag_harness.shapes.verdicts import ONE_LESS, UNPADDED, Run, draws, verdicts_of
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.wire import PaddingChecked


def check_padding(
    calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any], *, gradients: bool
) -> PaddingReport:
    """Runs the callable with the example padded in different ways.

    Raises:
        ShapeUnusable: the example has no rows, or cannot be padded.
    """
    torch = calls.torch
    call = calls.read(args, kwargs)
    size, bucket = _sizes(calls, call)
    outputs = outputs_of(calls, call)
    runs: dict[str, Run] = {}
    grad = gradients and torch.is_grad_enabled()
    with unnoticed(torch, calls.settings.function) as state:
        states = RandomStates.now(torch)
        for name, at, real in _plan(size, bucket):
            state.put_back()
            states.put_back(torch)
            try:
                runs[name] = _run(calls, call, outputs, state, states, (name, at, real), grad)
            except Exception:
                if name in (UNPADDED, probes.ZEROS):
                    raise  # what else raises is told by `PaddingReport.refused`
    report = _report(calls, outputs, runs, size, bucket, state)
    _tell(calls, report)
    return report


def _sizes(calls: PaddedCalls, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Real sizes, and larger ones to pad to."""
    if 0 in call.sizes:
        raise ShapeUnusable("check needs an example with at least one row")
    size: list[int] = []
    bucket: list[int] = []
    for real, sizes in zip(call.sizes, calls.settings.buckets, strict=True):
        to = next((its for its in sizes if its > real), sizes[-1])
        size.append(min(real, to - max(1, to // 4)))
        bucket.append(to)
    return tuple(size), tuple(bucket)


def _plan(
    size: tuple[int, ...], bucket: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Name, sizes it runs at, real sizes."""
    yield UNPADDED, size, size
    if size[0] > 1:
        less = (size[0] - 1, *size[1:])
        yield ONE_LESS, less, less
    for probe in (*probes.FINITE, probes.NAN):
        yield probe, bucket, size


def _run(
    calls: PaddedCalls,
    call: Call,
    outputs: unpadding.Outputs,
    state: ModuleState,
    states: RandomStates,
    how: tuple[str, tuple[int, ...], tuple[int, ...]],
    grad: bool,
) -> Run:
    torch, (name, at, real) = calls.torch, how
    leaves = _leaves(calls, call, name, at, real)
    before = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    args, kwargs = calls.arguments(call, leaves)
    if calls.settings.mask is not None:
        kwargs[calls.settings.mask] = calls.mask(call, real[0], at[0], fresh=True)
    with torch.set_grad_enabled(grad):
        result = torch_api.original_of(calls.settings.function)(*args, **kwargs)
        found: list[Any] = []
        flatten(result, found)
        cut = unpadding.cut(outputs, found, real, at, lambda _: False)
        # Gradients of NaN are NaN for every function that multiplies: they tell nothing.
        wanted = grad and name not in (probes.NAN, ONE_LESS)
        gradients = gradients_of(torch, cut, calls.settings.function) if wanted else {}
    kept = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in cut]
    changed = tuple(
        call.layout.paths[leaf.place]
        for leaf in call.layout.padded
        if not _equal(torch, before[leaf.place], leaves[leaf.place])
    )
    consumed = not RandomStates.now(torch).same(torch, states)
    return Run(kept, state.now(), changed, consumed, gradients)


def _equal(torch: Any, one: Any, other: Any) -> bool:
    return bool(torch.equal(one.nan_to_num(), other.detach().nan_to_num()))


def _leaves(
    calls: PaddedCalls, call: Call, name: str, at: tuple[int, ...], real: tuple[int, ...]
) -> list[Any]:
    torch, leaves = calls.torch, list(call.leaves)
    for leaf in call.layout.padded:
        rows = leaves[leaf.place].detach()
        for axis, dim in leaf.dims:
            rows = rows.narrow(dim, 0, real[axis])
        # Made for the check alone: the example itself is never written to.
        tensor = padded(torch, rows, leaf.dims, real, at, REPEAT)
        if at != real:
            probes.fill(torch, tensor, leaf.dims, real, name)
        leaves[leaf.place] = tensor.requires_grad_(bool(leaves[leaf.place].requires_grad))
    return leaves


def _report(
    calls: PaddedCalls,
    outputs: unpadding.Outputs,
    runs: Mapping[str, Run],
    size: tuple[int, ...],
    bucket: tuple[int, ...],
    state: ModuleState,
) -> PaddingReport:
    tried = tuple(name for name in (*probes.FINITE, probes.NAN) if name in runs)
    return PaddingReport(
        calls.declared.function.function,
        verdicts_of(calls.torch, outputs, runs, state),
        size,
        bucket,
        tried,
        tuple(probes.SEEDS[name] for name in tried if name in probes.SEEDS),
        draws(runs),
    )


def _tell(calls: PaddedCalls, report: PaddingReport) -> None:
    verdicts = list(report.outputs.values())
    shape_log.tell(
        lambda t, step: PaddingChecked(
            t,
            step,
            calls.declared.number,
            calls.declared.function,
            report.size,
            report.run,
            report.probes,
            report.seeds,
            report.rng_consumed,
            tuple(report.outputs),
            tuple(item.kind for item in verdicts),
            tuple(item.note for item in verdicts),
            tuple(item.max_abs for item in verdicts),
            tuple(item.bitwise for item in verdicts),
        )
    )
