"""The result of a check of padding: a verdict for each output, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from compilediag_harness.shapes.dims import Sizes
from compilediag_harness.shapes.probes import FINITE, NAN, PAD
from compilediag_harness.shapes.shape_errors import PaddingContaminates

HARMLESS = frozenset({"safe", "nan_leak"})

HARMFUL = {
    "contaminated": 'mask the padding where rows meet (mask="name of an argument")',
    "state": "freeze it for padded calls (module.eval()), or mask what it adds up",
    "reduced": 'reduce over the real rows only, with mask="name of an argument"',
    "parity": "use the number of real rows (mask.sum()) in place of the padded size",
}
"""Kinds of verdicts that must not be, with what to do."""

Judged = Literal["safe", "unsafe", "unknown"]


def judged(kinds: Iterable[str], unseen: Sequence[str], probes: Sequence[str]) -> Judged:
    """What is known of padding: "unknown" where something draws random numbers, differs from run to
    run or could not be looked into, and where no padding but that in use could be tried."""
    met = set(kinds)
    if met & HARMFUL.keys():
        return "unsafe"
    if not met <= HARMLESS or unseen or not set(probes) & {*FINITE} - {PAD}:
        return "unknown"
    return "safe"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one output, one value left behind, one argument or one gradient depends on padding."""

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
        """Of padding as a whole; where it is "unknown", `outputs` and `unseen` have the reasons."""
        return judged((item.kind for item in self.outputs.values()), self.unseen, self.probes)

    @property
    def safe(self) -> bool:
        """Nothing depends on finite padding, and nothing was left out that could."""
        return self.verdict == "safe"

    @property
    def harmful(self) -> dict[str, Verdict]:
        """What must be changed before padding is used; random numbers alone are not."""
        return {path: item for path, item in self.outputs.items() if item.kind in HARMFUL}

    def require_harmless(self) -> None:
        """Raises PaddingContaminates, with what depends on padding and what to do, if anything."""
        if self.harmful:
            problems = "; ".join(
                f"{path or 'the output'}: {item.kind} ({item.note}): {HARMFUL[item.kind]}"
                for path, item in self.harmful.items()
            )
            raise PaddingContaminates(f"{self.function} depends on padding: {problems}")
