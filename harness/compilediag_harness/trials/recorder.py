"""Recorder of a run: a digest of what each outermost compiled call returns, in their order, some
elements of the first and the last call of each structure, and how often each graph was called.

One thread makes its calls in an order of its own: a callable has a number for each thread.
"""

from __future__ import annotations

import base64
import itertools
import struct
import threading
from collections import deque
from typing import Any

from compilediag_harness.base.session import Session, fork_handlers
from compilediag_harness.torch_internals.torch_graphs import GraphCounter
from compilediag_harness.trials.call_digest import (
    CallDigester,
    DigestBatch,
    PendingDigest,
    read_sample,
)
from compilediag_harness.wire import (
    CALL_FORMAT,
    NOT_COMPARED,
    CallSampled,
    CallsRecorded,
    GraphRun,
    Location,
    RecordingStarted,
    clip,
)

BATCH = 1000
"""Calls of one record."""

MAX_BATCH_LEAVES = 20_000
"""Values in one batch: of calls that return many there are fewer."""

MAX_NUMBERED = 65_000
"""Callables, and structures, that have a number of their own."""

MAX_STRUCTURE_CHARS = 4 << 20
"""Of the texts of all structures."""

MAX_SAMPLED = 256
"""Structures whose first and last call are sampled."""

MAX_OPERATIONS = 64
"""Opaque operations of one graph that are named."""


_Call = tuple[int, int, PendingDigest]
"""Callable and structure by their numbers, and the digest."""

_Sampled = tuple[float, int, int, tuple[Any, ...]]
"""Time, step and number of a call, and elements of what it returned."""


class _ThisThread(threading.local):
    number: int | None = None
    """In the order in which threads made their first call."""


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
        self._thread = _ThisThread()
        self._threads = itertools.count()
        self._functions: dict[tuple[Location, int], int] = {}
        self._structures: dict[str, int] = {}
        self._chars = 0
        self._written = (0, 0)
        """Callables and structures that were written."""
        self._calls: list[_Call] = []
        self._leaves = 0
        self._batches: deque[tuple[list[_Call], DigestBatch]] = deque()
        self._count = 0
        self._sampled: dict[int, dict[bool, _Sampled]] = {}
        """The first call of each structure, and the last (True) where there are several."""
        self.graphs.forget_calls()

    def _start(self) -> None:
        self._started = True
        self._session.emit(RecordingStarted(self._session.now(), self._seed))

    def record(self, place: Location, value: Any) -> None:
        """Record what an outermost call returned. Nothing waits for a device."""
        try:
            pending = self._digester.begin(value, sample=True)
        except Exception as error:  # without memory for a digest the program may still have enough
            pending = PendingDigest(f"{NOT_COMPARED}{type(error).__name__}")
            self._session.record_fault("recorder: a digest", error)
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
            if self._thread.number is None:
                self._thread.number = next(self._threads)
            key = place, self._thread.number
            if key not in self._functions and len(self._functions) == MAX_NUMBERED:
                key = next(iter(self._functions))
                pending = PendingDigest(f"{NOT_COMPARED}too many callables")
            function = self._functions.setdefault(key, len(self._functions))
            structure = self._get_structure(pending)
            self._sample(structure, pending)
            self._calls.append((function, structure, pending))
            self._count += 1
            self._leaves += len(pending.leaves)
            if len(self._calls) >= BATCH or self._leaves >= MAX_BATCH_LEAVES:
                self._begin_batch()
                self._emit_batches(wait=False)

    def _get_structure(self, pending: PendingDigest) -> int:
        text = pending.structure
        known = self._structures.get(text)
        if known is not None:
            return known
        self._chars += len(text)
        if self._chars > MAX_STRUCTURE_CHARS or len(self._structures) >= MAX_NUMBERED:
            text = f"{NOT_COMPARED}too many structures"
        return self._structures.setdefault(text, len(self._structures))

    def _sample(self, structure: int, pending: PendingDigest) -> None:
        """Keep the elements of a call, in place of those of the last one of its structure."""
        elements, pending.sample = pending.sample, ()
        known = structure in self._sampled
        if elements and (known or len(self._sampled) < MAX_SAMPLED):
            call = self._session.now(), self._session.step, self._count, elements
            self._sampled.setdefault(structure, {})[known] = call

    def _begin_batch(self) -> None:
        cuda = getattr(self._torch, "cuda", None)
        if cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing():
            return  # nothing may be copied: the next call tries again
        calls, self._calls, self._leaves = self._calls, [], 0
        self._batches.append((calls, DigestBatch([pending for _, _, pending in calls])))

    def _emit_batches(self, *, wait: bool) -> None:
        """Emit the batches that are there, in their order."""
        while self._batches and (wait or self._batches[0][1].is_ready()):
            calls, batch = self._batches.popleft()
            digests = batch.read()
            rows = [
                struct.pack(
                    CALL_FORMAT, call[0], call[1], d.total, d.weighted, d.magnitude, d.exact
                )
                for call, d in zip(calls, digests, strict=True)
            ]
            functions = [
                place for place, _ in itertools.islice(self._functions, self._written[0], None)
            ]
            structures = [*itertools.islice(self._structures, self._written[1], None)]
            self._written = [len(self._functions), len(self._structures)]
            content = base64.b64encode(b"".join(rows)).decode()
            now = self._session.now()
            self._session.emit(CallsRecorded(now, tuple(functions), tuple(structures), content))

    def finish(self) -> None:
        """Emit what is held at the end. Waits for the device."""
        if not self._started:  # a fork that made no calls
            return
        with self._lock:
            self._begin_batch()
            self._emit_batches(wait=True)
            for samples in self._sampled.values():
                for at, step, number, elements in samples.values():
                    self._session.emit(CallSampled(at, step, number, read_sample(elements)))
        for graph in self.graphs.graphs:
            opaque = tuple(clip(name, 256) for name in graph.opaque[:MAX_OPERATIONS])
            event = GraphRun(
                self._session.now(), graph.frame, graph.operations, opaque, graph.calls
            )
            self._session.emit(event)
