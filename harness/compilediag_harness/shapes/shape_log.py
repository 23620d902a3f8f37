"""Log of `FixedShape`s for sessions: their calls in batches, the rest at once."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from compilediag_harness.base.session import SessionSink, SessionSinks
from compilediag_harness.shapes.dims import Sizes
from compilediag_harness.wire import FixedShapeUsed


class _Inside(threading.local):
    """The number of calls of `FixedShape`s that this thread is in."""

    depth = 0
    not_counted = 0
    """Those of them that are none of the program's: of a warm-up, or measured."""


inside = _Inside()
"""What is called in there gets padded tensors."""


_Counts = dict[tuple[Sizes, Sizes, Sizes], list[int]]
"""By real sizes, sizes run at, and sizes of the batch: calls, and those of them in CUDA graphs."""


class _Calls(SessionSink):
    """The calls that one session has not received yet, by the number of the `FixedShape`, which is
    an event without calls."""

    def discard(self) -> None:
        super().discard()
        self._shapes: dict[int, tuple[FixedShapeUsed, _Counts]] = {}
        self._rows = 0

    def add(
        self, event: FixedShapeUsed, sizes: Sizes, run: Sizes, batch_sizes: Sizes, in_graphs: bool
    ) -> None:
        """Add a call with `sizes` rows that ran at `run`, the first of a batch of `batch_sizes`, or
        () for the later ones; `in_graphs`: in a CUDA graph."""
        with self.lock:
            _, counts = self._shapes.setdefault(event.number, (event, {}))
            count = counts.get((sizes, run, batch_sizes))
            if count is None:
                count = counts[sizes, run, batch_sizes] = [0, 0]
                self._rows += 1
            count[0] += 1
            count[1] += in_graphs
            if not self.is_due(time.monotonic(), self._rows):
                return
        self.finish()

    def finish(self) -> None:
        at = time.monotonic()
        with self.lock:
            shapes, self._shapes = self._shapes, {}
            self._rows, self.written = 0, at
        for event, counts in shapes.values():
            sizes, run, batch_sizes = zip(*counts, strict=True)
            calls, in_graphs = zip(*counts.values(), strict=True)
            self.session.emit(
                replace(
                    event,
                    t=self.session.convert_time(at),
                    sizes=sizes,
                    run=run,
                    counts=calls,
                    asked=batch_sizes,
                    in_graphs=in_graphs,
                )
            )


sinks = SessionSinks(_Calls)
