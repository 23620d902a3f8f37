"""A run recorded into a baseline: what is newly allowed needs a reason, kept reasons stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from compilediag.compare.gate.baseline import (
    NOTHING,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    LaneBaseline,
)
from compilediag.compare.gate.inconclusive import doubts_of
from compilediag.compare.run_baseline import ledger_of
from compilediag.receipt.schema.receipt import Receipt

Allowed = TypeVar("Allowed", KnownCause, KnownBreak, KnownFallback)


class Recorded(NamedTuple):
    """A lane as it is to be written."""

    lane: LaneBaseline
    doubts: tuple[str, ...]
    """Why the run must not be recorded: blind, torn, killed; empty where it may be."""
    newly_allowed: tuple[str, ...]
    """Causes, breaks and fallbacks the baseline did not know: with these a reason is needed."""
    without_reason: tuple[str, ...]
    """What is allowed and still has no reason."""


def recorded(
    receipt: Receipt,
    baseline: LaneBaseline | None,
    *,
    reason: str | None = None,
    lane: str | None = None,
) -> Recorded:
    """The receipt as the new baseline of its lane. `reason` is for everything that has none yet;
    fields of newer versions stay where they were."""
    now = ledger_of(receipt, lane).lane
    old = baseline if baseline is not None else LaneBaseline(now.name, {}, {})
    causes = _with_reasons(now.causes, old.causes, reason)
    breaks = _with_reasons(now.breaks, old.breaks, reason)
    fallbacks = _with_reasons(now.fallbacks, old.fallbacks, reason)
    new = [
        *_beside(causes, old.causes),
        *_beside(breaks, old.breaks),
        *_beside(fallbacks, old.fallbacks),
    ]
    return Recorded(
        lane=replace(
            now,
            causes=causes,
            breaks=breaks,
            fallbacks=fallbacks,
            frames=_frames(now.frames, old.frames),
            counts={**_others(old.counts, now.counts), **now.counts},
            unknown=old.unknown,
        ),
        doubts=tuple(doubts_of(receipt)),
        newly_allowed=tuple(spelled(item) for item in new),
        without_reason=tuple(
            spelled(item) for item in (*causes, *breaks, *fallbacks) if item.reason is None
        ),
    )


def spelled(item: KnownCause | KnownBreak | KnownFallback) -> str:
    """An item in a sentence."""
    if isinstance(item, KnownCause):
        return f"{item.key.rule} {item.key.variable}"
    if isinstance(item, KnownBreak):
        return f"graph break in {item.key.function} of {item.key.file}"
    return f"{item.key.function} of {item.key.file} runs eager"


def _with_reasons(
    now: Iterable[Allowed], old: Iterable[Allowed], reason: str | None
) -> tuple[Allowed, ...]:
    known = {item.key: item for item in old}
    found: list[Allowed] = []
    for item in now:
        before = known.get(item.key)
        kept = before.reason if before is not None else None
        unknown = before.unknown if before is not None else item.unknown
        found.append(replace(item, reason=kept or reason, unknown=unknown))
    return tuple(found)


def _beside(now: Iterable[Allowed], old: Iterable[Allowed]) -> list[Allowed]:
    known = {item.key for item in old}
    return [item for item in now if item.key not in known]


def _frames(now: Iterable[KnownFrame], old: Iterable[KnownFrame]) -> tuple[KnownFrame, ...]:
    known = {item.key: item.unknown for item in old}
    return tuple(replace(item, unknown=known.get(item.key, NOTHING)) for item in now)


def _others(old: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What this version does not count."""
    return {key: value for key, value in old.items() if key not in now}
