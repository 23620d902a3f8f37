"""Synchronisations by user line: the reads of tensors that make the host wait for the device.

Sampled: a few steps after warm-up, then steps at growing intervals, never one in which something
compiles. In a program that uses no device the same reads are counted as those that would wait if
its tensors were on one. Left out there is what would not: reads by torch's own code (an optimizer
keeps its step count on the host), of what the program has moved to the host, while a batch is
waited for, and of a tensor as an index (batches are put together so).

Invariant: while a compiled callable is called in any thread, `torch.Tensor` is as torch made it, so
that no compile and no guard ever meets a method of ours. Functions behind `torch.compiler.disable`
are no part of a compiled call: nothing is compiled and no guard evaluated until they return.

Other ways to see them change what the program does, or see less: a dispatch mode at the first call
makes Dynamo skip the function for good (a test of ours), a function mode makes it recompile;
`sys.setprofile` and torch's profiler are the user's, `set_sync_debug_mode` warns, which a filter
turns into an error, and functions in place of the methods stand in tracebacks.

In a variant of a cadence probe the steps are sampled in which periodic work fires, with quiet ones
on both sides: what a firing costs is what it takes beyond them. What a template moves begins at
step 0, or one step beside, in nearly every program.
"""

from __future__ import annotations

import functools
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness import extension_points
from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.writes_in_source import find_loop_line
from compilediag_harness.collectors import tensor_reads
from compilediag_harness.steps import disabled_calls, steps
from compilediag_harness.torch_internals import torch_calls, torch_guards, torch_open_calls
from compilediag_harness.user_api import spans
from compilediag_harness.user_api.spans import DATA_WAIT, NAMES, SPANS
from compilediag_harness.wire import Location, SyncsSampled

_get_ident = threading.get_ident

IN_A_ROW = 3
"""Samples that follow each other; the interval doubles after each later one."""

NEAR = 3
"""Steps sampled on each side of one that fires."""


class SyncSchedule:
    """The sampled steps of an ordinary run."""

    max_samples = 16
    max_windows = 64
    """How often the class is changed in one process. A step with compiled calls takes one more than
    it has calls; Python 3.13 stops caching the attributes of a class that was changed a thousand
    times."""
    max_reads = 2048
    """Reads counted in one step, for some four microseconds each."""

    def __init__(self) -> None:
        self.samples = 0
        self._next = 0

    def is_due(self, step: int) -> bool:
        return step >= self._next

    def record_sample(self, step: int) -> None:
        self.samples += 1
        later = self.samples - IN_A_ROW
        self._next = step + 1 + (0 if later < 0 else 2 ** (later + 1))

    def get_watch_end(self, step: int) -> int:
        """Steps before this one are to be watched, so that the next sample is not missed."""
        return step + 1


class ProbeSchedule(SyncSchedule):
    """Steps of a probe's variant: a step of `every`, counted from `first` or 0, and those near."""

    max_samples = 128
    max_windows = 384
    max_reads = 65_536

    def __init__(self, every: int, first: int) -> None:
        super().__init__()
        self._every = every
        self._offsets = (first % every, 0)

    def is_due(self, step: int) -> bool:
        return any((step - offset + NEAR) % self._every <= 2 * NEAR for offset in self._offsets)

    def record_sample(self, step: int) -> None:
        self.samples += 1

    def get_watch_end(self, step: int) -> int:
        return step + self._every


_TO_HOST = ("cpu", "to_cpu")

_WRITES = ("setitem", "copy_")
"""Kinds of writes: `buffer[...] = value`, `buffer[...].copy_(value)`."""

_packing_sample = extension_points.load(extension_points.PACKING)
"""Loaded before the first step: an import in it would be timed as the program's."""

_Site = tuple[str, int, int, tuple[str, ...]]
"""Kind, id of the code, instruction, names of the open spans."""

_Read = tuple[Any, str, float]
"""Site, or the buffer of a write; phase of the step; seconds of others known when it began."""


@functools.lru_cache(maxsize=1024)
def _is_torch_internal(file: str) -> bool:
    """Torch's code, but for the methods of its tensors that are written in Python: what they read
    they read for who called them (an f-string, `in`)."""
    return source_locations.is_torch(file) and not file.endswith("_tensor.py")


@functools.lru_cache(maxsize=1024)
def _is_phase(name: str) -> bool:
    """True if a span of that name has all of its time for itself, as the phase "spans"."""
    return spans.span(name).phase == SPANS


