"""Which signals were sent to the whole process group, so that the target has received them too.

A terminal sends Ctrl-C to its foreground group, `kill PID` to one process, and what arrives is the
same. A small process of our group blocks these signals: what is pending in it, the group was sent.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess

_PENDING = re.compile(rb"^ShdPnd:\s*([0-9a-f]+)$", re.MULTILINE)


class GroupWitness:
    """Between `__enter__` and `__exit__`; it ends with us, however we end."""

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
