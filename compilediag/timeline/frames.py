"""What became of each frame of a process: compiled, eager, skipped, about to recompile; and what
counts as a frame, compile, recompile, graph, break and fallback.

The definitions of docs/reference/receipt.md. Receipts, telemetry, ranks, tests and the live line
all count by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compilediag.receipt.schema.compiles import Counts
from compilediag.timeline.breaks import BreakSite
from compilediag.timeline.compiles import Compile, CompileId, FrameId
from compilediag.timeline.process import ProcessEvents
from compilediag_harness.wire import (
    Compiled,
    FrameSkipped,
    HazardsChecked,
    Location,
    UserCall,
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that Dynamo attempted, over all its compiles."""

    key: FrameId
    where: Location
    compiles: int
    """Attempts that ended with guarded code."""
    graphs: int
    guards: int | None
    """Guards of the newest compile."""
    guard_eval_us: float | None
    limit: int | None
    """`recompile_limit` in force."""
    limit_hit_step: int | None
    ran_eager: bool
    """Skipped, or over the limit: some call of it ran without guarded code."""
    eager_reason: str | None
    raised_at_limit: bool = False
    """With `fullgraph=True` torch raises at the limit: the call does not run at all."""
    entered_at: UserCall | None = None
    entered_from: str = ""
    """Both as in `Compile`: of the call that ran eager, else of the first one."""


def frames_of(compiles: Sequence[Compile]) -> list[Frame]:
    """Each frame that was attempted, in the order of their first attempts."""
    grouped: dict[FrameId, list[Compile]] = {}
    for item in compiles:
        if item.forward:
            grouped.setdefault(item.key, []).append(item)
    # The row of a lazily compiled backward has the id of its forward, and comes after it.
    rows = {item.id: item for item in compiles}
    return [_frame(key, attempts, rows) for key, attempts in grouped.items()]


def _frame(key: FrameId, attempts: Sequence[Compile], rows: Mapping[CompileId, Compile]) -> Frame:
    guarded = [item for item in attempts if item.guarded]
    own = [rows[item.id] for item in guarded]
    at_limit = next((item for item in attempts if item.kind == "limit"), None)
    raised = at_limit is not None and "FailOnRecompileLimitHit" in (at_limit.fail_type or "")
    eager = (None if raised else at_limit) or (None if guarded else attempts[-1])
    shown = at_limit or eager or attempts[0]
    reason = None
    if eager is not None:
        reason = eager.fail_reason or eager.fail_type or "torch gave no reason"
    return Frame(
        key=key,
        where=attempts[0].frame,
        compiles=len(guarded),
        graphs=sum(1 for item in guarded if item.graph_ops),
        guards=guarded[-1].guards if guarded else None,
        guard_eval_us=own[-1].guard_eval_us if own else None,
        limit=own[0].limit if own else None,
        limit_hit_step=at_limit.step if at_limit else None,
        ran_eager=eager is not None,
        eager_reason=reason,
        raised_at_limit=raised,
        entered_at=shown.entered_at,
        entered_from=shown.entered_from,
    )


def skipped_of(part: ProcessEvents) -> Iterable[FrameSkipped]:
    """Skipped frames that have no metrics row of their own, each once."""
    rows = {(row.frame.file, row.frame.function) for row in part.of(Compiled)}
    found: dict[tuple[str, str], FrameSkipped] = {}
    for event in part.of(FrameSkipped):
        key = (event.frame.file, event.frame.function)
        if key not in rows:
            found.setdefault(key, event)
    return found.values()


def newest_hazards(_: int, checks: Iterable[HazardsChecked]) -> Iterable[HazardsChecked]:
    """The last check of each frame of one process."""
    return {event.frame: event for event in checks}.values()


def is_compile(item: Compile) -> bool:
    """Whether an attempt counts as a compile."""
    return item.forward and item.guarded


def is_recompile(item: Compile) -> bool:
    """Whether an attempt counts as a recompile too."""
    return item.recompile is not None and item.recompile.produced


def counts_of(
    frames: Iterable[Frame], compiles: Iterable[Compile], breaks: Iterable[BreakSite]
) -> Counts:
    """The counts of what was compiled, by the definitions above."""
    counted = [item for item in compiles if is_compile(item)]
    attempted = tuple(frames)
    return Counts(
        frames=len(attempted),
        compiles=len(counted),
        recompiles=sum(is_recompile(item) for item in counted),
        graphs=sum(bool(item.graph_ops) for item in counted),
        graph_breaks=len({site.at for site in breaks}),
        eager_fallbacks=sum(frame.ran_eager for frame in attempted),
        recompile_limit_hits=sum(frame.limit_hit_step is not None for frame in attempted),
    )
