"""Synchronisations by user line: the reads of tensors that make the host wait for the device.

Sampled: a few steps after warm-up, then steps at growing distances, never one in which something
compiles. In a program that uses no device the same reads are counted as those that would wait if
its tensors were on one. Left out there is what would not: reads by torch's own code (an optimizer
keeps its step count on the host), of what the program has moved to the host, while a batch is
waited for, and of a tensor as an index (batches are put together so).

Invariant: while a compiled callable is called in any thread, `torch.Tensor` is as torch made it, so
that no compile and no guard ever meets a method of ours.

Other ways to see them change what the program does, or see less (the first is a test of ours):

- A dispatch mode that is active at the first call of a compiled function makes Dynamo skip it for
  good; a function mode is guarded on and makes it recompile. Both run Python for every operation,
  and on the CPU the first sees neither `tolist()` nor `cpu()`.
- `sys.setprofile` takes the place of the user's profiler and does not see `bool(t)`, `float(t)`.
- torch's profiler runs once at a time: a window of ours would be in the way of one of the user's.
- `set_sync_debug_mode("warn")` gives a Python warning each, which a filter turns into an error.
- Functions put in place of the methods stand in tracebacks, and warnings name them.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness import spans, steps, torch_api
from compilediag_harness.collectors import code_places, tensor_reads
from compilediag_harness.collectors.loops_in_source import loop_around
from compilediag_harness.phases import DATA_WAIT, NAMES
from compilediag_harness.session import Session
from compilediag_harness.wire import Location, SyncsSampled

QUIET_STEPS = 2
"""Steps without a compile before one is sampled."""

IN_A_ROW = 3
"""Samples that follow each other; the distance doubles after each later one."""

MOST_SAMPLES = 16

MOST_WINDOWS = 64
"""How often the class is changed in one process. A step with compiled calls takes one more than it
has calls; Python 3.13 stops caching the attributes of a class that was changed a thousand times."""

MOST_READS = 2048
"""Reads counted in one step, for two or three microseconds each."""

_TO_HOST = ("cpu", "to_cpu")

_lock = threading.RLock()
"""Held while the class is changed and while a call begins or ends: the invariant needs both.
Reentrant, as a finaliser or a signal handler may call a compiled callable meanwhile."""

_get_ident = threading.get_ident

_live: tuple[SyncCollector, ...] = ()
_watches_forks = False

_Read = tuple[str, int, int, tuple[str, ...]]
"""Kind, id of the code, instruction, names of the open spans."""


@functools.lru_cache(maxsize=1024)
def _is_torchs_own(file: str) -> bool:
    """Torch's code, but for the methods of its tensors that are written in Python: what they read
    they read for who called them (an f-string, `in`)."""
    return code_places.is_torch(file) and not file.endswith("_tensor.py")


class _Sample:
    """The reads of one thread in one step."""

    def __init__(self, thread: int, on_device: bool, waits: Callable[[], bool]) -> None:
        self.thread = thread
        self.on_device = on_device
        self.began = time.monotonic()
        self.total = 0
        self.whole = True
        """No part of the step went by unseen."""
        self.counts: dict[_Read, int] = {}
        self.places: dict[_Read, tuple[types.CodeType, int]] = {}
        """Code and line; the code is kept so that its id stays its own."""
        self._waits = waits
        self._on_host: set[int] = set()

    def saw(self, kind: str, tensor: Any, frame: types.FrameType) -> None:
        """One read, unless it is none that waits for a device."""
        if _get_ident() != self.thread or self.total >= MOST_READS:
            return
        file = frame.f_code.co_filename
        if not self._would_wait(kind, tensor, file):
            return
        user: types.FrameType | None = frame
        while user is not None and code_places.is_library(file):
            user = user.f_back
            file = user.f_code.co_filename if user is not None else ""
        if user is None:
            return
        self.total += 1
        code = user.f_code
        key = (kind, id(code), user.f_lasti, spans.open_names())
        count = self.counts.get(key, 0)
        self.counts[key] = count + 1
        if not count:
            self.places[key] = (code, user.f_lineno)

    def _would_wait(self, kind: str, tensor: Any, file: str) -> bool:
        if self.on_device:
            return torch_api.is_on_host(tensor) is False
        if _is_torchs_own(file):
            return False
        if kind == "index" or self._waits():
            return False
        if kind in _TO_HOST or self._on_host:
            storage = torch_api.storage_of(tensor)
            if storage is None:
                return True
            if storage in self._on_host:
                return False
            if kind in _TO_HOST:
                self._on_host.add(storage)
        return True


class SyncCollector:
    """Samples the steps of one session."""

    def __init__(self, session: Session, torch_module: Any) -> None:
        global _live, _watches_forks
        self._session = session
        self._torch = torch_module
        self._sample: _Sample | None = None
        self._placed: _Sample | None = None
        """The sample whose reads are being seen; None between its windows."""
        self._calling: set[int] = set()
        """Threads in which a compiled callable is called."""
        self._quiet = 0
        self._told = 0
        self._windows = 0
        self._next = 0
        self._forget = torch_api.on_outermost_call(self._call_begins, self._call_ends)
        _live = (*_live, self)
        if hasattr(os, "register_at_fork") and not _watches_forks:
            _watches_forks = True
            os.register_at_fork(after_in_child=_forked)

    def step_ended(self, step: int, compiled: bool) -> None:
        """Tells what the step held, when it was sampled."""
        sample = self._sample
        if sample is not None:
            started = time.monotonic()
            self.stop()
            fault = tensor_reads.take_fault()
            if fault is not None:  # the sample misses a read: it is told as a fault, not as a count
                self._session.fault("reads of tensors", fault)
            elif not compiled and self._is_of_one_step(sample):
                self._tell(sample, step, started)
            self._session.charge(time.monotonic() - started)
        self._quiet = 0 if compiled else self._quiet + 1

    def step_begins(self, step: int) -> None:
        """Samples this step, when it is its turn. Called last: what our own collectors look at
        between two steps is torch's own."""
        if self._quiet >= QUIET_STEPS and step >= self._next:
            self._start()
            if self._sample is not None:
                self._session.watched_until = max(self._session.watched_until, step + 1)

    def stop(self) -> None:
        """Ends the sample in progress; nothing of it is told from here."""
        with _lock:
            self._take_away()
            self._sample = None

    def uninstall(self) -> None:
        """Puts everything back."""
        global _live
        self.stop()
        self._forget()
        _live = tuple(one for one in _live if one is not self)

    # --- windows: the parts of a sampled step in which no compiled callable is called ---

    def _start(self) -> None:
        clock = steps.clock_of(self._session)
        if clock is None or self._told >= MOST_SAMPLES or self._windows >= MOST_WINDOWS:
            return
        if not torch_api.sees_compiled_calls() or not clock.here:
            return
        phases = clock.phases
        sample = _Sample(
            clock.thread,
            bool(self._torch.cuda.is_initialized()),
            lambda: phases.nested and phases.name_at(float("inf")) == NAMES[DATA_WAIT],
        )
        with _lock:
            self._sample = sample
            self._put()

    def _put(self) -> None:
        sample = self._sample
        if sample is None or self._placed is not None or self._calling:
            return
        if torch_api.in_compiled_call() or torch_api.frames_are_offered():
            return
        if self._windows >= MOST_WINDOWS:
            sample.whole = False
            return
        self._windows += 1
        self._placed = sample
        tensor_reads.put(self._torch.Tensor, sample.saw)

    def _take_away(self) -> None:
        if self._placed is not None:
            tensor_reads.take_away(self._torch.Tensor, self._placed.saw)
            self._placed = None

    def _call_begins(self, _key: int) -> None:
        with _lock:
            self._calling.add(_get_ident())
            if self._placed is not None:
                self._take_away()

    def _call_ends(self, _key: int) -> None:
        if torch_api.in_compiled_call():
            return
        with _lock:
            self._calling.discard(_get_ident())
            if self._sample is not None:
                self._put()

    def forked(self) -> None:
        """This process is a fork: it has one thread, and nobody asked for its reads."""
        self._take_away()
        self._sample = None
        self._calling.clear()

    # --- what was seen ---

    def _is_of_one_step(self, sample: _Sample) -> bool:
        clock = steps.clock_of(self._session)
        # With tentative ends left, several steps end at once: the sample spans them all.
        return (
            sample.whole
            and clock is not None
            and clock.tentative == 0
            and clock.thread == sample.thread
        )

    def _tell(self, sample: _Sample, step: int, ended: float) -> None:
        self._told += 1
        self._next = step + 1 + (0 if self._told < IN_A_ROW else 2 ** (self._told - IN_A_ROW + 1))
        counts: dict[tuple[Location, str, int, tuple[str, ...]], int] = {}
        for key, count in sample.counts.items():
            kind, _, _, names = key
            code, line = sample.places[key]
            loop = loop_around(code, line) if count > 1 else None
            place = Location(code.co_filename, line, code.co_name)
            row = (place, kind, loop or 0, names)
            counts[row] = counts.get(row, 0) + count
        self._session.emit(
            SyncsSampled(
                t=self._session.at((sample.began + ended) / 2),
                step=step,
                on_device=sample.on_device,
                complete=sample.total < MOST_READS,
                places=tuple(row[0] for row in counts),
                kinds=tuple(row[1] for row in counts),
                loops=tuple(row[2] for row in counts),
                spans=tuple(row[3] for row in counts),
                counts=tuple(counts.values()),
            )
        )


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # a thread that is not here may have held it
    for collector in _live:
        collector.forked()
