"""Signals to the target and all it started, and signals as messages: while a child runs they wake
its supervisor and end nobody. A witness tells those that the whole process group was sent."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
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


_PENDING = re.compile(rb"^ShdPnd:\s*([0-9a-f]+)$", re.MULTILINE)


class GroupWitness:
    """Tells which signals were sent to the whole process group: the target has received them too.

    A terminal sends Ctrl-C to its foreground group, `kill PID` to one process, and what arrives is
    the same. A small process of our group blocks these signals: what is pending in it, the group
    was sent. It lives between `__enter__` and `__exit__`, and ends with us, however we end.
    """

    def __init__(self, signals: frozenset[signal.Signals]) -> None:
        self._signals = signals
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> GroupWitness:
        self._process = self._started()
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._process)

    def _started(self) -> subprocess.Popen[bytes] | None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        try:
            # It inherits the mask, and ends when its stdin does.
            return subprocess.Popen(
                ["cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def take(self) -> frozenset[signal.Signals] | None:
        """The signals that the group was sent since the last call; None where that is unknown."""
        # The next one first: a signal in between is pending in both. Starting a process waits for
        # a signal that the kernel is delivering to a group, so that it is in all of its members.
        witness, self._process = self._process, self._started()
        try:
            pending = _pending(witness.pid) if witness is not None else None
        finally:
            _end(witness)
        if pending is None:
            return None
        return frozenset(item for item in self._signals if pending >> (item - 1) & 1)


def _pending(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            found = _PENDING.search(file.read())
    except OSError:
        return None
    return int(found[1], 16) if found else None


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    with contextlib.suppress(OSError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
