"""What a change allows itself: the baseline of a pull request against that of its base."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compilediag.compare.changes import Change, changes_between
from compilediag.compare.gate.entries import describe, plural
from compilediag.compare.moves import moved
from compilediag.compare.run_baseline import LaneBaseline

_NAMED = 10
_REASON_CHARS = 200


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
