"""From runs with different padding to verdicts: what changed, and so how it depends on padding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from compilediag_harness.shapes import probes
from compilediag_harness.shapes.dims import row_dim_of
from compilediag_harness.shapes.outputs import Outputs
from compilediag_harness.shapes.padding_report import HARMFUL, Verdict
from compilediag_harness.shapes.side_effects import SavedState

UNPADDED = "unpadded"
ONE_LESS = "one row less"

COARSE = 1e-4
"""Precisions above this are coarse (16 bit): a few roundings are already much of a value."""

_ROUNDINGS = {False: 32.0, True: 4.0}
"""How many roundings of a value are always noise; up to 8 times as many where two sizes show it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run and what it left behind."""

    leaves: list[Any]
    """Real rows only."""
    changed: dict[str, Any]
    arguments: tuple[str, ...]
    rng_consumed: bool
    gradients: dict[str, Any]


def verdicts_of(
    torch: Any, outputs: Outputs, runs: Mapping[str, Run], state: SavedState
) -> dict[str, Verdict]:
    """One for each output; for buffers, arguments and gradients only where they change."""
    rng = draws(runs)
    found: dict[str, Verdict] = {}
    for index, path in enumerate(outputs.paths):
        if isinstance(runs[UNPADDED].leaves[index], torch.Tensor):
            values = {name: run.leaves[index] for name, run in runs.items()}
            row_dim = row_dim_of(outputs.dims[index])
            noise = noise_of(values[UNPADDED], values.get(ONE_LESS), row_dim)
            has_rows = bool(outputs.dims[index])
            found[path] = _judged(torch, values, noise, row_dim, rng, has_rows=has_rows)
    found.update(_of_state(torch, runs, state, rng))
    found.update(_of_gradients(torch, runs, rng))
    return found


def draws(runs: Mapping[str, Run]) -> bool:
    """Whether random numbers were drawn."""
    return runs[UNPADDED].rng_consumed or runs[probes.ZEROS].rng_consumed


def _judged(
    torch: Any,
    values: Mapping[str, Any],
    noise: float,
    row_dim: int | None,
    rng: bool,
    *,
    has_rows: bool,
) -> Verdict:
    zeros = values[probes.ZEROS]
    others = {
        name: compared(torch, zeros, values[name], noise, row_dim)
        for name in probes.FINITE[1:]
        if name in values
    }
    parity = compared(torch, values[UNPADDED], zeros, noise, row_dim)
    bitwise = all(item.bitwise for item in others.values())
    verdict = Verdict("safe", "", parity.max_abs, bitwise)
    for name, item in others.items():
        # Large values overflow where usual ones do not: only a finite change is contamination.
        if item.differs or (item.nonfinite and name == probes.REAL_ROWS):
            kind = "contaminated" if has_rows else "reduced"
            return replace(verdict, kind=kind, note=_changes(item, name))
    if rng:
        note = "it draws random numbers, and how many depends on the padded size"
        return replace(verdict, kind="rng", note=note)
    if parity.differs or parity.nonfinite:
        note = f"padded and unpadded differ by {parity.max_abs:.2g} whatever the padding holds"
        return replace(verdict, kind="parity", note=note)
    if any(item.nonfinite for item in others.values()):
        return replace(verdict, kind="nan_leak", note="padding that overflows reaches it")
    if probes.NAN in values:
        nan = compared(torch, zeros, values[probes.NAN], noise, row_dim)
        if nan.differs or nan.nonfinite:
            return replace(verdict, kind="nan_leak", note="only NaN in the padding reaches it")
    return verdict


def _changes(item: Comparison, probe: str) -> str:
    if item.rows is None:
        return f"changes by {item.max_abs:.2g} when only the padding changes, to {probe}"
    return (
        f"{item.bad_rows} of {item.rows} real rows change when only the padding changes, to {probe}"
    )


def _of_state(
    torch: Any, runs: Mapping[str, Run], state: SavedState, rng: bool
) -> Iterator[tuple[str, Verdict]]:
    for name in dict.fromkeys(name for run in runs.values() for name in run.changed):
        values = {run: its.changed.get(name, state.before(name)) for run, its in runs.items()}
        verdict = _judged(torch, values, 0.0, None, rng, has_rows=False)
        if verdict.kind in HARMFUL:
            note = verdict.note or "it is updated with padding"
            yield f"buffer {name}", replace(verdict, kind="state", note=note)
    for path in dict.fromkeys(path for run in runs.values() for path in run.arguments):
        note = "it is changed in place, which the caller would not see"
        yield f"argument {path}", Verdict("state", note, 0.0, bitwise=False)


def _of_gradients(torch: Any, runs: Mapping[str, Run], rng: bool) -> Iterator[tuple[str, Verdict]]:
    for name in runs[UNPADDED].gradients:
        values = {run: its.gradients[name] for run, its in runs.items() if name in its.gradients}
        if probes.ZEROS in values:
            # Sums over rows: what changes with the padding is not a row but the whole.
            verdict = _judged(torch, values, math.inf, None, rng, has_rows=True)
            if verdict.kind != "rng":
                yield f"gradient {name}", verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two tensors of one shape are apart."""

    differs: bool
    """By more than noise, where both are finite."""
    nonfinite: bool
    """One is NaN or infinite where the other is not."""
    bitwise: bool
    max_abs: float
    rows: int | None
    """None where the tensor has no rows."""
    bad_rows: int


def compared(torch: Any, one: Any, other: Any, noise: float, row_dim: int | None) -> Comparison:
    """`noise`: difference between two sizes that was measured, from `noise_of`."""
    rows = None if row_dim is None else int(one.shape[row_dim])
    if bool(torch.equal(one, other)):
        return Comparison(False, False, True, 0.0, rows, 0)
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    first, second = one.double(), other.double()
    same = (first == second) | (first.isnan() & second.isnan())
    finite = first.isfinite() & second.isfinite()
    apart = torch.where(finite, (first - second).abs(), torch.zeros_like(first))
    bad = apart > _tolerance(torch, one, first, noise)
    return Comparison(
        differs=bool(bad.any()),
        nonfinite=bool((~same & ~finite).any()),
        bitwise=bool(same.all()),
        max_abs=float(apart.max()) if apart.numel() else 0.0,
        rows=rows,
        bad_rows=_rows_of(bad, row_dim),
    )


def _rows_of(bad: Any, row_dim: int | None) -> int:
    if row_dim is None:
        return 0
    return int(bad.movedim(row_dim, 0).flatten(1).any(1).sum()) if bad.dim() > 1 else int(bad.sum())


def _tolerance(torch: Any, one: Any, values: Any, noise: float) -> float:
    if not one.is_floating_point():
        return 0.0
    eps = float(torch.finfo(one.dtype).eps)
    finite = values[values.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    lowest = _ROUNDINGS[eps > COARSE] * eps * scale
    # Bounded: the difference of two sizes may be the very dependence to be found.
    return min(max(lowest, 4.0 * noise), 8.0 * lowest)


def noise_of(all_rows: Any, one_less: Any, row_dim: int | None) -> float:
    """Largest difference of the rows that both results have; 0 where they cannot be compared."""
    if one_less is None or row_dim is None or not all_rows.is_floating_point():
        return 0.0
    common = all_rows.narrow(row_dim, 0, one_less.shape[row_dim])
    if common.shape != one_less.shape or not common.numel():
        return 0.0
    apart = (common.double() - one_less.double()).abs()
    return float(apart.nan_to_num(0.0, 0.0).max())
