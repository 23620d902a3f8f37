"""Runs the target as a child in our place on the terminal, and ends it when it must.

The child inherits stdin, stdout and stderr as they are (a terminal stays a terminal), the working
directory and the process group, so Ctrl-C reaches it as it would without us.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compilediag.errors import UsageError
from compilediag.runs.supervised.kill_schedule import KillSchedule
from compilediag.runs.supervised.signals import SignalInbox

if TYPE_CHECKING:
    import psutil

STDERR = 2

FORWARDED = (signal.SIGTERM, signal.SIGHUP)
"""Sent to us alone by schedulers and closing terminals: passed on to the child alone."""


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How the child ended."""

    pid: int
    returncode: int
    """As `subprocess` gives it: negative for a signal."""
    wall_s: float
    interrupted: bool = False
    """Ctrl-C came while it ran."""
    timed_out: bool = False
    sent: tuple[signal.Signals, ...] = ()
    """What had to be sent to end it."""

    @property
    def exit_code(self) -> int:
        """As a shell would report it: 128 + signal when killed."""
        return 128 - self.returncode if self.returncode < 0 else self.returncode


def start(
    command: Sequence[str], environment: Mapping[str, str], *, stdout_to_stderr: bool = False
) -> subprocess.Popen[bytes]:
    """Starts the target.

    Raises:
        UsageError: the operating system refuses to start it.
    """
    stdout = None
    if stdout_to_stderr:
        closed = sys.stderr is None  # pyright: ignore[reportUnnecessaryComparison] - `2>&-`
        stdout = subprocess.DEVNULL if closed else STDERR
    try:
        # Descriptors the shell passed on, such as /dev/fd/63 of `<(...)`, stay open.
        return subprocess.Popen(
            list(command), env=dict(environment), close_fds=False, stdout=stdout
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{command[0]} cannot be started: {reason}") from error


def supervise(
    child: subprocess.Popen[bytes],
    inbox: SignalInbox,
    *,
    started: float,
    grace_s: float,
    timeout_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ExitInfo:
    """Waits for the child; passes signals on; ends it and all its children when it must."""
    schedule = KillSchedule(grace_s)
    tree = ProcessTree(child.pid)
    limit_at = None if timeout_s is None else started + timeout_s
    interrupted = timed_out = False
    while child.poll() is None:
        for signum in inbox.wait(_time_left(clock(), limit_at, schedule.next_at)):
            if signum == signal.SIGINT:
                interrupted = True
                tree.record()
                schedule.interrupt(clock())
            elif signum in FORWARDED:
                with contextlib.suppress(OSError):  # gone already
                    child.send_signal(signum)
        if limit_at is not None and clock() >= limit_at and not timed_out:
            timed_out, limit_at = True, None
            schedule.expire(clock())
        for signum in schedule.due(clock()):
            tree.send(signum)
    if signal.SIGTERM in schedule.sent:
        tree.finish(_time_left(clock(), schedule.next_at) or 0.0)
    return ExitInfo(
        pid=child.pid,
        returncode=child.returncode,
        wall_s=clock() - started,
        interrupted=interrupted,
        timed_out=timed_out,
        sent=tuple(schedule.sent),
    )


def _time_left(now: float, *moments: float | None) -> float | None:
    known = [moment for moment in moments if moment is not None]
    return max(min(known) - now, 0.0) if known else None


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