class SyncSample:
    """The reads of one thread in one step, as they come."""

    def __init__(self, ident: int, most: int, phase: Callable[[], str], *, on_device: bool) -> None:
        """`phase` returns the name of the phase that the step is in."""
        self.thread = ident
        self.on_device = on_device
        self.began = time.monotonic()
        self.total = 0
        self.whole = True
        """No part of the step outside compiled calls went by unseen."""
        self.complete = True
        """Nor a function behind `torch.compiler.disable`."""
        self.counts: dict[_Site, int] = {}
        self.sites: dict[_Site, tuple[types.CodeType, int]] = {}
        """Code and line; the code is held so that its id stays its own."""
        self.seconds: dict[_Site, float] = {}
        self.noting_s: dict[str, float] = {}
        self.timed = True
        """Every read was timed."""
        self._packing: Any = _packing_sample and _packing_sample()
        self._max_reads = most
        self._phase = phase
        self._known_s = 0.0
        self._open = 0
        self._on_host: set[int] = set()

    def begin_read(self, kind: str, tensor: Any, frame: types.FrameType) -> _Read | None:
        """Begin one read, unless it is none that waits for a device; or one write."""
        if _get_ident() != self.thread:
            return None
        if kind in _WRITES:
            written = self._packing and self._packing.begun(kind, tensor, frame)
            return None if written is None else (written, self._phase(), self._known_s)
        if self.total >= self._max_reads:
            self.complete = False
            return None
        file = frame.f_code.co_filename
        if source_locations.is_ours(file):  # a trial reads what compiled calls return
            return None
        phase = self._phase()
        if not self._would_wait(kind, tensor, file, phase):
            return None
        user: types.FrameType | None = frame
        while user is not None and source_locations.is_library(file):
            user = user.f_back
            file = user.f_code.co_filename if user is not None else ""
        if user is None:
            return None
        self.total += 1
        code, names = user.f_code, spans.list_open_spans()
        key = (kind, id(code), user.f_lasti, names)
        count = self.counts.get(key, 0)
        self.counts[key] = count + 1
        if not count:
            self.sites[key] = (code, user.f_lineno)
        if names and any(_is_phase(name) for name in names):
            phase = NAMES[SPANS]
        self._open += 1
        return key, phase, self._known_s

    def end_read(self, read: _Read, seconds: float | None, noting_s: float) -> None:
        """The call has ended. What it called itself has its own seconds."""
        key, phase, known_s = read
        own_s = max(0.0, (seconds or 0.0) - (self._known_s - known_s))
        if isinstance(key, tuple):
            self._open -= 1
            self.timed = self.timed and seconds is not None
            site: _Site = key  # pyright: ignore[reportUnknownVariableType]
            self.seconds[site] = self.seconds.get(site, 0.0) + own_s
        else:
            self._packing.ended(key, seconds)
        self.noting_s[phase] = self.noting_s.get(phase, 0.0) + noting_s
        self._known_s += own_s + noting_s

    def build_event(self, t: float, step: int) -> SyncsSampled:
        rows: dict[tuple[Location, str, int, tuple[str, ...]], list[float]] = {}
        for key, count in self.counts.items():
            kind, _, _, names = key
            code, line = self.sites[key]
            loop = find_loop_line(code, line) if count > 1 else None
            row = (Location(code.co_filename, line, code.co_name), kind, loop or 0, names)
            sums = rows.setdefault(row, [0, 0.0])
            sums[0] += count
            sums[1] += self.seconds.get(key, 0.0)
        timed = self.timed and not self._open
        return SyncsSampled(
            *(t, step, self.on_device, self.complete),
            # Places, kinds, loops, spans.
            *(zip(*rows, strict=True) if rows else ((),) * 4),
            counts=tuple(int(count) for count, _ in rows.values()),
            seconds=tuple(seconds for _, seconds in rows.values()) if timed else (),
            noting_s=self.noting_s,
            packed=self._packing.buffers() if self._packing else (),
        )

    def _would_wait(self, kind: str, tensor: Any, file: str, phase: str) -> bool:
        if self.on_device:
            return torch_guards.is_on_host(tensor) is False
        # Without a device: torch's own counters are on the host, and batches are built by indices.
        if _is_torch_internal(file) or kind == "index" or phase == NAMES[DATA_WAIT]:
            return False
        if kind in _TO_HOST or self._on_host:
            storage = torch_guards.get_storage_id(tensor)
            if storage is None:
                return True
            if storage in self._on_host:
                return False
            if kind in _TO_HOST:
                self._on_host.add(storage)
        return True


QUIET_STEPS = 2
"""Steps without a compile before one is sampled."""

_lock = threading.RLock()
"""Held while the class is changed and while a call begins or ends: the invariant needs both.
Reentrant, as a finaliser or a signal handler may call a compiled callable meanwhile."""


