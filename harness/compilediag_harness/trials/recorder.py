"""Recorder of a run: a digest of what each outermost compiled call returns, in their order, and how
often each graph was called.

One thread makes its calls in an order of its own: a callable has a number for each thread.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from dataclasses import replace
from itertools import islice
from typing import Any

from compilediag_harness.base.session import Session, fork_handlers
from compilediag_harness.torch_internals.torch_graphs import NOT_COUNTED, GraphCounter
from compilediag_harness.trials.call_digest import CallDigester, DigestBatch, PendingDigest
from compilediag_harness.wire import (
    CALL_FORMAT,
    NOT_COMPARED,
    CallsRecorded,
    Location,
    RecordingStarted,
    clip,
    encode_calls,
)

BATCH = 1000
"""Calls of one record."""

MAX_NUMBERED = 16_000
"""Callables, and structures, that have a number of their own."""

TOO_MANY = f"{NOT_COMPARED}too many callables or structures"

MAX_OPERATIONS = 64
"""Opaque operations of one graph that are named."""

_Call = tuple[int, int, PendingDigest, bool]
"""Callable and structure by their numbers, the digest, and whether a graph ran."""


class Recorder:
    """Records the calls of one process."""

    def __init__(self, session: Session, torch: Any, seed: int) -> None:
        self._session, self._torch, self._seed = session, torch, seed
        self._digester = CallDigester(torch)
        self.graphs = GraphCounter()
        self._discard()
        fork_handlers.append(self._discard)
        self._start()

    def uninstall(self) -> None:
        """Count no more calls of graphs."""
        self.graphs.uninstall()
        fork_handlers.remove(self._discard)

    def _discard(self) -> None:
        """Begin anew: this process is a fork, and what was recorded belongs to the parent."""
        self._lock = threading.RLock()  # reentrant: see `OutputWatcher`
        self._started = False
        self._functions: dict[tuple[Location, str], int] = {}
        """By place and name of the thread."""
        self._structures: dict[str, int] = {}
        self._written = (0, 0)
        """Callables and structures that were written."""
        self._calls: list[_Call] = []
        self._batches: deque[tuple[list[_Call], DigestBatch]] = deque()
        self.graphs.forget_calls()

    def _start(self) -> None:
        self._started = True
        self._session.emit(RecordingStarted(self._session.now(), self._seed))

    def record(self, place: Location, value: Any) -> None:
        """Record what an outermost call returned. Nothing waits for a device."""
        try:
            pending = self._digester.begin(value)
        except Exception as error:  # without memory for a digest the program may still have enough
            self._add(place, PendingDigest(f"{NOT_COMPARED}{type(error).__name__}"))
            self._session.record_fault("recorder: a digest", error)
        else:
            self._add(place, pending)

    def record_error(self, place: Location, error: BaseException | None) -> None:
        """Record a call that raised, or whose result could not be seen (None)."""
        raised = f"raised {type(error).__name__}"
        unseen = f"{NOT_COMPARED}its result was not seen"
        self._add(place, PendingDigest(unseen if error is None else raised))

    def _add(self, place: Location, pending: PendingDigest) -> None:
        with self._lock:
            if not self._started:
                self._start()
            thread = threading.get_ident()
            ran = thread in self.graphs.ran_in
            self.graphs.ran_in.discard(thread)
            key = place, threading.current_thread().name
            if key not in self._functions and len(self._functions) == MAX_NUMBERED:
                key, pending = next(iter(self._functions)), PendingDigest(TOO_MANY)
            if pending.structure not in self._structures and len(self._structures) >= MAX_NUMBERED:
                pending = PendingDigest(TOO_MANY)
            function = self._functions.setdefault(key, len(self._functions))
            structure = self._structures.setdefault(pending.structure, len(self._structures))
            self._calls.append((function, structure, pending, ran))
            if len(self._calls) >= BATCH:
                self._begin_batch()
                self._emit_batches(wait=False)

    def _begin_batch(self) -> None:
        cuda = getattr(self._torch, "cuda", None)
        if cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing():
            return  # nothing may be copied: the next call tries again
        calls, self._calls = self._calls, []
        self._batches.append((calls, DigestBatch([pending for _, _, pending, _ in calls])))

    def _emit_batches(self, *, wait: bool) -> None:
        """Emit the batches that are there, in their order."""
        while self._batches and (wait or self._batches[0][1].is_ready()):
            calls, batch = self._batches.popleft()
            rows = [
                struct.pack(CALL_FORMAT, *numbers, d.total, d.weighted, d.magnitude, d.exact)
                for (*numbers, _, _), d in zip(calls, batch.read(), strict=True)
            ]
            functions = tuple(place for place, _ in islice(self._functions, self._written[0], None))
            structures = tuple(islice(self._structures, self._written[1], None))
            self._written = len(self._functions), len(self._structures)
            counted = NOT_COUNTED not in self.graphs.calls
            eager = tuple(at for at, (*_, ran) in enumerate(calls) if counted and not ran)
            now = self._session.now()
            self._session.emit(
                CallsRecorded(now, functions, structures, encode_calls(b"".join(rows)), eager)
            )

    def finish(self) -> None:
        """Emit what is held at the end. Waits for the device."""
        if not self._started:  # a fork that made no calls
            return
        with self._lock:
            self._begin_batch()
            self._emit_batches(wait=True)
        for graph, calls in zip(self.graphs.graphs, self.graphs.calls, strict=True):
            opaque = tuple(clip(name, 256) for name in graph.opaque[:MAX_OPERATIONS])
            self._session.emit(replace(graph, t=self._session.now(), opaque=opaque, calls=calls))
