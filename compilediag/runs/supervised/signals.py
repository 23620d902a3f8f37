"""Signals to the target and all it started, and signals as messages: while a child runs they wake
its supervisor and end nobody. A monitor tells those that the whole process group was sent.

A target that is interrupted takes its time after a Ctrl-C; a timetable ends what does not end by
itself after a second one.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psutil


class ProcessTree:
    """A process and its recorded descendants; psutil keeps apart a new process with an old pid."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._recorded: dict[int, psutil.Process] = {}

    def record_descendants(self) -> None:
        """Record the present descendants: those of a dead parent cannot be found later."""
        import psutil

        with contextlib.suppress(psutil.Error):
            root = self._recorded.setdefault(self._pid, psutil.Process(self._pid))
            for process in root.children(recursive=True):
                self._recorded.setdefault(process.pid, process)

    def finish(self, timeout_s: float) -> None:
        """Wait for those that outlived the root, which were sent signals too; then kill them."""
        import psutil

        _, alive = psutil.wait_procs(list(self._recorded.values()), timeout=timeout_s)
        if alive:
            self.send(signal.SIGKILL)

    def send(self, signum: int) -> None:
        """Send a signal to all that are alive, the root first."""
        import psutil

        self.record_descendants()
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
                signal.signal(signum, lambda received, _: self._received.append(received))
        return self

    def __exit__(self, *_: object) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, signal.SIG_DFL if before is None else before)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)

    def wait_for_signals(self, timeout_s: float | None) -> list[int]:
        """Wait for a signal at most `timeout_s` seconds; return those since the last call."""
        if not self._received:
            select.select([self._reader], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reader, 512):
                pass
        received, self._received = self._received, []
        return received


_PENDING = re.compile(rb"^ShdPnd:\s*([0-9a-f]+)$", re.MULTILINE)


class GroupSignalMonitor:
    """Tells which signals were sent to the whole process group: the target has received them too.

    A terminal sends Ctrl-C to its foreground group, `kill PID` to one process, and what arrives is
    the same. A small process of our group blocks these signals: what is pending in it, the group
    was sent. It lives between `__enter__` and `__exit__`, and ends with us, however we end.
    """

    def __init__(self, signals: frozenset[signal.Signals]) -> None:
        self._signals = signals
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> GroupSignalMonitor:
        self._process = self._start_process()
        return self

    def __exit__(self, *_: object) -> None:
        _end_process(self._process)

    def _start_process(self) -> subprocess.Popen[bytes] | None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        try:
            # It inherits the mask, and ends when its stdin does.
            return subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError:
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def take_pending(self) -> frozenset[signal.Signals] | None:
        """Take the signals that the group was sent since the last call; None if that is unknown."""
        # Invariant: the next one starts first, so that a signal in between is pending in both.
        # Starting a process waits for a signal that the kernel is delivering to a group, so that it
        # is in all of its members.
        previous, self._process = self._process, self._start_process()
        try:
            if previous is None:
                return None
            with open(f"/proc/{previous.pid}/status", "rb") as file:
                match = _PENDING.search(file.read())
        except OSError:
            return None
        finally:
            _end_process(previous)
        if match is None:
            return None
        pending = int(match[1], 16)
        return frozenset(signum for signum in self._signals if pending >> (signum - 1) & 1)


def _end_process(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    with contextlib.suppress(OSError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


@dataclass(slots=True)
class KillSchedule:
    """Signals and the times at which they are due.

    Once begun it does not begin again: more Ctrl-C change nothing. A signal is due once.
    """

    grace_s: float
    _waiting: list[tuple[float, signal.Signals]] = field(
        default_factory=list[tuple[float, signal.Signals]]
    )
    begun: bool = False
    sent: list[signal.Signals] = field(default_factory=list[signal.Signals])

    def force(self, now: float) -> None:
        """Begin at the second Ctrl-C: TERM after two thirds of the grace, KILL after all of it."""
        self._begin(
            (now + self.grace_s * 2 / 3, signal.SIGTERM), (now + self.grace_s, signal.SIGKILL)
        )

    def end_on_timeout(self, now: float) -> None:
        """Begin at the time limit: TERM at once, KILL after the grace."""
        self._begin((now, signal.SIGTERM), (now + self.grace_s, signal.SIGKILL))

    def _begin(self, *stages: tuple[float, signal.Signals]) -> None:
        if not self.begun:
            self.begun = True
            self._waiting = list(stages)

    def pop_due(self, now: float) -> list[signal.Signals]:
        """Take the signals to send now out of the schedule."""
        # Invariant: `_waiting` is in the order of time.
        ready = [signum for at, signum in self._waiting if at <= now]
        self._waiting = self._waiting[len(ready) :]
        self.sent += ready
        return ready

    @property
    def next_at(self) -> float | None:
        """When something is due next; None when nothing waits."""
        return self._waiting[0][0] if self._waiting else None


PATIENT_S = 2.0
"""Seconds after which the user sees what is being waited for."""

WAITING = (
    "Ctrl-C has reached the program, which may take its time to end; a second one ends it by force "
    "within {grace:g} s (--grace)"
)
FORCED = "the second Ctrl-C: SIGTERM in {term:.1f} s, SIGKILL in {grace:g} s, if it has not ended"


class Interrupts:
    """The Ctrl-C of one run."""

    def __init__(
        self, schedule: KillSchedule, tree: ProcessTree, notify: Callable[[str], None]
    ) -> None:
        self._schedule = schedule
        self._tree = tree
        self._notify = notify
        self.count = 0
        self.notify_at: float | None = None
        """When the user is to see what is being waited for; None: never, or shown already."""

    def handle_interrupt(self, now: float) -> None:
        """Count a Ctrl-C, which the target has received by now; the second begins the schedule."""
        self.count += 1
        if self.count == 1:
            self.notify_at = now + PATIENT_S
        elif not self._schedule.begun:
            grace = self._schedule.grace_s
            self._notify(FORCED.format(term=grace * 2 / 3, grace=grace))
            self._tree.record_descendants()
            self._schedule.force(now)

    def notify_waiting(self, now: float) -> None:
        """Notify the user, once, that the target takes its time."""
        if self.notify_at is not None and now >= self.notify_at:
            self.notify_at = None
            self._notify(WAITING.format(grace=self._schedule.grace_s))
