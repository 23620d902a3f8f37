"""Runs two command lines in turns, each in a fresh process; measures CPU and wall time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable

from compilediag.compare.gate.ab import CommandRun
from compilediag.errors import UsageError

_TAIL_CHARS = 300
_SHELL = "/bin/sh"


def measure(
    a: str,
    b: str,
    rounds: int,
    progress: Callable[[int, CommandRun, CommandRun], None] | None = None,
) -> tuple[list[CommandRun], list[CommandRun]]:
    """Samples of both, pair by pair: A B, B A, A B... The first pair warms caches up and is not
    counted. `progress` is told of each counted pair.

    Raises:
        UsageError: a command failed; the message has its exit code and its last words.
    """
    left: list[CommandRun] = []
    right: list[CommandRun] = []
    for number in range(rounds + 1):
        if number % 2:
            second = _once("B", b, number)
            first = _once("A", a, number)
        else:
            first = _once("A", a, number)
            second = _once("B", b, number)
        if number:
            left.append(first)
            right.append(second)
            if progress is not None:
                progress(number, first, second)
    return left, right


def _once(name: str, line: str, number: int) -> CommandRun:
    with tempfile.TemporaryFile() as errors:
        begun = time.perf_counter()
        # A session of its own: what it leaves behind can be ended as a whole.
        child = subprocess.Popen(
            [_SHELL, "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            _, status, used = os.wait4(child.pid, 0)
        except BaseException:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        wall_s = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            raise UsageError(_failed(name, line, number, child.returncode, errors.read()))
    return CommandRun(used.ru_utime + used.ru_stime, wall_s)


def _failed(name: str, line: str, number: int, code: int, errors: bytes) -> str:
    ended = f"exit code {code}" if code > 0 else f"signal {-code}"
    when = f"in round {number}" if number else "in the warm-up"
    said = errors.decode("utf-8", "replace").strip().rpartition("\n")[2][-_TAIL_CHARS:]
    told = f": {said}" if said else ""
    return f"command {name}, {line!r}, ended with {ended} {when}, so nothing is compared{told}"
