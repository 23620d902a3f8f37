"""From runs with different padding to verdicts: what changed, and so how it depends on padding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from compilediag_harness.shapes import probes
from compilediag_harness.shapes.comparing import Comparison, compared, noise_of
from compilediag_harness.shapes.dims import row_dim_of
from compilediag_harness.shapes.outputs import Outputs
from compilediag_harness.shapes.padding_report import HARMFUL, Verdict
from compilediag_harness.shapes.side_effects import ModuleState

UNPADDED = "unpadded"
ONE_LESS = "one row less"


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
    torch: Any, outputs: Outputs, runs: Mapping[str, Run], state: ModuleState
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
    torch: Any, runs: Mapping[str, Run], state: ModuleState, rng: bool
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
