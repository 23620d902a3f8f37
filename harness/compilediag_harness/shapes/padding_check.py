"""Whether padding is harmless: the callable is run with different padding, and without any.

Runs of one shape are compared bit by bit; a padded run with an unpadded one within the noise that
the callable itself shows between two sizes. Everything runs eagerly, and leaves modules and random
states as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compilediag_harness.shapes import probes
from compilediag_harness.shapes.dims import Sizes
from compilediag_harness.shapes.gradients import gradients_of
from compilediag_harness.shapes.layouts import Call, PaddedLeaf
from compilediag_harness.shapes.padded_calls import PaddedCalls, cut_leaves
from compilediag_harness.shapes.padding import REPEAT, padded
from compilediag_harness.shapes.padding_report import PaddingReport
from compilediag_harness.shapes.side_effects import SavedState, restored_eager
from compilediag_harness.shapes.trees import flatten
from compilediag_harness.shapes.verdicts import ONE_LESS, UNPADDED, Run, draws, verdicts_of
from compilediag_harness.wire import PaddingChecked


def check_padding(
    calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any], *, gradients: bool
) -> PaddingReport:
    """Runs the callable with the example padded in different ways."""
    torch = calls.torch
    call = calls.read_example(args, kwargs, "check")
    size, bucket = _sizes(calls, call)
    outputs = calls.outputs_of(call)
    runs: dict[str, Run] = {}
    grad = gradients and torch.is_grad_enabled()
    with restored_eager(torch, calls.settings.function) as state:
        for name, run_at, real in _runs(size, bucket):
            state.put_back()
            try:
                runs[name] = _run(calls, call, state, (name, run_at, real), grad)
            except Exception:
                if name in (UNPADDED, probes.ZEROS):
                    raise  # other probes that raise are in `PaddingReport.refused`
    tried = tuple(name for name in (*probes.FINITE, probes.NAN) if name in runs)
    report = PaddingReport(
        calls.declared.function.function,
        verdicts_of(torch, outputs, runs, state),
        size,
        bucket,
        tried,
        tuple(probes.SEEDS[name] for name in tried if name in probes.SEEDS),
        draws(runs),
    )
    _emit(calls, report)
    return report


def _sizes(calls: PaddedCalls, call: Call) -> tuple[Sizes, Sizes]:
    """Real sizes, and larger ones to pad to."""
    size: list[int] = []
    bucket: list[int] = []
    for real, sizes in zip(call.sizes, calls.settings.buckets, strict=True):
        to = next((its for its in sizes if its > real), sizes[-1])
        size.append(min(real, to - max(1, to // 4)))
        bucket.append(to)
    return tuple(size), tuple(bucket)


def _runs(size: Sizes, bucket: Sizes) -> Iterator[tuple[str, Sizes, Sizes]]:
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
    state: SavedState,
    how: tuple[str, Sizes, Sizes],
    grad: bool,
) -> Run:
    torch, (name, run_at, real) = calls.torch, how

    def pad(leaf: PaddedLeaf, rows: Any) -> Any:
        # Made for the check alone: the example itself is never written to.
        tensor = padded(torch, rows.detach(), leaf.dims, real, run_at, REPEAT)
        if run_at != real:
            probes.fill(torch, tensor, leaf.dims, real, name)
        return tensor.requires_grad_(bool(rows.requires_grad))

    leaves = cut_leaves(call, real, pad)
    before = _copies(torch, leaves)
    with torch.set_grad_enabled(grad):
        result = calls.run_eagerly(call, leaves, real, run_at)
        found: list[Any] = []
        flatten(result, found)
        cut = calls.outputs_of(call).cut(found, real, run_at, lambda _: False)
        # Gradients of NaN are NaN for every function that multiplies: they show nothing.
        wanted = grad and name not in (probes.NAN, ONE_LESS)
        gradients = gradients_of(torch, cut, calls.settings.function) if wanted else {}
    changed = tuple(
        leaf.path
        for leaf in call.layout.padded
        if not _equal(torch, before[leaf.index], leaves[leaf.index])
    )
    return Run(_copies(torch, cut), state.changed(), changed, state.random_used(), gradients)


def _copies(torch: Any, leaves: list[Any]) -> list[Any]:
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _equal(torch: Any, one: Any, other: Any) -> bool:
    return bool(torch.equal(one.nan_to_num(), other.detach().nan_to_num()))


def _emit(calls: PaddedCalls, report: PaddingReport) -> None:
    verdicts = report.outputs.values()
    calls.emit(
        PaddingChecked,
        size=report.size,
        run=report.run,
        probes=report.probes,
        seeds=report.seeds,
        rng_consumed=report.rng_consumed,
        outputs=tuple(report.outputs),
        kinds=tuple(item.kind for item in verdicts),
        notes=tuple(item.note for item in verdicts),
        max_abs=tuple(item.max_abs for item in verdicts),
        bitwise=tuple(item.bitwise for item in verdicts),
    )
