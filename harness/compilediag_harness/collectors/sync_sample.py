"""The reads of tensors of one thread in one step: how many on which line, and their seconds. What
it writes into buffers that it has filled is kept beside them.

In an ordinary run a few steps are sampled, at growing intervals. In a variant of a cadence probe
those in which periodic work fires, with quiet ones on both sides: what a firing costs is what it
takes beyond them. Which steps fire is known for groups of the code; what a template moves begins at
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
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.writes_in_source import loop_around
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.user_api import spans
from compilediag_harness.user_api.spans import DATA_WAIT, NAMES, SPANS
from compilediag_harness.wire import Location, SyncsSampled

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

    def due(self, step: int) -> bool:
        """Whether this step is to be sampled."""
        return step >= self._next

    def sampled(self, step: int) -> None:
        """A step was sampled and reported."""
        self.samples += 1
        later = self.samples - IN_A_ROW
        self._next = step + 1 + (0 if later < 0 else 2 ** (later + 1))

    def watched_until(self, step: int) -> int:
        """Steps before this one are to be watched, so that the next sample is not missed."""
        return step + 1


class ProbeSchedule(SyncSchedule):
    """Those of a variant: a step of `every`, counted from `first` or from 0, and those near."""

    max_samples = 128
    max_windows = 384
    max_reads = 65_536

    def __init__(self, every: int, first: int) -> None:
        super().__init__()
        self._every = every
        self._offsets = (first % every, 0)

    def due(self, step: int) -> bool:
        return any((step - offset + NEAR) % self._every <= 2 * NEAR for offset in self._offsets)

    def sampled(self, step: int) -> None:
        self.samples += 1

    def watched_until(self, step: int) -> int:
        return step + self._every


_TO_HOST = ("cpu", "to_cpu")

_WRITES = ("setitem", "copy_")
"""Kinds of writes: `buffer[...] = value`, `buffer[...].copy_(value)`."""

_packing_sample = extension_points.load(extension_points.PACKING)
"""Loaded before the first step: an import in it would be timed as the program's."""

_get_ident = threading.get_ident

_Site = tuple[str, int, int, tuple[str, ...]]
"""Kind, id of the code, instruction, names of the open spans."""

_Read = tuple[Any, str, float]
"""Its site, or the buffer of a write; phase of the step; the seconds of others that were known when
it began."""


@functools.lru_cache(maxsize=1024)
def _is_torch_internal(file: str) -> bool:
    """Torch's code, but for the methods of its tensors that are written in Python: what they read
    they read for who called them (an f-string, `in`)."""
    return source_locations.is_torch(file) and not file.endswith("_tensor.py")


@functools.lru_cache(maxsize=1024)
def _is_phase(name: str) -> bool:
    """Whether a span of that name has all of its time for itself, as the phase "spans"."""
    return spans.span(name).phase == SPANS


class SyncSample:
    """The reads of one thread in one step, as they come."""

    def __init__(
        self, thread: int, max_reads: int, phase: Callable[[], str], *, on_device: bool
    ) -> None:
        """`phase` returns the name of the phase that the step is in."""
        self.thread = thread
        self.on_device = on_device
        self.began = time.monotonic()
        self.total = 0
        self.whole = True
        """No part of the step outside compiled calls went by unseen."""
        self.complete = True
        """Nor a function behind `torch.compiler.disable`."""
        self.counts: dict[_Site, int] = {}
        self.sites: dict[_Site, tuple[types.CodeType, int]] = {}
        """Code and line; the code is kept so that its id stays its own."""
        self.seconds: dict[_Site, float] = {}
        self.noting_s: dict[str, float] = {}
        self.timed = True
        """Every read was timed."""
        self._packing: Any = _packing_sample and _packing_sample()
        self._max_reads = max_reads
        self._phase = phase
        self._known_s = 0.0
        self._open = 0
        self._on_host: set[int] = set()

    def begun(self, kind: str, tensor: Any, frame: types.FrameType) -> _Read | None:
        """One read, unless it is none that waits for a device; or one write."""
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
        code, names = user.f_code, spans.open_names()
        key = (kind, id(code), user.f_lasti, names)
        count = self.counts.get(key, 0)
        self.counts[key] = count + 1
        if not count:
            self.sites[key] = (code, user.f_lineno)
        if names and any(_is_phase(name) for name in names):
            phase = NAMES[SPANS]
        self._open += 1
        return key, phase, self._known_s

    def ended(self, read: _Read, seconds: float | None, noting_s: float) -> None:
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

    def event(self, t: float, step: int) -> SyncsSampled:
        """The record of the step."""
        rows: dict[tuple[Location, str, int, tuple[str, ...]], list[float]] = {}
        for key, count in self.counts.items():
            kind, _, _, names = key
            code, line = self.sites[key]
            loop = loop_around(code, line) if count > 1 else None
            row = (Location(code.co_filename, line, code.co_name), kind, loop or 0, names)
            sums = rows.setdefault(row, [0, 0.0])
            sums[0] += count
            sums[1] += self.seconds.get(key, 0.0)
        timed = self.timed and not self._open
        return SyncsSampled(
            t=t,
            step=step,
            on_device=self.on_device,
            complete=self.complete,
            places=tuple(location for location, _, _, _ in rows),
            kinds=tuple(kind for _, kind, _, _ in rows),
            loops=tuple(loop for _, _, loop, _ in rows),
            spans=tuple(names for _, _, _, names in rows),
            counts=tuple(int(count) for count, _ in rows.values()),
            seconds=tuple(seconds for _, seconds in rows.values()) if timed else (),
            noting_s=self.noting_s,
            packed=self._packing.buffers() if self._packing else (),
        )

    def _would_wait(self, kind: str, tensor: Any, file: str, phase: str) -> bool:
        if self.on_device:
            return torch_guards.is_on_host(tensor) is False
        # Without a device: torch keeps its own counters on the host, and batches are put together
        # by indices.
        if _is_torch_internal(file) or kind == "index" or phase == NAMES[DATA_WAIT]:
            return False
        if kind in _TO_HOST or self._on_host:
            storage = torch_guards.storage_of(tensor)
            if storage is None:
                return True
            if storage in self._on_host:
                return False
            if kind in _TO_HOST:
                self._on_host.add(storage)
        return True
