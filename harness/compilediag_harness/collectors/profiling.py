"""A window of torch.profiler on demand: SIGUSR1 begins it, SIGUSR2 ends it.

Nothing is installed without `compilediag run --profile-on-signal`: with it, where the program
has no handlers of its own for the two signals, they only set a flag, and the profiler begins and
ends between steps. A window is bounded in steps, seconds and bytes, and its trace is a file
beside the receipt.
"""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import tempfile
import threading
import time
from types import FrameType
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.redaction import in_process
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.wire import ProfileEnded

MAX_STEPS = 20
MAX_S = 60.0
"""A window ends by itself after so many steps, or at the first step after so many seconds."""

MAX_BYTES = 256 << 20
"""A trace that is larger is removed again."""

_PIECE_CHARS = 1 << 20

MAX_WINDOWS = 16
"""Windows of one process; later signals have no effect."""

_requested = False
"""Whether the last signal was the one that begins a window."""

_armed = False


def arm() -> None:
    """Takes the two signals over, in the main thread, if the program has not."""
    global _armed
    if _armed or not hasattr(signal, "SIGUSR1"):
        return
    if threading.current_thread() is not threading.main_thread():
        return
    if any(signal.getsignal(one) != signal.SIG_DFL for one in (signal.SIGUSR1, signal.SIGUSR2)):
        return
    _armed = True
    signal.signal(signal.SIGUSR1, _received)
    signal.signal(signal.SIGUSR2, _received)
    os.register_at_fork(after_in_child=_forked)


def _received(signum: int, _frame: FrameType | None) -> None:
    global _requested
    _requested = signum == signal.SIGUSR1


class Profiling:
    """The windows of one session."""

    def __init__(self, session: Session, torch_module: Any, folder: str) -> None:
        self.session = session
        self._torch = torch_module
        self._folder = folder
        self._profiler: Any = None
        self._thread = 0
        self._first = 0
        self._began = 0.0
        self._windows = 0

    def step_ended(self, step: int, _compiled: bool) -> None:
        """Begins or ends a window where that is due."""
        if self._profiler is None:
            if _requested:
                self._begin(step + 1)
        elif (
            not _requested
            or step + 1 - self._first >= MAX_STEPS
            or time.monotonic() - self._began >= MAX_S
        ):
            self.end(step)

    def _begin(self, step: int) -> None:
        global _requested
        if self._windows >= MAX_WINDOWS:
            _requested = False
            return
        self._windows += 1
        if torch_api.profiler_enabled():
            _requested = False
            self._report(step, step, None, "the program profiles itself")
            return
        activities = [self._torch.profiler.ProfilerActivity.CPU]
        if torch_api.cuda_in_use(self._torch):
            activities.append(self._torch.profiler.ProfilerActivity.CUDA)
        profiler = self._torch.profiler.profile(activities=activities)
        try:
            profiler.start()
        except Exception as error:
            _requested = False
            self._report(step, step, None, f"torch.profiler did not start: {error}")
            return
        self._profiler, self._thread = profiler, threading.get_ident()
        self._first, self._began = step, time.monotonic()
        self.session.watched_until = max(self.session.watched_until, step + MAX_STEPS)

    def end(self, step: int) -> None:
        """Ends the window, if there is one; torch lets only the thread that began it do so."""
        global _requested
        profiler = self._profiler
        if profiler is None or threading.get_ident() != self._thread:
            return
        self._profiler, _requested = None, False
        name = f"profile-{os.getpid()}-{self._windows}.json.gz"
        path = os.path.join(self._folder, name)
        try:
            profiler.stop()
            os.makedirs(self._folder, exist_ok=True)
            size = _export(profiler, path)
        except Exception as error:
            self._report(self._first, step, None, f"the trace could not be written: {error}")
            return
        if size > MAX_BYTES:
            self._report(self._first, step, None, f"the trace had {size} bytes and was removed")
            return
        self._report(self._first, step, name, None)

    def forget(self) -> None:
        """This process is a fork: the window is the parent's."""
        self._profiler = None

    def _report(self, first: int, last: int, file: str | None, problem: str | None) -> None:
        self.session.emit(ProfileEnded(self.session.now(), first, last, file, problem))


def _export(profiler: Any, path: str) -> int:
    """Writes the trace without its secrets, which names of blocks may hold, unless it is too large;
    its size in bytes."""
    with tempfile.TemporaryDirectory(prefix="compilediag-profile-") as private:
        whole, kept = os.path.join(private, "whole.json"), os.path.join(private, "kept.json.gz")
        profiler.export_chrome_trace(whole)
        with (
            open(whole, encoding="utf-8", errors="replace") as source,
            gzip.open(kept, "wt", encoding="utf-8", compresslevel=4) as target,
        ):
            while lines := source.readlines(_PIECE_CHARS):
                target.write(in_process.text("".join(lines)))
        size = os.path.getsize(kept)
        if size <= MAX_BYTES:
            shutil.move(kept, path)
    return size


_profiling: Profiling | None = None


def install(session: Session, torch_module: Any) -> None:
    """Watches the steps of `session`, if the signals were taken over for this process and no other
    session watches them."""
    global _profiling
    folder = session.options.profile_dir
    if _armed and folder and _profiling is None:
        _profiling = Profiling(session, torch_module, folder)
        session.step_listeners.append(_profiling.step_ended)


def _forked() -> None:
    global _requested
    _requested = False
    if _profiling is not None:
        _profiling.forget()


def finish(session: Session) -> None:
    """Ends the window that is open when the process ends."""
    if _profiling is not None and _profiling.session is session:
        _profiling.end(session.step)


def uninstall(session: Session) -> None:
    """Watches no more; the signals stay taken over, without effect."""
    global _profiling
    if _profiling is not None and _profiling.session is session:
        _profiling = None
