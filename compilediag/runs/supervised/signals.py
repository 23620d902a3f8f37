"""Signals to the target and all it started, and signals as messages: while a child runs they wake
its supervisor and end nobody."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psutil


class ProcessTree:
    """A process and its recorded descendants; psutil keeps apart a new process with an old pid."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._recorded: dict[int, psutil.Process] = {}

    def record(self) -> None:
        """Records the present descendants: those of a dead parent cannot be found later."""
        import psutil

        with contextlib.suppress(psutil.Error):
            root = self._recorded.setdefault(self._pid, psutil.Process(self._pid))
            for process in root.children(recursive=True):
                self._recorded.setdefault(process.pid, process)

    def finish(self, timeout_s: float) -> None:
        """Waits for those that outlived the root, which were sent signals too; then kills them."""
        import psutil

        _, alive = psutil.wait_procs(list(self._recorded.values()), timeout=timeout_s)
        if alive:
            self.send(signal.SIGKILL)

    def send(self, signum: int) -> None:
        """Sends a signal to all that are alive, the root first."""
        import psutil

        self.record()
        for process in list(self._recorded.values()):
            with contextlib.suppress(psutil.Error, OSError):
                process.send_signal(signum)  # raises where the pid is another process's now


CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)


class SignalInbox:
    """Collects signals between `__enter__` and `__exit__`; for the main thread only.

    A signal that was ignored when we started (nohup, a background job of a shell) stays ignored,
    for the child too. A started program gets the default action of those caught here.
    """

    def __init__(self) -> None:
        self._received: list[int] = []
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}
        self._reader = self._writer = -1
        self._wakeup_before = -1

    def __enter__(self) -> SignalInbox:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for signum in CAUGHT:
            before = signal.getsignal(signum)
            if before != signal.SIG_IGN or signum == signal.SIGCHLD:
                self._before[signum] = before
                signal.signal(signum, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, signal.SIG_DFL if before is None else before)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        self._received.append(signum)

    def wait(self, timeout_s: float | None) -> list[int]:
        """The signals since the last call; waits for one, at most `timeout_s` seconds."""
        if not self._received:
            select.select([self._reader], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reader, 512):
                pass
        received, self._received = self._received, []
        return received
