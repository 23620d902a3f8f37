"""Changes from one run to another: causes, breaks, frames and fallbacks paired by their keys.

`diff` and the gate both use it. Both runs have the common form of `build_run_baseline`, so that a
baseline is compared as a receipt is.

A file or a function that has another name is no new fault beside a mended one. A key moved where
everything but its file, or but its function, is the same, its old place has nothing in the later
run, its new place had nothing in the earlier one, and no other key could be meant. A cause moves
with its frame, too: a function that a new one wraps and calls is no frame any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from compilediag.compare.keys import BreakKey, CauseKey, FrameKey
from compilediag.compare.run_baseline import (
    ConfigBaseline,
    Known,
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


Place: TypeAlias = tuple[str, str]  #: File and function.
_GROUPS = ("causes", "breaks", "frames", "fallbacks")


class Move(Struct, frozen=True):
    """A cause, break, frame or fallback that is elsewhere now."""

    group: str
    before: AnyKey
    after: AnyKey


class Relocated(Struct, frozen=True):
    """The earlier run with its keys where the later one has them."""

    baseline: ConfigBaseline
    moves: tuple[Move, ...] = ()

    @property
    def places(self) -> dict[Place, Place]:
        """Old places and where each is now."""
        places: dict[Place, Place] = {}
        for move in self.moves:
            before, after = _get_place(move.before), _get_place(move.after)
            if before is not None and after is not None:
                places.setdefault(before, after)
        return places


def relocate(before: ConfigBaseline, after: ConfigBaseline) -> Relocated:
    """Relocate what only moved: give it, in the earlier run, the key that it has in the later."""
    old, new = ({_get_place(key) for key in _list_keys(side)} - {None} for side in (before, after))
    frames, later = ({_get_place(frame.key) for frame in side.frames} for side in (before, after))
    wrapped, wrappers = frames - later, later - frames
    files = _find_moved_files(before, after)
    moves: list[Move] = []
    relocated: dict[str, tuple[Known, ...]] = {}
    for group in _GROUPS:
        rows: tuple[Any, ...] = getattr(before, group)
        keys, others = [i.key for i in rows], [i.key for i in getattr(after, group)]
        causes = group == "causes"
        left = old - wrappers if causes else old
        stayed = new - wrapped if causes else new
        gone = [key for key in keys if key not in others and _get_place(key) not in stayed]
        came = [key for key in others if key not in keys and _get_place(key) not in left]
        pairs = _pair(gone, came, files)
        moves += [Move(group, key, now) for key, now in pairs.items()]
        relocated[group] = tuple(replace(row, key=pairs.get(row.key, row.key)) for row in rows)
    return Relocated(replace(before, **relocated) if moves else before, tuple(moves))


def _pair(gone: list[AnyKey], came: list[AnyKey], files: Mapping[str, str]) -> dict[AnyKey, AnyKey]:
    """Pair each key that is gone with the one it became, where just one can be meant."""

    def place_in_moved_file(key: AnyKey) -> Hashable:
        return _remove_file(key), files.get(key.file or "", key.file)

    def remove_function(key: AnyKey) -> Hashable:
        # A frame's key is file and function: nothing would be left.
        return None if isinstance(key, FrameKey) else replace(key, function="")

    pairs: dict[AnyKey, AnyKey] = {}
    for same in (place_in_moved_file, _remove_file, remove_function):
        groups: dict[Hashable, tuple[list[AnyKey], list[AnyKey]]] = {}
        done = {*pairs, *pairs.values()}
        for side, keys in enumerate((gone, came)):
            for key in keys:
                if key not in done and _get_place(key) is not None:
                    groups.setdefault(same(key), ([], []))[side].append(key)
        pairs |= {
            old[0]: new[0]
            for name, (old, new) in groups.items()
            if name is not None and len(old) == len(new) == 1
        }
    return pairs


def _remove_file(key: AnyKey) -> Hashable:
    return replace(key, file="")


def _get_place(key: AnyKey) -> Place | None:
    return None if key.file is None or key.function is None else (key.file, key.function)


def _list_keys(baseline: ConfigBaseline) -> list[AnyKey]:
    return [known.key for group in _GROUPS for known in getattr(baseline, group)]


def _find_moved_files(before: ConfigBaseline, after: ConfigBaseline) -> dict[str, str]:
    """Find files that are gone, and the new one that has most of what each had, if just one."""
    old, new = _list_keys(before), _list_keys(after)
    old_files, new_files = ({key.file for key in keys} for keys in (old, new))
    votes: dict[str, Counter[str]] = {}
    for key in old:
        if key.file is None or key.file in new_files:
            continue
        for other in new:
            same = _remove_file(key) == _remove_file(other)
            if same and other.file and other.file not in old_files:
                votes.setdefault(key.file, Counter())[other.file] += 1
    moved_files: dict[str, str] = {}
    for file, counted in votes.items():
        (best, most), *others = counted.most_common(2)
        if not others or others[0][1] < most:
            moved_files[file] = best
    return moved_files


def format_place(key: AnyKey) -> str:
    """Format the place of a key: "forward of model.py"."""
    return f"{key.function} of {key.file}"
