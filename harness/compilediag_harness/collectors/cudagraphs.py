"""CUDA graphs: recordings with their reasons, warm-ups and replays, counted where torch makes them.

Recordings are counted, never log lines: torch writes one for every graph that does not fit, before
it knows whether another one does. Replays are added up by compile id and written in batches.
"""

from __future__ import annotations

import atexit
import threading
from dataclasses import replace
from typing import Any

from compilediag_harness.base.session import BATCH_S, Session
from compilediag_harness.blame.user_calls import find_user_call_or_thread
from compilediag_harness.torch_internals import torch_cudagraphs
from compilediag_harness.wire import CudagraphRecorded, CudagraphsRan

MAX_RECORDED = 4096
"""Recordings of one process that are reported one by one."""

_RECORDINGS, _REPLAYS, _WARMUPS = range(3)


class CudagraphCollector:
    """Watches the CUDA graphs of this process for one session, once torch's trees are imported."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Reentrant: a finalizer that runs in our code may call compiled code.
        self._lock = threading.RLock()
        self._ids: dict[tuple[int, int], str] = {}
        self._counts: dict[str, list[int]] = {}
        self._left = MAX_RECORDED
        self._written = 0.0
        self._skips_before = torch_cudagraphs.read_skip_count() or 0
        self._remove = torch_cudagraphs.listen(self)
        self._at_exit: tuple[int, int | None] | None = None
        atexit.register(self._read_at_exit)

    def uninstall(self) -> None:
        atexit.unregister(self._read_at_exit)
        if self._remove is not None:
            self._remove()

    def report_recording(self, recording: CudagraphRecorded) -> None:
        """Report a graph that was recorded; `recording` has no time, step and epoch yet."""
        session = self._session
        with session.catch_faults("CUDA-graph recording"):
            with self._lock:
                self._ids[recording.tree, recording.function] = recording.compile_id
                self._add_to_counts(recording.compile_id, _RECORDINGS)
                report = self._left > 0
                self._left -= report
            if report:
                called_from, thread = find_user_call_or_thread(session)
                session.emit(
                    replace(
                        recording,
                        t=session.now(),
                        step=session.step,
                        epoch=session.epoch,
                        entered_at=called_from,
                        entered_from=thread,
                    )
                )

    def count_run(self, key: tuple[int, int], compile_id: object, *, replay: bool) -> None:
        """A graph was replayed, or a function ran without its graph to warm up. `key`: the tree and
        the function; `str(compile_id)` is its text."""
        # Called at each replay, which takes microseconds: an id is made into text once a graph.
        with self._lock:
            known = self._ids.get(key)
            if known is None:
                known = self._ids[key] = "" if compile_id is None else str(compile_id)
            self._add_to_counts(known, _REPLAYS if replay else _WARMUPS)

    def record_fault(self, where: str, error: BaseException) -> None:
        self._session.record_fault(where, error)

    def _add_to_counts(self, compile_id: str, kind: int) -> None:
        self._counts.setdefault(compile_id, [0, 0, 0])[kind] += 1

    def handle_step_end(self, _step: int, _compiled: bool) -> None:
        if self._counts and self._session.now() - self._written >= BATCH_S:
            self._write()

    def _read_at_exit(self) -> None:
        """Read what there is when the process exits: torch's finalizers, which run at exit too but
        after this, give the graphs up."""
        with self._session.catch_faults("CUDA graphs at exit"):
            self._at_exit = _read_live()

    def finish(self) -> None:
        """Writes what is left, and the totals at the end."""
        live_graphs, pool_bytes = self._at_exit or _read_live()
        skips, before = torch_cudagraphs.read_skip_count(), self._skips_before
        # Where torch's counter was cleared meanwhile, as by `torch._dynamo.reset()`, none is known.
        known = skips is not None and skips >= before and not self._session.epoch
        self._write(
            skips=skips - before if skips is not None and known else None,
            live_graphs=live_graphs,
            pool_bytes=pool_bytes,
            lost=None if self._remove else "this torch has no CUDA-graph trees that we know",
        )

    def _write(self, **totals: Any) -> None:
        with self._lock:
            counts, self._counts = self._counts, {}
        self._written = self._session.now()
        # In the order of `_RECORDINGS`, `_REPLAYS`, `_WARMUPS`.
        columns: Any = zip(*counts.values(), strict=True) if counts else ((),) * 3
        recordings, replays, warmups = columns
        known = self._written, tuple(counts), recordings, replays, warmups
        self._session.emit(CudagraphsRan(*known, **totals))


def _read_live() -> tuple[int, int | None]:
    """Graphs that there are, and the bytes of their pools."""
    return torch_cudagraphs.count_live_graphs(), torch_cudagraphs.measure_pool_bytes()
