"""The result of a check of padding: a verdict for each output, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from compilediag_harness.shapes.dims import (
    AxisDims,
    PaddingContaminates,
    Sizes,
    cut_to_sizes,
    repeat_rows,
)

PAD, ZEROS, REAL_ROWS = "padding in use", "zeros", "real rows"
LOWEST, HIGHEST, LARGE, LARGER, NAN = "lowest", "highest", "large", "larger", "nan"
POSITIVE, NEGATIVE, ROLLED, MIXED = "large positive", "large negative", "rolled", "mixed"

FINITE = (PAD, ZEROS, REAL_ROWS, LOWEST, HIGHEST, LARGE, LARGER)
"""The probes that a harmless function gives the same results for, to the last bit. With the padding
in use, which is always the first, the others are compared."""

SEEDS = {LARGE: 7, LARGER: 1234, POSITIVE: 7, NEGATIVE: 7, MIXED: 7}
_SCALES = {LARGE: 1e3, LARGER: 3e4, POSITIVE: 1e3, NEGATIVE: 1e3}
"""Several: a limit such as a capacity is only exceeded by some values."""

BATCHES = (ROLLED, HIGHEST, LOWEST, MIXED)
"""Contents of whole batches that are tried besides the example, of its own magnitude."""

LAST_ROWS = (ZEROS, REAL_ROWS, LOWEST, HIGHEST, LARGE, LARGER, POSITIVE, NEGATIVE)
"""Contents of the rows at the end of batches whose last row is then repeated."""


def fill_padding(torch: Any, tensor: Any, dims: AxisDims, sizes: Sizes, probe: str) -> None:
    """Overwrite everything outside the real sizes. Integers and flags get only values that are
    there, and zero: others may be no valid index."""
    real = cut_to_sizes(tensor, dims, sizes)
    real_copy = real.clone()
    tensor.copy_(_make_filling(torch, tensor, real_copy, dims, probe))
    real.copy_(real_copy)


def make_batch(torch: Any, rows: Any, dims: AxisDims, probe: str) -> Any:
    """Make as many rows with other contents."""
    if probe == ROLLED or (probe == MIXED and not rows.is_floating_point()):
        return rows.roll([1] * len(dims), [dim for _, dim in dims])
    return _make_filling(torch, rows, rows.clone(), dims, probe)


def _make_filling(torch: Any, like: Any, real: Any, dims: AxisDims, probe: str) -> Any:
    if probe == ZEROS or not real.numel():
        return torch.zeros_like(like)
    if probe in (LOWEST, HIGHEST):
        return _find_extreme(torch, like, real, [dim for _, dim in dims], probe == HIGHEST)
    if probe == REAL_ROWS or not like.is_floating_point():
        # Rotated, so that the first rows of the padding are not the last real ones again.
        return repeat_rows(torch, real, {dim: like.shape[dim] for _, dim in dims})
    if probe == NAN:
        return torch.full_like(like, float("nan"))
    generator = torch.Generator(device="cpu").manual_seed(SEEDS[probe])
    drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32)
    if probe == MIXED:
        finite = real.detach().float().nan_to_num(0.0, 0.0, 0.0)
        drawn = drawn * (4.0 * finite.std(correction=0).cpu() + 1e-3) + finite.mean().cpu()
    elif probe in (POSITIVE, NEGATIVE):
        drawn = drawn.abs() * (1 if probe == POSITIVE else -1) * _SCALES[probe]
    else:
        drawn = drawn * _SCALES[probe] + 7
    bound = torch.finfo(like.dtype).max / 4
    return drawn.clamp(-bound, bound).to(device=like.device, dtype=like.dtype)


def _find_extreme(torch: Any, like: Any, real: Any, dims: list[int], highest: bool) -> Any:
    """Find the largest or the smallest value that is there: of each column; of all where values are
    numbers of something, so that a number that every row has is left out too."""
    values = real.detach()
    if values.is_complex():
        return torch.zeros_like(like)
    if values.dtype == torch.bool:
        values = values.to(torch.uint8)
    if values.is_floating_point():
        value = values.amax(dims, keepdim=True) if highest else values.amin(dims, keepdim=True)
    else:
        value = values.max() if highest else values.min()
    return value.to(like.dtype).expand(like.shape)


HARMLESS = frozenset({"safe", "nan_leak"})

HARMFUL = {
    "contaminated": 'mask the padding where rows meet (mask="name of an argument")',
    "state": "freeze it for padded calls (module.eval()), or mask what it adds up",
    "reduced": 'reduce over the real rows only, with mask="name of an argument"',
    "parity": "use the number of real rows (mask.sum()) in place of the padded size",
}
"""Kinds of verdicts that must not be, with what to do."""

Judged = Literal["safe", "unsafe", "unknown"]


def judge_padding(kinds: Iterable[str], unseen: Sequence[str], probes: Sequence[str]) -> Judged:
    """Judge what is known of padding: "unknown" where something draws random numbers, differs from
    run to run or could not be looked into, and where no padding but that in use could be tried."""
    met = set(kinds)
    if met & HARMFUL.keys():
        return "unsafe"
    if not met <= HARMLESS or unseen or not set(probes) & {*FINITE} - {PAD}:
        return "unknown"
    return "safe"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The effect of padding on one output, one value left behind, one argument or one gradient."""

    kind: str
    """"safe", "contaminated", "state", "reduced", "parity", "nan_leak", "rng", "unknown"."""
    note: str
    max_abs: float
    """Largest difference between a padded and an unpadded run; 0 where there is none to compare."""
    bitwise: bool
    """Padding of every kind gave the same bits."""


