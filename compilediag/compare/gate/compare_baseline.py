"""A run against its baseline: what is worse, what is better, what is allowed.

The same fault is reported once: a count fails only where no cause, break, fallback or frame
explains why it grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compilediag.compare.changes import Change, CountChange, RunChanges, changes_between
from compilediag.compare.gate.entries import describe, frame_item, improvement, item_of, plural
from compilediag.compare.gate.judgement import BaselineResult, Item, Kind
from compilediag.compare.moves import Moved, moved, place_text
from compilediag.compare.run_baseline import (
    Allowed,
    KnownBreak,
    KnownCause,
    KnownFrame,
    LaneBaseline,
    RunBaseline,
    is_own,
)
from compilediag.receipt.schema.receipt import Receipt

_NAMED = 10
_REASON_CHARS = 200


_MAX_MOVES = 5


def compare_with_baseline(
    receipt: Receipt, run: RunBaseline, whole: RunBaseline, baseline: LaneBaseline
) -> BaselineResult:
    """Compares item by item. `run` is what is judged; `whole` is everything that happened, which
    decides what is gone."""
    relocated = moved(baseline, whole.lane)
    baseline = relocated.lane
    changes = changes_between(baseline, run.lane)
    worse, known = _present(receipt, run, changes)
    everything = changes if whole is run else changes_between(baseline, whole.lane)
    better = [
        improvement(change.before, change.count_after)
        for group in (everything.causes, everything.breaks, everything.fallbacks)
        for change in group.values()
        if change.before is not None
        and change.count_after < change.count_before
        and _is_judged(change.before.key.file, run)
    ]
    more = _frames(run, changes)
    notices = [*_moves(relocated), *more.notices]
    if more.items and any(item.kind in ("break", "fallback") for item in worse):
        # A graph break splits a function into several frames: these are its consequence.
        names = ", ".join(dict.fromkeys(f"{item.function}" for item in more.items))
        notices.append(
            f"{plural(len(more.items), 'more frame')} compiled ({names}): the new graph breaks "
            "and fallbacks come first"
        )
    else:
        worse += more.items
    if not run.own_code_only:
        worse += _recordings(run.lane, baseline)
        grown, shrunk = _counts(changes.counts, worse, better, more)
        worse, better = [*worse, *grown], [*better, *shrunk]
    return BaselineResult(tuple(worse), tuple(better), tuple(known), tuple(notices))


def _moves(relocated: Moved) -> Iterable[str]:
    """What is allowed where it is now, because it was allowed where it was."""
    named = [
        (describe(item), move)
        for item in relocated.lane.allowed
        for move in relocated.moves
        if move.after == item.key and move.group != "frames"
    ]
    for text, move in named[:_MAX_MOVES]:
        yield f"moved from {place_text(move.before)}, and known there: {text}"
    if (more := len(named) - _MAX_MOVES) > 0:
        yield f"{plural(more, 'more item')} moved, and known where they were"


def _present(
    receipt: Receipt, run: RunBaseline, changes: RunChanges
) -> tuple[list[Item], list[Item]]:
    """Causes, breaks and fallbacks of the run: those that fail, and those that are allowed."""
    worse: list[Item] = []
    known: list[Item] = []
    for found in run.lane.allowed:
        old = _before(found, changes)
        before = old.count if old is not None else 0
        item = item_of(receipt, run, found, before)
        reason = old.reason if old is not None else None
        (worse if found.count > before else known).append(replace(item, reason=reason))
    return worse, known


def _before(found: Allowed, changes: RunChanges) -> Allowed | None:
    if isinstance(found, KnownCause):
        return changes.causes[found.key].before
    if isinstance(found, KnownBreak):
        return changes.breaks[found.key].before
    return changes.fallbacks[found.key].before


def _is_judged(file: str | None, run: RunBaseline) -> bool:
    return not run.own_code_only or is_own(file)


class _MoreFrames(Struct, frozen=True):
    """First compiles beyond the baseline's."""

    items: tuple[Item, ...]
    total: int
    """How many more than the baseline's, over all frames; 0 or less: not more."""
    notices: tuple[str, ...] = ()


