"""Which variants a probe runs, and when each group fires in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from compilediag.errors import UsageError
from compilediag.extensions.cadence.groups import ProbeGroup

VariantKind = Literal["configured", "control", "alone", "collision"]

DEFAULT_STEPS = 60
"""Steps of every variant unless the user sets another number."""

MIN_FIRES = 3
MAX_FIRES = 8
"""Firings of each group after warm-up: one first hit, and enough later ones for a median."""

QUIET = 3
"""Steps that do not fire between warm-up and the first firing, and between two firings."""

OFF_TEMPLATE = 10_000_000
"""A period beyond the last step: "off" for a program that takes a period only."""


@dataclass(frozen=True, slots=True)
class Plan:
    """When groups fire: in the steps `first`, `first + every`, and so on."""

    steps: int
    """Finished steps of the configured run: every variant is to make as many."""
    warmup: int
    every: int
    first: int

    def setting(self, group: ProbeGroup) -> str:
        """What moves a group of the code: a period and an offset in the program's own steps."""
        return f"{self.every}+{(self.first + group.shift) % self.every}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One run of the program: these groups fire, every other one is off."""

    kind: VariantKind
    on: tuple[ProbeGroup, ...] = ()

    @property
    def name(self) -> str:
        """As it is shown: the group's name for one alone."""
        return self.on[0].name if self.kind == "alone" else self.kind


def make_plan(steps: int, warmup: int) -> Plan:
    """The plan for a program that makes so many steps.

    The more room there is, the more often groups fire, up to `MAX_FIRES`.

    Raises:
        UsageError: there is no room for `MIN_FIRES` firings after the warm-up.
    """
    shortest = warmup + QUIET
    for fires in range(MAX_FIRES, MIN_FIRES - 1, -1):
        # A program that counts from 0 fires at multiples of the period: the last one must fit too.
        every = (steps - 1) // fires
        if every >= shortest + 1:
            return Plan(steps, warmup, every, min(shortest, every - 1))
    if steps == 0:
        raise UsageError(
            "no step was seen in the configured run, so nothing can be moved between steps: mark "
            "them with cd.step(), or see docs/reference/python_api.md for what counts as a step"
        )
    raise UsageError(
        f"the program made {steps} steps, the first {warmup} of them warm-up: {min_steps(warmup)} "
        f"steps are needed for every group to fire {MIN_FIRES} times after it. Let it make more, "
        "with --steps and with its own option for the number of steps"
    )


def min_steps(warmup: int) -> int:
    """Steps that a program must make to be probed."""
    return MIN_FIRES * (warmup + QUIET + 1) + 1


def variants_of(groups: Sequence[ProbeGroup]) -> tuple[Variant, ...]:
    """What runs after the configured variant, in order. With one group there is no collision."""
    if not groups:
        return ()
    alone = (Variant("alone", (group,)) for group in groups)
    together = (Variant("collision", tuple(groups)),) if len(groups) > 1 else ()
    return (Variant("control"), *alone, *together)


def warmup_steps(compiled: Iterable[int], steps: int, configured: int | None) -> int:
    """Leading steps that are not like the others: as configured by the user, else those that
    compile, and the one after. A program that compiles in every step is not all warm-up."""
    if configured is not None:
        return configured
    compiled, leading = frozenset(compiled), 0
    while leading in compiled:
        leading += 1
    return min(leading + 1, max(2, steps // 4))
