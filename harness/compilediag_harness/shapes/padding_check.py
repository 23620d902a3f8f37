"""Whether padding is harmless: the callable is run with different padding, and without any.

Runs of one shape are compared bit by bit; a padded run with an unpadded one within the noise that
the callable itself shows between two sizes, for the example and for batches with other contents.
Every run begins in the same state, everything runs eagerly, and afterwards all is as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from compilediag_harness.shapes import padding_report
from compilediag_harness.shapes.dims import ShapeUnusable, Sizes, cut
from compilediag_harness.shapes.layouts import FlatCall, PaddedLeaf
from compilediag_harness.shapes.padded_calls import PaddedCalls, cut_leaves
from compilediag_harness.shapes.padding import REPEAT, padded
from compilediag_harness.shapes.padding_report import HARMFUL, PaddingReport
from compilediag_harness.shapes.side_effects import SavedState, equal, restored_eager
from compilediag_harness.shapes.verdicts import (
    AGAIN,
    ONE_LESS,
    UNPADDED,
    CheckedRun,
    RunPair,
    Runs,
    verdicts_of,
)
from compilediag_harness.shapes.warming import gradients_of
from compilediag_harness.wire import PaddingChecked

MAX_UNSEEN = 32
"""Things that could not be looked into, in a report: the first."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """How the callable is run once."""

    run_at: Sizes
    real: Sizes
    padding: str = padding_report.PAD
    rows: str | None = None
    """Contents of the real rows, where they are not those of the example."""
    last_rows: str | None = None
    """Contents of the second half of the real rows, where only they are not."""
    gradients: bool = True


def check_padding(
    calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any], *, gradients: bool
) -> PaddingReport:
    """Runs the callable with the example padded in different ways."""
    torch = calls.torch
    call = calls.read_example(args, kwargs, "check")
    size, bucket = _sizes(calls, call)
    outputs = calls.outputs_of(call)
    with restored_eager(torch, calls.settings.function, call.others) as state:
        trials = _Trials(calls, call, state, gradients and torch.is_grad_enabled())
        runs = trials.runs(size, bucket)
        verdicts = verdicts_of(torch, outputs, runs, state)
        if trials.repeats and any(item.kind in HARMFUL for item in verdicts.values()):
            runs = replace(runs, repeated=trials.repeated(size, bucket))
            verdicts = verdicts_of(torch, outputs, runs, state)
    done = runs.by_name.keys() | runs.problems.keys()
    tried = tuple(name for name in (*padding_report.FINITE, padding_report.NAN) if name in done)
    report = PaddingReport(
        calls.declared.function.function,
        verdicts,
        size,
        bucket,
        tried,
        tuple(padding_report.SEEDS[name] for name in tried if name in padding_report.SEEDS),
        runs.draws,
        state.unseen[:MAX_UNSEEN],
    )
    calls.emit(
        PaddingChecked,
        size=size,
        run=bucket,
        probes=tried,
        seeds=report.seeds,
        rng_consumed=report.rng_consumed,
        outputs=tuple(verdicts),
        kinds=tuple(item.kind for item in verdicts.values()),
        notes=tuple(item.note for item in verdicts.values()),
        max_abs=tuple(item.max_abs for item in verdicts.values()),
        bitwise=tuple(item.bitwise for item in verdicts.values()),
        unseen=report.unseen,
    )
    return report


def _sizes(calls: PaddedCalls, call: FlatCall) -> tuple[Sizes, Sizes]:
    """Real sizes, and larger ones to pad to."""
    size: list[int] = []
    bucket: list[int] = []
    for real, sizes in zip(call.sizes, calls.settings.buckets, strict=True):
        to = next((its for its in sizes if its > real), sizes[-1])
        size.append(min(real, to - max(1, to // 4)))
        bucket.append(to)
    return tuple(size), tuple(bucket)


class _Trials:
    """Runs of one callable that begin in one state."""

    def __init__(self, calls: PaddedCalls, call: FlatCall, state: SavedState, grad: bool) -> None:
        self._calls, self._call, self._state, self._grad = calls, call, state, grad
        self._torch, self._outputs = calls.torch, calls.outputs_of(call)
        self.repeats = all(leaf.pad == REPEAT for leaf in call.layout.padded)
        flags = {leaf.path for leaf in call.layout.padded if self._is_flag(leaf)}
        self._kept = flags if len(flags) < len(call.layout.padded) else set[str]()
        """Arguments whose padding is what it is in use, whatever that of the others holds: a mask
        that comes with the rows has one kind of padding, by which the function leaves it out."""

    def _is_flag(self, leaf: PaddedLeaf) -> bool:
        """All of it is 0 or 1, and so is its padding."""
        given = self._call.leaves[leaf.index]
        if leaf.pad not in (0, 1) or given.is_floating_point() or given.is_complex():
            return False
        return given.dtype is self._torch.bool or bool(((given == 0) | (given == 1)).all())

    def runs(self, size: Sizes, bucket: Sizes) -> Runs:
        """Those that every function is judged by."""
        unpadded, padded_trial = _Trial(size, size), _Trial(bucket, size)
        by_name = {
            UNPADDED: self._run(unpadded),
            padding_report.PAD: self._run(padded_trial),
            AGAIN: self._run(padded_trial),
        }
        problems: dict[str, str] = {}
        # Gradients of NaN are NaN for every function that multiplies: they show nothing.
        without = replace(padded_trial, padding=padding_report.NAN, gradients=False)
        trials = {name: _Trial(bucket, size, name) for name in padding_report.FINITE[1:]}
        if size[0] > 1:
            less = (size[0] - 1, *size[1:])
            trials = {ONE_LESS: _Trial(less, less, gradients=False), **trials}
        for name, trial in {**trials, padding_report.NAN: without}.items():
            found = self._try(trial)
            if isinstance(found, CheckedRun):
                by_name[name] = found
            elif found is not None and name in padding_report.FINITE:
                problems[name] = str(found)
        batches = [
            self._pair(
                replace(unpadded, rows=name, gradients=False),
                replace(padded_trial, rows=name, gradients=False),
            )
            for name in padding_report.BATCHES
        ]
        return Runs(by_name, problems, tuple(pair for pair in batches if pair is not None))

    def repeated(self, size: Sizes, bucket: Sizes) -> tuple[RunPair, ...]:
        """Batches that end with rows of all kinds, the last of which is then repeated. () where one
        of them could not be run: nothing is known then."""
        if max(size) < 2:
            return ()
        pairs = [
            self._pair(_Trial(size, size, last_rows=name), _Trial(bucket, size, last_rows=name))
            for name in padding_report.LAST_ROWS
        ]
        return tuple(pair for pair in pairs if pair is not None) if None not in pairs else ()

    def _pair(self, unpadded: _Trial, padded_trial: _Trial) -> RunPair | None:
        """None where the function takes no such rows."""
        first = self._try(unpadded)
        if not isinstance(first, CheckedRun):
            return None
        second = self._try(padded_trial)
        return (first, second) if isinstance(second, CheckedRun) else None

    def _try(self, trial: _Trial) -> CheckedRun | ShapeUnusable | None:
        """None where the function raises; an error where its outputs are not as they were."""
        try:
            return self._run(trial)
        except ShapeUnusable as error:
            return error
        except Exception:
            return None

    def _run(self, trial: _Trial) -> CheckedRun:
        torch, call, state = self._torch, self._call, self._state
        state.put_back()
        leaves = cut_leaves(call, trial.real, lambda leaf, rows: self._padded(trial, leaf, rows))
        before = _copies(torch, leaves)
        with torch.set_grad_enabled(self._grad):
            result = self._calls.run_eagerly(call, leaves, trial.real, trial.run_at)
            real = self._outputs.taken(result, trial.real, trial.run_at, lambda _: False)
            gradients: dict[str, Any] = {}
            if self._grad and trial.gradients:
                named = {leaf.path: leaves[leaf.index] for leaf in call.layout.padded}
                inputs = {path: leaf for path, leaf in named.items() if leaf.requires_grad}
                gradients = gradients_of(torch, real, state.modules, inputs)
                for leaf in call.layout.padded:
                    if leaf.path in gradients and leaf.path in inputs:
                        found = gradients[leaf.path]
                        gradients[leaf.path] = cut(found, leaf.dims, trial.real)
        written = tuple(
            leaf.path
            for leaf in call.layout.padded
            if not equal(torch, before[leaf.index], leaves[leaf.index].detach())
        )
        return CheckedRun(
            _copies(torch, real), state.changed(), written, state.random_used(), gradients
        )

    def _padded(self, trial: _Trial, leaf: PaddedLeaf, rows: Any) -> Any:
        # Made for the check alone: the example itself is never written to.
        torch, given = self._torch, rows.detach()
        if trial.rows is not None:
            given = padding_report.batch(torch, given, leaf.dims, trial.rows)
        if trial.last_rows is not None:
            kept = tuple(-(-size // 2) for size in trial.real)
            given = given.clone()
            padding_report.fill(torch, given, leaf.dims, kept, trial.last_rows)
        tensor = padded(torch, given, leaf.dims, trial.real, trial.run_at, leaf.pad)
        if trial.padding != padding_report.PAD and leaf.path not in self._kept:
            padding_report.fill(torch, tensor, leaf.dims, trial.real, trial.padding)
        return tensor.requires_grad_(bool(rows.requires_grad))


def _copies(torch: Any, leaves: list[Any]) -> list[Any]:
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
