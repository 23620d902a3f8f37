"""Loop whose rows are done one after the other: those that are left move to a smaller size.

A row that is done is held as it is, so results are those of computing all rows to the end and
masking. How many are left is read without waiting for a device: an older count is larger, so a size
chosen by it is large enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.layouts import FlatCall, Layout
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.trees import flatten, rebuild
from compilediag_harness.wire import RowsRun


@dataclass(frozen=True, slots=True)
class Loop:
    """The course of a loop."""

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

    def update(self, done: Any) -> None:
        """Starts to copy the count of `done`, and takes the last one that has arrived."""
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
        self._dims = {
            leaf.index: leaf.row_dim for leaf in layout.padded if leaf.row_dim is not None
        }
        self.leaves = leaves
        self.count = rows
        self._all: list[Any] | None = None
        self._indices: Any = None
        """Of the rows that are left, among all."""

    def hold_done_rows(self, before: list[Any], done: Any) -> None:
        """Put rows that were done before the step back as they were."""
        for index, dim in self._dims.items():
            shape = [1] * before[index].dim()
            shape[dim] = self.count
            held = self._torch.where(done.reshape(shape), before[index], self.leaves[index])
            self.leaves[index] = held

    def select_rows(self, done: Any, count: int) -> None:
        """Go on with `count` rows: all that are left, and some that are done."""
        order = self._torch.argsort(done.to(self._torch.uint8), stable=True)[:count]
        if self._indices is None:
            self._indices = self._torch.arange(self.count, device=done.device)
        self._store_rows()
        self._indices = self._indices.index_select(0, order)
        for index, dim in self._dims.items():
            at = order.to(self.leaves[index].device)
            self.leaves[index] = self.leaves[index].index_select(dim, at)
        self.count = count

    def collect_all_rows(self) -> list[Any]:
        if self._all is None:
            return self.leaves
        self._store_rows()
        return self._all

    def _store_rows(self) -> None:
        """Puts the rows that are computed back among all."""
        if self._all is None:
            self._all = list(self.leaves)
            return
        for index, leaf in enumerate(self.leaves):
            dim = self._dims.get(index)
            if dim is None:  # it has no rows: the newest is that of all
                self._all[index] = leaf
            else:
                at = self._indices.to(leaf.device)
                self._all[index] = self._all[index].index_copy(dim, at, leaf)


def run_until_done(
    calls: PaddedCalls, state: Any, done: Callable[[Any], Any], steps: int, *, compaction: bool
) -> Loop:
    """Call `state = callable(state)` until every row is done, at most `steps` times.

    Raises:
        ShapeUnusable: the callable gives back another structure than it takes, or `done` gives no
            bool a row.
    """
    call = calls.read((state,), {})
    rows = _Rows(calls.torch, call.layout, list(call.leaves), call.sizes[0])
    count = ActiveCount(calls.torch, call.sizes[0])
    sizes: list[int] = []
    active: list[int] = []
    compacted = 0
    for _ in range(steps if call.sizes[0] else 0):
        now = rebuild(state, iter(rows.leaves))
        finished = _check_flags(calls.torch, done(now), rows.count)
        # Invariant: the bound is never below the true count, so no unfinished row is left out.
        count.update(finished)
        if count.bound == 0:
            break
        target = _count_computed_rows(calls, call, count.bound)
        if compaction and target < _count_computed_rows(calls, call, rows.count):
            rows.select_rows(finished, min(target, rows.count))
            compacted += 1
            now = rebuild(state, iter(rows.leaves))
            finished = _check_flags(calls.torch, done(now), rows.count)
        sizes.append(_count_computed_rows(calls, call, rows.count))
        active.append(count.bound)
        structure, after = flatten(calls.run((now,), {}))
        if structure != flatten(state)[0]:
            raise ShapeUnusable(
                "the callable gives back another structure than it takes: a step takes the state "
                "as its one argument and returns the next state, with the same members"
            )
        before, rows.leaves = rows.leaves, after
        rows.hold_done_rows(before, finished)
    whole = rebuild(state, iter(rows.collect_all_rows()))
    calls.emit(
        RowsRun,
        steps=len(sizes),
        rows=call.sizes[0],
        row_steps=sum(sizes),
        active_row_steps=sum(active),
        compacted=compacted,
        compaction=compaction,
    )
    return Loop(whole, call.sizes[0], tuple(sizes), tuple(active), compacted)


def _count_computed_rows(calls: PaddedCalls, call: FlatCall, rows: int) -> int:
    """Count the rows that a call with so many real ones computes, padding included."""
    return sum(part.bucket[0] for part in calls.plan_calls((rows, *call.sizes[1:])))


def _check_flags(torch: Any, done: Any, rows: int) -> Any:
    is_tensor = isinstance(done, torch.Tensor)
    if is_tensor and done.dtype == torch.bool and tuple(done.shape) == (rows,):
        return done
    result = f"{done.dtype} {list(done.shape)}" if is_tensor else repr(done)
    raise ShapeUnusable(f"done must give one bool a row, [{rows}], not {result}")
