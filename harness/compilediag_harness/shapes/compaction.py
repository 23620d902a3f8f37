"""Rows that are done one after the other: the ones that are left move to the next smaller size.

A row that is done is held as it is, so results are those of computing all rows to the end and
masking. How many are left is read without waiting for a device: an older count is larger, so a size
that was chosen by it is large enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from compilediag_harness.shapes import shape_log
from compilediag_harness.shapes.call_parts import Call
from compilediag_harness.shapes.layouts import Layout
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.trees import flatten, rebuilt
from compilediag_harness.wire import RowsRun


@dataclass(frozen=True, slots=True)
class Loop:
    """How a loop went."""

    state: Any
    """The state of all rows, in their order."""
    rows: int
    sizes: tuple[int, ...]
    """Rows that were computed in each step, padding included."""
    active: tuple[int, ...]
    """Rows known to be left at the beginning of each step; on a device some steps old, and so no
    fewer than there were."""
    compacted: int
    """How often the rows that were left moved to a smaller size."""

    @property
    def steps(self) -> int:
        return len(self.sizes)


class ActiveCount:
    """The number of rows that are left, as far as it is known without waiting."""

    def __init__(self, torch: Any, rows: int) -> None:
        self._torch = torch
        self.bound = rows
        self._event: Any = None
        self._landing: Any = None

    def look(self, done: Any) -> None:
        """Asks for the count of `done`, and takes the last one that has arrived."""
        if not done.is_cuda:
            self.bound = min(self.bound, int((~done).sum()))
            return
        if self._event is not None and self._event.query():
            self.bound = min(self.bound, int(self._landing[0]))
            self._event = None
        if self._event is None:
            if self._landing is None:
                self._landing = self._torch.empty(1, dtype=self._torch.int64, pin_memory=True)
            self._landing.copy_((~done).sum().reshape(1), non_blocking=True)
            self._event = self._torch.cuda.Event()
            self._event.record()


class _Rows:
    """The leaves of the rows that are still computed, and where they belong."""

    def __init__(self, torch: Any, layout: Layout, leaves: list[Any], rows: int) -> None:
        self._torch = torch
        self._dims = {leaf.place: leaf.row_dim for leaf in layout.padded}
        self.leaves = leaves
        self.count = rows
        self._all: list[Any] | None = None
        self._places: Any = None

    def hold(self, before: list[Any], done: Any) -> None:
        """Rows that were done before the step are as they were."""
        for place, dim in self._dims.items():
            if dim is not None:
                shape = [1] * before[place].dim()
                shape[dim] = self.count
                kept = self._torch.where(done.reshape(shape), before[place], self.leaves[place])
                self.leaves[place] = kept

    def keep(self, done: Any, count: int) -> None:
        """Goes on with `count` rows: all that are left, and some that are done."""
        order = self._torch.argsort(done.to(self._torch.uint8), stable=True)[:count]
        places = self._torch.arange(self.count, device=done.device)
        self._park(places if self._places is None else self._places)
        self._places = (places if self._places is None else self._places).index_select(0, order)
        for place, dim in self._dims.items():
            if dim is not None:
                at = order.to(self.leaves[place].device)
                self.leaves[place] = self.leaves[place].index_select(dim, at)
        self.count = count

    def whole(self) -> list[Any]:
        """The leaves of all rows."""
        if self._all is None:
            return self.leaves
        self._park(self._places)
        return self._all

    def _park(self, places: Any) -> None:
        if self._all is None:
            self._all = list(self.leaves)
            return
        for place, leaf in enumerate(self.leaves):
            dim = self._dims.get(place)
            if dim is None:  # it has no rows: the newest is that of all
                self._all[place] = leaf
            else:
                at = places.to(self.leaves[place].device)
                self._all[place] = self._all[place].index_copy(dim, at, leaf)


def run_until_done(
    calls: PaddedCalls,
    state: Any,
    done: Callable[[Any], Any],
    steps: int,
    *,
    compaction: bool,
) -> Loop:
    """Calls `state = callable(state)` until every row is done, at most `steps` times.

    Raises:
        ShapeUnusable: the callable gives back another structure than it takes, or `done` is not one
            flag a row.
    """
    call = calls.read((state,), {})
    rows = _Rows(calls.torch, call.layout, list(call.leaves), call.sizes[0])
    count = ActiveCount(calls.torch, call.sizes[0])
    sizes: list[int] = []
    active: list[int] = []
    compacted = 0
    for _ in range(steps if call.sizes[0] else 0):
        now = _state(state, rows.leaves)
        finished = _flags(calls.torch, done(now), rows.count)
        count.look(finished)
        if count.bound == 0:
            break
        target = _computed(calls, call, count.bound)
        if compaction and target < _computed(calls, call, rows.count):
            rows.keep(finished, min(target, rows.count))
            compacted += 1
            now = _state(state, rows.leaves)
            finished = _flags(calls.torch, done(now), rows.count)
        sizes.append(_computed(calls, call, rows.count))
        active.append(count.bound)
        before = rows.leaves
        rows.leaves = _stepped(calls, now, state)
        rows.hold(before, finished)
    loop = Loop(_state(state, rows.whole()), call.sizes[0], tuple(sizes), tuple(active), compacted)
    _tell(calls, loop, compaction=compaction)
    return loop


def _state(like: Any, leaves: list[Any]) -> Any:
    taken: Iterator[Any] = iter(leaves)
    return rebuilt(like, taken)


def _computed(calls: PaddedCalls, call: Call, rows: int) -> int:
    """Rows that a call with so many real ones computes."""
    return sum(bucket[0] for _, _, bucket in calls.plan((rows, *call.sizes[1:])))


def _flags(torch: Any, done: Any, rows: int) -> Any:
    if (
        not isinstance(done, torch.Tensor)
        or done.dtype != torch.bool
        or tuple(done.shape) != (rows,)
    ):
        told = f"{done.dtype} {list(done.shape)}" if isinstance(done, torch.Tensor) else repr(done)
        raise ShapeUnusable(f"done must give one bool a row, [{rows}], not {told}")
    return done


def _stepped(calls: PaddedCalls, now: Any, like: Any) -> list[Any]:
    leaves: list[Any] = []
    expected = flatten(like, [])
    if flatten(calls.run((now,), {}), leaves) != expected:
        raise ShapeUnusable(
            "the callable gives back another structure than it takes: a step takes the state as "
            "its one argument and returns the next state, with the same members"
        )
    return leaves


def _tell(calls: PaddedCalls, loop: Loop, *, compaction: bool) -> None:
    shape_log.tell(
        lambda t, step: RowsRun(
            t,
            step,
            calls.declared.number,
            calls.declared.function,
            loop.steps,
            loop.rows,
            sum(loop.sizes),
            sum(loop.active),
            loop.compacted,
            compaction,
        )
    )
