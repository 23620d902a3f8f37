"""Changes from one run to another: causes, breaks, frames and fallbacks paired by their keys.

`diff` and the gate both use it. Both runs have the common form of `build_run_baseline`, so that a
baseline is compared as a receipt is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from compilediag.compare.keys import BreakKey, CauseKey, FrameKey
from compilediag.compare.run_baseline import (
    ConfigBaseline,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
)

KnownT = TypeVar("KnownT", bound="KnownCause | KnownBreak | KnownFrame | KnownFallback")
AnyKey: TypeAlias = CauseKey | BreakKey | FrameKey


class KnownChange(Struct, Generic[KnownT], frozen=True):
    """A cause, break, frame or fallback in both runs; None where a run does not have it."""

    before: KnownT | None
    after: KnownT | None

    @property
    def kind(self) -> Literal["new", "gone", "changed", "same"]:
        """The way in which the runs differ in it."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        return "same" if self.before.count == self.after.count else "changed"

    @property
    def count_before(self) -> int:
        """Times that the earlier run has it."""
        return self.before.count if self.before is not None else 0

    @property
    def count_after(self) -> int:
        """Times that the later run has it."""
        return self.after.count if self.after is not None else 0


class CountChange(Struct, frozen=True):
    """One count of both runs."""

    name: str
    before: int
    after: int

    @property
    def change(self) -> int:
        """The increase (negative: decrease) from before to after."""
        return self.after - self.before


class RunChanges(Struct, frozen=True):
    """All that either run has, by key: that of the earlier run first, changed or not."""

    counts: tuple[CountChange, ...]  #: The counts that both runs have.
    causes: Mapping[CauseKey, KnownChange[KnownCause]]
    breaks: Mapping[BreakKey, KnownChange[KnownBreak]]
    frames: Mapping[FrameKey, KnownChange[KnownFrame]]
    fallbacks: Mapping[FrameKey, KnownChange[KnownFallback]]

    @property
    def allowed(self) -> Mapping[AnyKey, KnownChange[Any]]:
        """Causes, graph breaks and fallbacks."""
        # Invariant: keys of different types never compare equal, so none replaces another.
        return {**self.causes, **self.breaks, **self.fallbacks}


def find_changes(before: ConfigBaseline, after: ConfigBaseline) -> RunChanges:
    """Find what changed from one run to another."""
    return RunChanges(
        counts=tuple(
            CountChange(name, before.counts[name], count)
            for name, count in after.counts.items()
            if name in before.counts
        ),
        **{group: _pair_by_key(getattr(before, group), getattr(after, group)) for group in _GROUPS},
    )


def _pair_by_key(before: Iterable[Any], after: Iterable[Any]) -> dict[Any, KnownChange[Any]]:
    old, new = ({known.key: known for known in side} for side in (before, after))
    return {key: KnownChange(old.get(key), new.get(key)) for key in {**old, **new}}


_GROUPS = ("causes", "breaks", "frames", "fallbacks")