@dataclass(frozen=True, slots=True)
class PaddingReport:
    """The result of `FixedShape.check`: not contaminated on these probes, which is no proof for
    values that were not tried."""

    function: str
    outputs: Mapping[str, Verdict]
    """By path; "" for an output that is one tensor. Buffers, attributes, variables, arguments and
    gradients are there too when they were found to depend on padding: "buffer running_mean",
    "attribute aux_loss", "global seen", "argument obs", "gradient weight"."""
    size: Sizes
    run: Sizes
    """The sizes it was padded to."""
    probes: tuple[str, ...]
    """The contents of padding that were compared, that in use first."""
    seeds: tuple[int, ...]
    rng_consumed: bool
    """It draws random numbers: results with and without padding cannot be equal."""
    unseen: tuple[str, ...] = ()
    """What the function can reach and the check could not look into, with its type: "variable rows
    (builtins.generator)"."""

    @property
    def refused(self) -> tuple[str, ...]:
        """Probes at which the function raised: nothing is known of such padding."""
        return tuple(name for name in (*FINITE, NAN) if name not in self.probes)

    @property
    def verdict(self) -> Judged:
        """The verdict on padding; if "unknown", `outputs` and `unseen` have the reasons."""
        return judge_padding((out.kind for out in self.outputs.values()), self.unseen, self.probes)

    @property
    def safe(self) -> bool:
        """Nothing depends on finite padding, and nothing was left out that could."""
        return self.verdict == "safe"

    @property
    def harmful(self) -> dict[str, Verdict]:
        """Verdicts that must be changed before padding is used; random numbers alone are not."""
        return {path: verdict for path, verdict in self.outputs.items() if verdict.kind in HARMFUL}

    def require_harmless(self) -> None:
        """Raises PaddingContaminates, with what depends on padding and what to do, if anything."""
        if self.harmful:
            problems = "; ".join(
                f"{path or 'the output'}: {verdict.kind} ({verdict.note}): {HARMFUL[verdict.kind]}"
                for path, verdict in self.harmful.items()
            )
            raise PaddingContaminates(f"{self.function} depends on padding: {problems}")