def _frames(run: RunBaseline, changes: RunChanges) -> _MoreFrames:
    """Frames that are compiled more often, recompiles aside: only where the total grew, so that a
    function that was renamed or moved does not fail. A frame that no longer runs eager may."""
    judged = [
        change
        for key, change in changes.frames.items()
        if _is_judged(key.file, run) or change.after is not None
        if (eager := changes.fallbacks.get(key)) is None or eager.kind != "gone"
    ]
    total = sum(_firsts(change.after) - _firsts(change.before) for change in judged)
    grown = [
        (change.after, _firsts(change.before))
        for change in judged
        if change.after is not None and _firsts(change.after) > _firsts(change.before)
    ]
    if total > 0:
        return _MoreFrames(tuple(frame_item(run, frame, old) for frame, old in grown), total)
    if not grown:
        return _MoreFrames((), total)
    names = ", ".join(dict.fromkeys(frame.key.function for frame, _ in grown))
    notice = f"compiled where the baseline has other frames, and no more in all: {names}"
    return _MoreFrames((), total, (notice,))


def _firsts(frame: KnownFrame | None) -> int:
    return max(0, frame.count - frame.recompiles) if frame is not None else 0


def _recordings(now: LaneBaseline, baseline: LaneBaseline) -> list[Item]:
    before, after = baseline.recordings, now.recordings
    if before is None or after is None or after <= before:
        return []
    message = f"{plural(after, 'CUDA-graph recording')}; the baseline has {before}"
    return [Item("recording", "recordings", message, before, after)]


_EXPLAINED_BY: Mapping[str, tuple[Kind, ...]] = {
    "frames": ("frame", "break", "fallback"),
    "compiles": ("cause", "frame", "break", "fallback"),
    "recompiles": ("cause",),
    "graphs": ("cause", "frame", "break", "fallback"),
    "graph_breaks": ("break",),
    "eager_fallbacks": ("fallback",),
    "recompile_limit_hits": ("fallback", "cause"),
}
"""Kinds of items that explain why a count changed: then the count itself is no item of its own."""


def _counts(
    counts: Iterable[CountChange],
    worse: Iterable[Item],
    better: Iterable[Item],
    more: _MoreFrames,
) -> tuple[list[Item], list[Item]]:
    """Counts that grew or shrank and that no item explains."""
    kinds_worse, kinds_better = {item.kind for item in worse}, {item.kind for item in better}
    recovered = "fallback" in kinds_better and more.total <= 0
    grown: list[Item] = []
    shrunk: list[Item] = []
    for item in counts:
        kinds = _EXPLAINED_BY.get(item.name, ())
        if item.change > 0 and not kinds_worse.intersection(kinds):
            # A frame that no longer runs eager is compiled instead: that is no regression.
            if not (recovered and item.name in ("frames", "compiles", "graphs")):
                grown.append(_count(item))
        elif item.change < 0 and not kinds_better.intersection(kinds):
            shrunk.append(_count(item))
    return _without_implied(grown), shrunk


def _without_implied(grown: list[Item]) -> list[Item]:
    """Of counts that grew together the most specific one: a recompile is a compile and a graph."""
    names = {item.rule for item in grown}
    for implied, by in (
        ("graphs", {"compiles", "recompiles", "frames"}),
        ("compiles", {"recompiles", "frames"}),
    ):
        if names & by:
            grown = [item for item in grown if item.rule != implied]
    return grown


def _count(item: CountChange) -> Item:
    message = f"{item.name.replace('_', ' ')}: {item.after}, and the baseline has {item.before}"
    return Item("count", item.name, message, item.before, item.after)


def enlarged(before: LaneBaseline | None, now: LaneBaseline, base: str) -> tuple[str, ...]:
    """Sentences on what a lane allows that it does not allow in `base`; empty where it is no more.

    Counts are named where no item says what they are of.
    """
    if before is None:
        return (
            f"this change adds the lane {now.name!r} to the baseline: it is not in that of {base}",
        )
    changes = changes_between(moved(before, now).lane, now)
    groups = (changes.causes, changes.breaks, changes.fallbacks)
    found = [text for group in groups for item in group.values() for text in _allowed(item)]
    if not found:
        found = [
            f"{item.name.replace('_', ' ')} {item.before} → {item.after}"
            for item in changes.counts
            if item.change > 0
        ]
    if not found:
        return ()
    more = len(found) - _NAMED
    head = f"this change itself allows {plural(len(found), 'thing')} that {base} does not"
    shown = "; ".join(found[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return (f"{head}: {shown}",)


def _allowed(change: Change[Any]) -> Iterable[str]:
    item = change.after
    if item is None or change.count_after <= change.count_before:
        return
    why = f" (reason: {item.reason[:_REASON_CHARS]})" if item.reason else " (no reason given)"
    yield f"{describe(item)} {change.count_before} → {change.count_after}{why}"
