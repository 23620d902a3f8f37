"""Check that padding is harmless: the callable is run with different padding, and without any.

Runs of one shape are compared bit by bit; a padded run with an unpadded one within the noise that
the callable itself shows between two sizes, for the example and for batches with other contents.
Every run begins in the same state, everything runs eagerly, and afterwards all is as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from compilediag_harness.shapes import padding_report
from compilediag_harness.shapes.dims import ShapeUnusable, Sizes, cut_to_sizes, find_row_dim
from compilediag_harness.shapes.layouts import FlatCall, PaddedLeaf
from compilediag_harness.shapes.outputs import Outputs
from compilediag_harness.shapes.padded_calls import PaddedCalls, cut_leaves
from compilediag_harness.shapes.padding import REPEAT, pad_tensor
from compilediag_harness.shapes.padding_report import HARMFUL, PaddingReport, Verdict
from compilediag_harness.shapes.side_effects import SavedState, is_equal, preserve_eagerly
from compilediag_harness.shapes.trees import get_class
from compilediag_harness.shapes.warming import compute_gradients
from compilediag_harness.wire import PaddingChecked

UNPADDED = "unpadded"
ONE_LESS = "one row less"
AGAIN = "padding in use, again"

COARSE = 1e-4
"""Precisions above this are coarse (16 bit): a few roundings are already much of a value."""

_ROUNDINGS = {False: 32.0, True: 4.0}
"""How many roundings of a value are always noise; up to 8 times as many where two sizes show it."""


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """One run and what it left behind."""

    leaves: list[Any]
    """Real rows only."""
    changed: dict[str, Any]
    """What it can reach and is not as before, by path."""
    arguments: tuple[str, ...]
    """Padded arguments that it wrote to."""
    rng_consumed: bool
    gradients: dict[str, Any]


RunPair = tuple[CheckedRun, CheckedRun]
"""Of one batch, unpadded and padded."""


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of a check."""

    by_name: Mapping[str, CheckedRun]
    """Of the example, unpadded and with each kind of padding."""
    problems: Mapping[str, str]
    """Kinds of padding at which the outputs were not of the usual shape."""
    batches: tuple[RunPair, ...]
    """Of other batches, with the padding in use."""
    repeated: tuple[RunPair, ...] = ()
    """Of batches that end with rows of all kinds, the last of which is repeated."""

    @property
    def draws(self) -> bool:
        return any(self.by_name[name].rng_consumed for name in (UNPADDED, padding_report.PAD))


