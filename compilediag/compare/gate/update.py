"""A run recorded into a baseline: what is newly allowed needs a reason, kept reasons stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from compilediag.compare.gate.code import CodeComparison
from compilediag.compare.gate.inconclusive import inconclusive_reasons
from compilediag.compare.run_baseline import (
    Allowed,
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
    newly_allowed: tuple[str, ...]
    """Causes, breaks and fallbacks that the baseline did not have: they need a reason."""
    without_reason: tuple[str, ...]
    """What is allowed and still has no reason."""


def recorded(
    receipt: Receipt,
    baseline: LaneBaseline | None,
    *,
    reason: str | None = None,
    lane: str | None = None,
    code: CodeComparison | None = None,
) -> Recorded:
    """The receipt as the new baseline of its lane. `reason` is for everything that has none yet;
    fields of newer versions stay where they were."""
    now = run_baseline(receipt, lane).lane
    old = baseline if baseline is not None else LaneBaseline(now.name, {}, {})
    frames = {item.key: item for item in old.frames}
    new = replace(
        now,
        causes=_merged(now.causes, old.causes, reason),
        breaks=_merged(now.breaks, old.breaks, reason),
        fallbacks=_merged(now.fallbacks, old.fallbacks, reason),
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
        newly_allowed=tuple(describe(item) for item in added),
        without_reason=tuple(describe(item) for item in new.allowed if item.reason is None),
    )


def describe(item: Allowed) -> str:
    """An item in a sentence."""
    if isinstance(item, KnownCause):
        return f"{item.key.rule} {item.key.variable}"
    if isinstance(item, KnownBreak):
        return f"graph break in {item.key.function} of {item.key.file}"
    return f"{item.key.function} of {item.key.file} runs eager"


def _merged(now: Iterable[Item], old: Iterable[Item], reason: str | None) -> tuple[Item, ...]:
    """What is there now, with the reasons and the unknown fields of the old items."""
    known = {item.key: item for item in old}
    merged: list[Item] = []
    for item in now:
        kept = known.get(item.key, item)
        merged.append(replace(item, reason=kept.reason or reason, unknown=kept.unknown))
    return tuple(merged)
