"""The reads of tensors of one thread in one step: how many on which line, and their seconds. What
it writes into buffers that it has filled is kept beside them."""

from __future__ import annotations

import functools
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness.base.step_phases import DATA_WAIT, NAMES, SPANS
from compilediag_harness.collectors.packing import KINDS, Buffer, PackingSample
from compilediag_harness.source import source_locations
from compilediag_harness.source.loops_in_source import loop_around
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.user_api import spans
from compilediag_harness.wire import Location, SyncsSampled

_TO_HOST = ("cpu", "to_cpu")

_get_ident = threading.get_ident

_Place = tuple[str, int, int, tuple[str, ...]]
"""Kind, id of the code, instruction, names of the open spans."""

_Read = tuple[_Place | Buffer, str, float]
"""What it is, phase of the step, and the seconds of others that were known when it began."""


@functools.lru_cache(maxsize=1024)
def _is_torchs_own(file: str) -> bool:
    """Torch's code, but for the methods of its tensors that are written in Python: what they read
    they read for who called them (an f-string, `in`)."""
    return source_locations.is_torch(file) and not file.endswith("_tensor.py")


@functools.lru_cache(maxsize=1024)
def _is_phase(name: str) -> bool:
    """Whether a span of that name has all of its time for itself, as the phase "spans"."""
    return spans.span(name).phase == SPANS


class Sample:
    """The reads of one thread in one step, as they come."""

    def __init__(
        self, thread: int, most: int, phase: Callable[[], str], *, on_device: bool
    ) -> None:
        """`phase` names the phase that the step is in; `most` reads are looked at."""
        self.thread = thread
        self.on_device = on_device
        self.began = time.monotonic()
        self.total = 0
        self.whole = True
        """No part of the step outside of compiled calls went by unseen."""
        self.complete = True
        """Nor a function behind `torch.compiler.disable`."""
        self.counts: dict[_Place, int] = {}
        self.places: dict[_Place, tuple[types.CodeType, int]] = {}
        """Code and line; the code is kept so that its id stays its own."""
        self.seconds: dict[_Place, float] = {}
        self.noting_s: dict[str, float] = {}
        self.timed = True
        """Every read was timed."""
        self._packing = PackingSample()
        self._most = most
        self._phase = phase
        self._known_s = 0.0
        self._open = 0
        self._on_host: set[int] = set()

    def saw(self, kind: str, tensor: Any, frame: types.FrameType) -> _Read | None:
        """One read, unless it is none that waits for a device; or one write."""
        if _get_ident() != self.thread:
            return None
        if kind in KINDS:
            written = self._packing.saw(kind, tensor, frame)
            return None if written is None else (written, self._phase(), self._known_s)
        if self.total >= self._most:
            self.complete = False
            return None
        file = frame.f_code.co_filename
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
            self.places[key] = (code, user.f_lineno)
        if names and any(_is_phase(name) for name in names):
            phase = NAMES[SPANS]
        self._open += 1
        return key, phase, self._known_s

    def over(self, read: _Read, seconds: float | None, noting_s: float) -> None:
        """The call has ended. What it called itself has its own seconds."""
        key, phase, known_s = read
        own_s = max(0.0, (seconds or 0.0) - (self._known_s - known_s))
        if isinstance(key, Buffer):
            self._packing.over(key, seconds)
        else:
            self._open -= 1
            self.timed = self.timed and seconds is not None
            self.seconds[key] = self.seconds.get(key, 0.0) + own_s
        self.noting_s[phase] = self.noting_s.get(phase, 0.0) + noting_s
        self._known_s += own_s + noting_s

    def told(self, t: float, step: int) -> SyncsSampled:
        """The record of the step."""
        counts: dict[tuple[Location, str, int, tuple[str, ...]], int] = {}
        seconds: dict[tuple[Location, str, int, tuple[str, ...]], float] = {}
        for key, count in self.counts.items():
            kind, _, _, names = key
            code, line = self.places[key]
            loop = loop_around(code, line) if count > 1 else None
            place = Location(code.co_filename, line, code.co_name)
            row = (place, kind, loop or 0, names)
            counts[row] = counts.get(row, 0) + count
            seconds[row] = seconds.get(row, 0.0) + self.seconds.get(key, 0.0)
        timed = self.timed and not self._open
        return SyncsSampled(
            t=t,
            step=step,
            on_device=self.on_device,
            complete=self.complete,
            places=tuple(row[0] for row in counts),
            kinds=tuple(row[1] for row in counts),
            loops=tuple(row[2] for row in counts),
            spans=tuple(row[3] for row in counts),
            counts=tuple(counts.values()),
            seconds=tuple(seconds.values()) if timed else (),
            noting_s=self.noting_s,
            packed=self._packing.told(),
        )

    def _would_wait(self, kind: str, tensor: Any, file: str, phase: str) -> bool:
        if self.on_device:
            return torch_guards.is_on_host(tensor) is False
        if _is_torchs_own(file):
            return False
        if kind == "index" or phase == NAMES[DATA_WAIT]:
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
