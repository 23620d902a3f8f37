"""A run recorded into a baseline: what is newly allowed needs a reason, kept reasons stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from compilediag.compare.changes import moved
from compilediag.compare.gate.entries import describe
from compilediag.compare.gate.inconclusive import CodeComparison, inconclusive_reasons
from compilediag.compare.run_baseline import (
    KnownBreak,
    KnownCause,
    KnownFallback,
    LaneBaseline,
    run_baseline,
)
from compilediag.receipt.schema.receipt import Receipt

Item = TypeVar("Item", KnownCause, KnownBreak, KnownFallback)


class Recorded(NamedTuple):
    """A lane as it is to be written."""

    lane: LaneBaseline
    inconclusive: tuple[str, ...]
    """Why the run must not be recorded: blind, torn, killed; empty where it may be."""
    unexplained: tuple[str, ...]
    """Causes, breaks and fallbacks that the baseline did not have and that have no reason."""
    without_reason: tuple[str, ...]
    """What is allowed and still has no reason."""
    allowed: tuple[str, ...] = ()
    """Everything that is allowed now."""
    explained: frozenset[str] = frozenset()
    """The names in `reasons` that an item has."""


def recorded(
    receipt: Receipt,
    baseline: LaneBaseline | None,
    *,
    reason: str | None = None,
    reasons: Sequence[tuple[str, str]] = (),
    lane: str | None = None,
    code: CodeComparison | None = None,
) -> Recorded:
    """The receipt as the new baseline of its lane. `reason` is for everything that has none yet,
    `reasons` are for the items with a name in their description, whatever they had; fields of newer
    versions stay where they were."""
    now = run_baseline(receipt, lane).lane
    old = baseline if baseline is not None else LaneBaseline(now.name, {}, {})
    old = moved(old, now).lane
    frames = {item.key: item for item in old.frames}
    new = replace(
        now,
        causes=_merged(now.causes, old.causes, reason, reasons),
        breaks=_merged(now.breaks, old.breaks, reason, reasons),
        fallbacks=_merged(now.fallbacks, old.fallbacks, reason, reasons),
        frames=tuple(
            replace(item, unknown=frames.get(item.key, item).unknown) for item in now.frames
        ),
        counts={**{k: v for k, v in old.counts.items() if k not in now.counts}, **now.counts},
        unknown=old.unknown,
    )
    known = {(type(item), item.key) for item in old.allowed}
    added = [item for item in new.allowed if (type(item), item.key) not in known]
    return Recorded(
        lane=new,
        inconclusive=(
            *(code.reasons if code is not None else ()),
            *inconclusive_reasons(receipt),
        ),
        unexplained=tuple(describe(item) for item in added if item.reason is None),
        without_reason=tuple(describe(item) for item in new.allowed if item.reason is None),
        allowed=tuple(describe(item) for item in new.allowed),
        explained=frozenset(
            name for name, _ in reasons if any(name in describe(item) for item in new.allowed)
        ),
    )


def _merged(
    now: Iterable[Item],
    old: Iterable[Item],
    reason: str | None,
    reasons: Sequence[tuple[str, str]],
) -> tuple[Item, ...]:
    """What is there now, with the reasons and the unknown fields of the old items."""
    known = {item.key: item for item in old}
    merged: list[Item] = []
    for item in now:
        kept = known.get(item.key, item)
        own = next((text.strip() for name, text in reasons if name in describe(item)), None)
        merged.append(replace(item, reason=own or kept.reason or reason, unknown=kept.unknown))
    return tuple(merged)
