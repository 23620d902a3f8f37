"""The inputs that cache entries accept, as a receipt lists them, with the conditions that refuse
others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compilediag.diagnosis.guards.size_limits import (
    find_excluding_guard,
    find_fixing_guard,
    locate_size_limit,
)
from compilediag.receipt.schema.compiles import AcceptedInputs, RefusedSize, SizesAsked
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import AcceptedSizes, InputsAsked, SizeGuard

MAX_LISTED = 200


def list_accepted_inputs(timeline: Timeline) -> tuple[AcceptedInputs, ...]:
    """List what the entries of each frame accept, of frames whose sizes varied first."""
    frames = [
        make_record(
            AcceptedInputs,
            asked,
            sizes=tuple(
                make_record(SizesAsked, sizes, refused=tuple(_find_refused(asked, sizes, timeline)))
                for sizes in asked.sizes
            ),
        )
        for asked in timeline.accepted_inputs
    ]
    frames.sort(key=lambda frame: not any(sizes.varied for sizes in frame.sizes))
    return tuple(frames[:MAX_LISTED])


def _find_refused(
    asked: InputsAsked, sizes: AcceptedSizes, timeline: Timeline
) -> Iterator[RefusedSize]:
    """Find what refuses the sizes beside the span in which that of the call is, where a recorded
    condition on this size alone does."""
    key = CompileId(asked.process, asked.epoch, asked.compile_id)
    guards = timeline.size_guards.get(key, ())
    own = (its for its in sizes.spans if its[0] <= sizes.size <= its[1])
    first, last = next(own, (0, 0))
    for size in (first - 1, last + 1):
        guard = _find_guard(guards, sizes.dimensions, size)
        if guard is None or not 0 <= size <= sizes.asked_to:
            continue
        limit = locate_size_limit(guard, timeline.user_roots)
        yield make_record(
            RefusedSize,
            limit,
            size=size,
            needed_by=guard.torch_calls[0] if limit.how == "operation" else None,
        )


def _find_guard(
    guards: Iterable[SizeGuard], dimensions: Iterable[str], size: int
) -> SizeGuard | None:
    """Find the condition that made the size of a dimension a constant, or excludes this one."""
    for dimension in dimensions:
        name = dimension.replace(".shape[", ".size()[")
        if guard := find_fixing_guard(guards, name) or find_excluding_guard(guards, name, size):
            return guard
    return None
