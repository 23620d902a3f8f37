"""What changed from one run to another: items paired by their keys, once for `diff` and the gate.

Both runs have the common form of `run_baseline`, so that a baseline is compared as a receipt is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Literal, Protocol, TypeVar

from msgspec import Struct

from compilediag.compare.keys import BreakKey, CauseKey, FrameKey
from compilediag.compare.run_baseline import (
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    LaneBaseline,
)


class _Counted(Protocol):
    """Something that a run has a number of times."""

    @property
    def count(self) -> int: ...


Item = TypeVar("Item", bound=_Counted)
Key = TypeVar("Key")


class Change(Struct, Generic[Item], frozen=True):
    """One item in both runs; None where a run does not have it."""

    before: Item | None
    after: Item | None

    @property
    def kind(self) -> Literal["new", "gone", "changed", "same"]:
        """How the runs differ in it."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        return "same" if self.before.count == self.after.count else "changed"

    @property
    def count_before(self) -> int:
        """How often the earlier run has it."""
        return self.before.count if self.before is not None else 0

    @property
    def count_after(self) -> int:
        """How often the later run has it."""
        return self.after.count if self.after is not None else 0


class CountChange(Struct, frozen=True):
    """One count of both runs."""

    name: str
    before: int
    after: int

    @property
    def change(self) -> int:
        """How many more (negative: fewer) after."""
        return self.after - self.before


class RunChanges(Struct, frozen=True):
    """Every item of either run by its key: those of the earlier run first, changed or not."""

    counts: tuple[CountChange, ...]
    """The counts that both runs have."""
    causes: Mapping[CauseKey, Change[KnownCause]]
    breaks: Mapping[BreakKey, Change[KnownBreak]]
    frames: Mapping[FrameKey, Change[KnownFrame]]
    fallbacks: Mapping[FrameKey, Change[KnownFallback]]


def changes_between(before: LaneBaseline, after: LaneBaseline) -> RunChanges:
    """What changed from one run to another."""
    return RunChanges(
        counts=tuple(
            CountChange(name, before.counts[name], count)
            for name, count in after.counts.items()
            if name in before.counts
        ),
        causes=_paired({i.key: i for i in before.causes}, {i.key: i for i in after.causes}),
        breaks=_paired({i.key: i for i in before.breaks}, {i.key: i for i in after.breaks}),
        frames=_paired({i.key: i for i in before.frames}, {i.key: i for i in after.frames}),
        fallbacks=_paired(
            {i.key: i for i in before.fallbacks}, {i.key: i for i in after.fallbacks}
        ),
    )


def _paired(before: Mapping[Key, Item], after: Mapping[Key, Item]) -> dict[Key, Change[Item]]:
    keys = dict.fromkeys((*before, *after))
    return {key: Change(before.get(key), after.get(key)) for key in keys}