MAX_UNSEEN = 32
"""Things that could not be looked into, in a report: the first."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """One way to run the callable: its sizes, padding and rows."""

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
    """Run the callable with the example padded in different ways; emit and return the report.

    Raises:
        ShapeUnusable: the example has no rows, or cannot be padded; an output cannot be looked
            into.
    """
    torch = calls.torch
    call = calls.read_example(args, kwargs, "check")
    # Real sizes, and larger ones to pad to.
    pairs = zip(call.sizes, calls.settings.buckets, strict=True)
    bucket = tuple(next((its for its in sizes if its > real), sizes[-1]) for real, sizes in pairs)
    size = tuple(min(n, to - max(1, to // 4)) for n, to in zip(call.sizes, bucket, strict=True))
    outputs = calls.resolve_outputs(call)
    with preserve_eagerly(torch, calls.settings.function, call.others) as state:
        trials = _Trials(calls, call, state, gradients and torch.is_grad_enabled())
        runs = trials.run_all(size, bucket)
        verdicts = judge_runs(torch, outputs, runs, state)
        if trials.repeats and any(verdict.kind in HARMFUL for verdict in verdicts.values()):
            runs = replace(runs, repeated=trials.run_repeated(size, bucket))
            verdicts = judge_runs(torch, outputs, runs, state)
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
        kinds=tuple(verdict.kind for verdict in verdicts.values()),
        notes=tuple(verdict.note for verdict in verdicts.values()),
        max_abs=tuple(verdict.max_abs for verdict in verdicts.values()),
        bitwise=tuple(verdict.bitwise for verdict in verdicts.values()),
        unseen=report.unseen,
    )
    return report


class _Trials:
    """Runs of one callable that begin in one state."""

    def __init__(self, calls: PaddedCalls, call: FlatCall, state: SavedState, grad: bool) -> None:
        self._calls, self._call, self._state, self._grad = calls, call, state, grad
        self._torch, self._outputs = calls.torch, calls.resolve_outputs(call)
        self.repeats = all(leaf.pad == REPEAT for leaf in call.layout.padded)
        flags = {leaf.path for leaf in call.layout.padded if self._is_flag(leaf)}
        self._flag_paths = flags if len(flags) < len(call.layout.padded) else set[str]()
        """Arguments whose padding is what it is in use, whatever that of the others holds: a mask
        that comes with the rows has one kind of padding, by which the function leaves it out."""

    def _is_flag(self, leaf: PaddedLeaf) -> bool:
        """All of it is 0 or 1, and so is its padding."""
        given = self._call.leaves[leaf.index]
        if leaf.pad not in (0, 1) or given.is_floating_point() or given.is_complex():
            return False
        return given.dtype is self._torch.bool or bool(((given == 0) | (given == 1)).all())

    def run_all(self, size: Sizes, bucket: Sizes) -> Runs:
        """Run what every function is judged by."""
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
            outcome = self._try(trial)
            if isinstance(outcome, CheckedRun):
                by_name[name] = outcome
            elif outcome is not None and name in padding_report.FINITE:
                problems[name] = str(outcome)
        batches = [
            self._run_pair(
                replace(unpadded, rows=name, gradients=False),
                replace(padded_trial, rows=name, gradients=False),
            )
            for name in padding_report.BATCHES
        ]
        return Runs(by_name, problems, tuple(pair for pair in batches if pair is not None))

    def run_repeated(self, size: Sizes, bucket: Sizes) -> tuple[RunPair, ...]:
        """Run batches that end with rows of all kinds, the last of which is then repeated. () where
        one of them could not be run: nothing is known then."""
        if max(size) < 2:
            return ()
        pairs = [
            self._run_pair(_Trial(size, size, last_rows=name), _Trial(bucket, size, last_rows=name))
            for name in padding_report.LAST_ROWS
        ]
        return tuple(pair for pair in pairs if pair is not None) if None not in pairs else ()

    def _run_pair(self, unpadded: _Trial, padded_trial: _Trial) -> RunPair | None:
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
        # Invariant: every run begins in the state that the check began in.
        state.put_back()
        leaves = cut_leaves(call, trial.real, lambda leaf, rows: self._pad_leaf(trial, leaf, rows))
        before = _copy_leaves(torch, leaves)
        with torch.set_grad_enabled(self._grad):
            result = self._calls.run_eagerly(call, leaves, trial.real, trial.run_at)
            real = self._outputs.take_leaves(result, trial.real, trial.run_at, lambda _: False)
            gradients: dict[str, Any] = {}
            if self._grad and trial.gradients:
                named = {leaf.path: leaves[leaf.index] for leaf in call.layout.padded}
                inputs = {path: leaf for path, leaf in named.items() if leaf.requires_grad}
                gradients = compute_gradients(torch, real, state.modules, inputs)
                for leaf in call.layout.padded:
                    if leaf.path in gradients and leaf.path in inputs:
                        gradient = gradients[leaf.path]
                        gradients[leaf.path] = cut_to_sizes(gradient, leaf.dims, trial.real)
        written = tuple(
            leaf.path
            for leaf in call.layout.padded
            if not is_equal(torch, before[leaf.index], leaves[leaf.index].detach())
        )
        copies, changed = _copy_leaves(torch, real), state.read_changed()
        return CheckedRun(copies, changed, written, state.has_used_random(), gradients)

    def _pad_leaf(self, trial: _Trial, leaf: PaddedLeaf, rows: Any) -> Any:
        # Made for the check alone: the example itself is never written to.
        torch, given = self._torch, rows.detach()
        if trial.rows is not None:
            given = padding_report.make_batch(torch, given, leaf.dims, trial.rows)
        if trial.last_rows is not None:
            first_half = tuple(-(-size // 2) for size in trial.real)
            given = given.clone()
            padding_report.fill_padding(torch, given, leaf.dims, first_half, trial.last_rows)
        tensor = pad_tensor(torch, given, leaf.dims, trial.real, trial.run_at, leaf.pad)
        if trial.padding != padding_report.PAD and leaf.path not in self._flag_paths:
            padding_report.fill_padding(torch, tensor, leaf.dims, trial.real, trial.padding)
        return tensor.requires_grad_(bool(rows.requires_grad))


def _copy_leaves(torch: Any, leaves: list[Any]) -> list[Any]:
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


# --- from runs to verdicts ------------------------------------------------------------------------

Pick = Callable[[CheckedRun], Any]
"""One value of a run; None where it has none."""


def judge_runs(torch: Any, outputs: Outputs, runs: Runs, state: SavedState) -> dict[str, Verdict]:
    """Judge each output that is a tensor, and all else only where it depends on padding."""
    verdicts: dict[str, Verdict] = {}
    for probe, problem in runs.problems.items():
        note = f"with {probe} as padding {problem}"
        verdicts.setdefault("", Verdict("contaminated", note, 0.0, bitwise=False))
    less = runs.by_name.get(ONE_LESS)
    for index, path in enumerate(outputs.paths):
        row_dim, has_rows = find_row_dim(outputs.dims[index]), bool(outputs.dims[index])
        whole = runs.by_name[UNPADDED].leaves[index]
        noise = measure_noise(whole, less and less.leaves[index], row_dim)
        verdict = _judge(
            torch, runs, lambda run, at=index: run.leaves[at], noise, row_dim, has_rows=has_rows
        )
        if path not in verdicts and (outputs.empty[index] is not None or verdict.kind != "safe"):
            verdicts[path] = verdict
    verdicts.update(_judge_state(torch, runs, state))
    verdicts.update(_judge_gradients(torch, runs))
    return verdicts


def _judge(
    torch: Any, runs: Runs, pick: Pick, noise: float, row_dim: int | None, *, has_rows: bool
) -> Verdict:
    def compare_runs(one: CheckedRun, other: CheckedRun, noise: float) -> ValueComparison:
        return compare(torch, pick(one), pick(other), noise, row_dim)

    named = runs.by_name
    base = named[padding_report.PAD]
    others = {
        name: compare_runs(base, named[name], noise)
        for name in padding_report.FINITE[1:]
        if name in named
    }
    parity = compare_runs(named[UNPADDED], base, noise)
    bitwise = all(comparison.bitwise for comparison in others.values())
    verdict = Verdict("safe", "", parity.max_abs, bitwise)
    if compare_runs(base, named[AGAIN], 0.0).apart:
        note = "two runs with the same padding differ: no comparison says anything"
        return replace(verdict, kind="unknown", note=note)
    # Large values overflow where usual ones do not: only a finite change is contamination.
    content = [
        (name, comparison)
        for name, comparison in others.items()
        if comparison.differs or (comparison.nonfinite and name in _USUAL)
    ]
    repeats = [compare_runs(*pair, 0.0) for pair in runs.repeated]
    harmed = "contaminated" if has_rows else "reduced"
    harmless_twice = bool(repeats) and not any(comparison.apart for comparison in repeats)
    if content and not harmless_twice:
        probe, comparison = content[0]
        what = f"changes by {comparison.what}"
        if comparison.rows is not None:
            what = f"{comparison.bad_rows} of {comparison.rows} real rows change"
        note = f"{what} when only the padding changes, to {probe}"
        return replace(verdict, kind=harmed, note=note)
    if runs.draws:
        note = "it draws random numbers, and how many depends on the padded size"
        return replace(verdict, kind="rng", note=note)
    if parity.apart:
        note = f"padded and unpadded differ by {parity.what} whatever the padding holds"
        return replace(verdict, kind="parity", note=note)
    for pair in runs.batches:
        comparison = compare_runs(*pair, math.inf)
        if comparison.apart:
            note = f"padded and unpadded differ by {comparison.what}, for a batch with other values"
            return replace(verdict, kind=harmed, note=note)
    if content:
        return replace(verdict, note="the last row again changes nothing, as with a maximum")
    if any(comparison.nonfinite for comparison in others.values()):
        return replace(verdict, kind="nan_leak", note="padding that overflows reaches it")
    if padding_report.NAN in named and compare_runs(base, named[padding_report.NAN], noise).apart:
        return replace(verdict, kind="nan_leak", note="only NaN in the padding reaches it")
    return verdict


_USUAL = (padding_report.REAL_ROWS, padding_report.LOWEST, padding_report.HIGHEST)
"""Padding of values that are in the batch."""


def _judge_state(torch: Any, runs: Runs, state: SavedState) -> Iterator[tuple[str, Verdict]]:
    every = list(runs.by_name.values())
    for path in dict.fromkeys(path for run in every for path in run.changed):

        def pick(run: CheckedRun, path: str = path) -> Any:
            return run.changed.get(path, state.get_before(path))

        verdict = _judge(torch, runs, pick, 0.0, None, has_rows=False)
        if verdict.kind in HARMFUL:
            note = verdict.note or "it is updated with padding"
            yield path, replace(verdict, kind="state", note=note)
        elif verdict.kind == "unknown" or (
            verdict.kind == "rng"
            and not is_equal(
                torch, pick(runs.by_name[UNPADDED]), pick(runs.by_name[padding_report.PAD])
            )
        ):
            yield path, verdict
    for path in dict.fromkeys(path for run in every for path in run.arguments):
        note = "it is changed in place, which the caller would not see"
        yield f"argument {path}", Verdict("state", note, 0.0, bitwise=False)


def _judge_gradients(torch: Any, runs: Runs) -> Iterator[tuple[str, Verdict]]:
    for name in runs.by_name[UNPADDED].gradients:

        def pick(run: CheckedRun, name: str = name) -> Any:
            return run.gradients.get(name)

        # Sums over rows: what changes with the padding is not a row but the whole.
        by_name = {key: run for key, run in runs.by_name.items() if pick(run) is not None}
        with_gradients = replace(runs, by_name=by_name, batches=())
        if padding_report.PAD in with_gradients.by_name:
            verdict = _judge(torch, with_gradients, pick, math.inf, None, has_rows=True)
            if verdict.kind != "rng":
                yield f"gradient {name}", verdict


@dataclass(frozen=True, slots=True)
class ValueComparison:
    """The distance between two values."""

    differs: bool
    """By more than noise, where both are finite; or they are of different shapes or types."""
    nonfinite: bool
    """One is NaN or infinite where the other is not."""
    bitwise: bool
    max_abs: float
    rows: int | None
    """None where the value has no rows."""
    bad_rows: int
    what: str
    """The difference, for people."""

    @property
    def apart(self) -> bool:
        return self.differs or self.nonfinite


def compare(torch: Any, one: Any, other: Any, noise: float, row_dim: int | None) -> ValueComparison:
    """Compare two values; `noise`: the difference between two sizes, from `measure_noise`."""
    one, other = _convert_to_tensor(torch, one), _convert_to_tensor(torch, other)
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    if not tensors or one.shape != other.shape or one.dtype != other.dtype:
        same = is_equal(torch, one, other)
        what = f"{_shorten_value(torch, one)} and {_shorten_value(torch, other)}"
        return ValueComparison(not same, False, same, 0.0, None, 0, what)
    rows = None if row_dim is None else int(one.shape[row_dim])
    if bool(torch.equal(one, other)):
        return ValueComparison(False, False, True, 0.0, rows, 0, "0")
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    first, second = one.double(), other.double()
    same = (first == second) | (first.isnan() & second.isnan())
    finite = first.isfinite() & second.isfinite()
    apart = torch.where(finite, (first - second).abs(), torch.zeros_like(first))
    tolerance = 0.0
    if one.is_floating_point():
        eps = float(torch.finfo(one.dtype).eps)
        magnitudes = first[first.isfinite()].abs()
        scale = float(magnitudes.max()) if magnitudes.numel() else 0.0
        lowest = _ROUNDINGS[eps > COARSE] * eps * scale
        # Bounded: the difference of two sizes may be the very dependence to be found.
        tolerance = min(max(lowest, 4.0 * noise), 8.0 * lowest)
    bad = apart > tolerance
    max_abs = float(apart.max()) if apart.numel() else 0.0
    bad_rows = 0
    if row_dim is not None:
        bad_rows = int(bad.movedim(row_dim, 0).reshape(rows, -1).any(1).sum())
    nonfinite = bool((~same & ~finite).any())
    return ValueComparison(
        differs=bool(bad.any()),
        nonfinite=nonfinite,
        bitwise=bool(same.all()),
        max_abs=max_abs,
        rows=rows,
        bad_rows=bad_rows,
        what="values that are not finite" if nonfinite else f"{max_abs:.2g}",
    )


def _convert_to_tensor(torch: Any, value: Any) -> Any:
    """Numbers that a tensor was turned into differ by roundings as its own do."""
    kind = get_class(value)
    if kind is float or (kind is list and value and set(map(type, value)) == {float}):
        return torch.tensor(value, dtype=torch.float32)
    if kind.__name__ == "ndarray":
        try:
            return torch.from_numpy(value.copy())
        except TypeError:  # of objects or texts
            return value
    return value


def _shorten_value(torch: Any, value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def measure_noise(all_rows: Any, one_less: Any, row_dim: int | None) -> float:
    """Measure the largest difference of rows that both results have; 0: they cannot be compared."""
    if one_less is None or row_dim is None or not all_rows.is_floating_point():
        return 0.0
    common = all_rows.narrow(row_dim, 0, one_less.shape[row_dim])
    if common.shape != one_less.shape or not common.numel():
        return 0.0
    apart = (common.double() - one_less.double()).abs()
    return float(apart.nan_to_num(0.0, 0.0).max())