class SyncCollector:
    """Samples the steps of one session."""

    def __init__(self, session: Session, torch_module: Any) -> None:
        self._session = session
        self._torch = torch_module
        probe_steps = session.options.sync_steps
        self._schedule = SyncSchedule() if probe_steps is None else ProbeSchedule(*probe_steps)
        self._sample: SyncSample | None = None
        self._placed: SyncSample | None = None
        """The sample that receives reads now; None between its windows."""
        self._calling: set[int] = set()
        """Threads in which a compiled callable is called."""
        self._quiet = 0
        self._windows = 0
        remove = torch_calls.watch_outermost_calls(self._handle_call_begin, self._handle_call_end)
        self._forget = [remove]
        self._forget.append(torch_calls.watch_disabled_functions(self._watch_disabled))

    def handle_step_end(self, step: int, compiled: bool) -> None:
        """Reports the step, when it was sampled."""
        sample, session = self._sample, self._session
        if sample is not None:
            started = time.monotonic()
            self.stop()
            fault, clock = tensor_reads.take_fault(), steps.find_clock(session)
            if fault is not None:  # the sample misses a read: a fault, no count
                session.record_fault("reads of tensors", fault)
            elif (
                not compiled
                and sample.whole
                and clock is not None
                # With tentative ends left, several steps end at once: the sample spans them all.
                and clock.tentative == 0
                and clock.thread == sample.thread
            ):
                self._schedule.record_sample(step)
                middle = session.convert_time((sample.began + started) / 2)
                session.emit(sample.build_event(middle, step))
            session.collector_s += time.monotonic() - started
        self._quiet = 0 if compiled else self._quiet + 1

    def handle_step_begin(self, step: int) -> None:
        """Samples this step, when it is due. Called last: what our own collectors look at
        between two steps is torch's own."""
        session, schedule = self._session, self._schedule
        if self._quiet < QUIET_STEPS or not schedule.is_due(step):
            return
        clock = steps.find_clock(session)
        if (
            clock is None
            or not clock.is_own_thread
            or schedule.samples >= schedule.max_samples
            or self._windows >= schedule.max_windows
            or not torch_calls.can_see_compiled_calls()
        ):
            return
        phases = clock.phases
        sample = SyncSample(
            clock.thread,
            schedule.max_reads,
            lambda: phases.get_name_at(float("inf")),
            on_device=bool(self._torch.cuda.is_initialized()),
        )
        with _lock:
            self._sample = sample
            self._start_listening()
        session.watched_until = max(session.watched_until, schedule.get_watch_end(step))

    def stop(self) -> None:
        """Ends the sample in progress; nothing of it is reported from here."""
        with _lock:
            self._stop_listening()
            self._sample = None

    def uninstall(self) -> None:
        self.stop()
        for forget in self._forget:
            forget()

    # --- windows: the parts of a sampled step in which no compiled callable is called ---

    def _start_listening(self) -> None:
        # Invariant (see the module): never while a compiled callable is called in any thread.
        sample = self._sample
        if sample is None or self._placed is not None or self._calling:
            return
        inside = torch_open_calls.is_in_compiled_call()
        if (inside and not _is_in_own_function()) or torch_calls.are_frames_offered():
            return
        # Half of them are reserved for what is outside compiled calls.
        if self._windows >= self._schedule.max_windows // (2 if inside else 1):
            sample.complete = False
            sample.whole = sample.whole and inside
            return
        self._windows += 1
        self._placed = sample
        tensor_reads.add_listener(self._torch.Tensor, sample)

    def _stop_listening(self) -> None:
        if self._placed is not None:
            tensor_reads.remove_listener(self._torch.Tensor, self._placed)
            self._placed = None

    def _handle_call_begin(self, _key: int) -> None:
        with _lock:
            # Invariant: `torch.Tensor` is as torch made it before the compiled call runs.
            self._calling.add(_get_ident())
            if self._placed is not None:
                self._stop_listening()

    def _handle_call_end(self, _key: int) -> None:
        if torch_open_calls.is_in_compiled_call() and not _is_in_own_function():
            return
        with _lock:
            self._calling.discard(_get_ident())
            if self._sample is not None:
                self._start_listening()

    def _watch_disabled(self) -> None:
        """The program has functions that are not compiled on purpose."""
        if len(self._forget) < 3:
            ended, begins = self._handle_disabled_end, self._handle_disabled_begin
            self._forget.append(torch_calls.watch_disabled_calls(ended, begins))

    def _handle_disabled_begin(self, _function: Any) -> None:
        """Listen to what a disabled function does: it is no part of the compiled call around it."""
        if self._sample is None or _get_ident() not in self._calling or not _is_in_own_function():
            return
        with _lock:
            self._calling.discard(_get_ident())
            self._start_listening()

    def _handle_disabled_end(self, _function: Any, _began: float, _ended: float) -> None:
        if not torch_open_calls.is_in_compiled_call() or _is_in_own_function():
            return
        with _lock:
            self._calling.add(_get_ident())
            self._stop_listening()

    def handle_fork(self) -> None:
        """This process is a fork: it has one thread, and its reads are not the session's."""
        global _lock
        _lock = threading.RLock()  # a thread that is not here may have held it
        self._stop_listening()
        self._sample = None
        self._calling.clear()


def _is_in_own_function() -> bool:
    """True if this thread is in a function of the program's that is not compiled on purpose."""
    return disabled_calls.get_own_code(torch_open_calls.get_disabled_function()) is not None
