"""Folds what became of each frame of one process: compiled, eager, refused, about to recompile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compilediag.timeline.compiles import Compile, Frame, FrameKey, Hazards, SkippedFrame
from compilediag.timeline.process import ProcessEvents
from compilediag_harness.wire import Compiled, FrameSkipped, HazardsChecked


def frames_of(part: ProcessEvents, compiles: Sequence[Compile]) -> list[Frame]:
    """Each frame that was attempted, in the order of their first attempts."""
    told = {(row.epoch, row.compile_id): row for row in part.of(Compiled)}
    grouped: dict[FrameKey, list[Compile]] = {}
    for item in compiles:
        if item.forward:
            grouped.setdefault(item.key, []).append(item)
    frames: list[Frame] = []
    for key, attempts in grouped.items():
        guarded = [a for a in attempts if a.guarded]
        at_limit = next((a for a in attempts if a.kind == "limit"), None)
        refused = None if guarded else attempts[-1]
        cause = at_limit or refused
        rows = [r for a in guarded if (r := told.get((a.epoch, a.compile_id))) is not None]
        frames.append(
            Frame(
                key=key,
                where=attempts[0].frame,
                compiles=len(guarded),
                graphs=sum(1 for a in guarded if a.graph_ops),
                guards=guarded[-1].guards if guarded else None,
                guard_eval_us=rows[-1].guard_eval_us if rows else None,
                limit=next((r.limit for r in rows), None),
                limit_hit_step=at_limit.step if at_limit else None,
                ran_eager=cause is not None,
                eager_reason=_eager_reason(cause),
            )
        )
    return frames


def _eager_reason(cause: Compile | None) -> str | None:
    if cause is None:
        return None
    return cause.fail_reason or cause.fail_type or "torch gave no reason"


def skipped_of(part: ProcessEvents) -> list[SkippedFrame]:
    """Refused frames that have no metrics row of their own, each once."""
    refused = part.of(FrameSkipped)
    if not refused:
        return []
    rows = {(row.frame.file, row.frame.function) for row in part.of(Compiled)}
    found: dict[tuple[str, str], SkippedFrame] = {}
    for event in refused:
        key = (event.frame.file, event.frame.function)
        if key not in rows and key not in found:
            found[key] = SkippedFrame(part.index, event.frame, event.reason, event.step)
    return list(found.values())


def hazards_of(process: int, looks: Iterable[HazardsChecked]) -> list[Hazards]:
    """The newest look at each frame."""
    return [
        Hazards(
            process,
            event.frame,
            event.step,
            event.guards,
            event.checked,
            event.unevaluated,
            event.skipped,
        )
        for event in {event.frame: event for event in looks}.values()
    ]
