"""Runs the target as a child in our place on the terminal, and ends it when it must.

The child inherits stdin, stdout and stderr as they are (a terminal stays a terminal), the working
directory and the process group, so Ctrl-C reaches it as it would without us.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compilediag.errors import UsageError
from compilediag.runs.supervised.kill_schedule import KillSchedule
from compilediag.runs.supervised.signals import SignalInbox

if TYPE_CHECKING:
    import psutil

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


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts the target.

    Raises:
        UsageError: the operating system refuses to start it.
    """
    try:
        # Descriptors the shell passed on, such as /dev/fd/63 of `<(...)`, stay open.
        return subprocess.Popen(list(command), env=dict(environment), close_fds=False)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{command[0]} cannot be started: {said}") from error


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
    escalation = KillSchedule(grace_s)
    tree = Tree(child.pid)
    limit_at = None if timeout_s is None else started + timeout_s
    interrupted = timed_out = False
    while child.poll() is None:
        for signum in inbox.wait(_patience(clock(), limit_at, escalation.next_at)):
            if signum == signal.SIGINT:
                interrupted = True
                tree.look()
                escalation.interrupt(clock())
            elif signum in FORWARDED:
                _send(child, signum)
        if limit_at is not None and clock() >= limit_at and not timed_out:
            timed_out, limit_at = True, None
            escalation.expire(clock())
        for signum in escalation.due(clock()):
            tree.send(signum)
    if signal.SIGTERM in escalation.sent:
        tree.finish(_patience(clock(), escalation.next_at) or 0.0)
    return ExitInfo(
        pid=child.pid,
        returncode=child.returncode,
        wall_s=clock() - started,
        interrupted=interrupted,
        timed_out=timed_out,
        sent=tuple(escalation.sent),
    )


def _patience(now: float, *moments: float | None) -> float | None:
    known = [moment for moment in moments if moment is not None]
    return max(min(known) - now, 0.0) if known else None


def _send(child: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(OSError):  # gone already
        child.send_signal(signum)


class Tree:
    """A process and its descendants, as they were seen; a number given to a new process since is
    not mistaken for one of them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, psutil.Process] = {}

    def look(self) -> None:
        """Remembers the descendants there are now: those of a dead parent cannot be found later."""
        import psutil

        try:
            root = self._seen.setdefault(self._pid, psutil.Process(self._pid))
            for process in root.children(recursive=True):
                self._seen.setdefault(process.pid, process)
        except psutil.Error:
            pass

    def finish(self, patience_s: float) -> None:
        """Waits for those that outlived the root, which had their signal too; then kills them."""
        import psutil

        _, alive = psutil.wait_procs(list(self._seen.values()), timeout=patience_s)
        if alive:
            self.send(signal.SIGKILL)

    def send(self, signum: int) -> None:
        """Sends a signal to all that are alive, the root first."""
        import psutil

        self.look()
        for process in list(self._seen.values()):
            try:
                if process.is_running():
                    process.send_signal(signum)
            except (psutil.Error, OSError):
                pass
