"""Runs two command lines in turns, each in a fresh process; measures CPU and wall time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from compilediag.compare.gate.ab import CommandRun
from compilediag.errors import UsageError

_TAIL_CHARS = 300
_SHELL = "/bin/sh"

RunT = TypeVar("RunT")


def run_in_turns(index: int, a: Callable[[], RunT], b: Callable[[], RunT]) -> tuple[RunT, RunT]:
    """Run one pair, A first in those of even number: each is first as often."""
    if index % 2:
        second = b()
        return a(), second
    return a(), b()


def measure(
    a: str,
    b: str,
    rounds: int,
    progress: Callable[[int, CommandRun, CommandRun], None] | None = None,
) -> tuple[list[CommandRun], list[CommandRun]]:
    """Measure both command lines pair by pair, A B, B A, A B, and return the samples of each: CPU
    and wall seconds. The first pair warms caches up and is not counted; `progress` is called with
    each counted pair.

    Raises:
        UsageError: a command failed; the message has its exit code and the end of its output.
    """
    pairs: list[tuple[CommandRun, CommandRun]] = []
    for index in range(rounds + 1):
        samples = (partial(_measure_once, name, line, index) for name, line in (("A", a), ("B", b)))
        pair = run_in_turns(index, *samples)
        if index:
            pairs.append(pair)
            if progress is not None:
                progress(index, *pair)
    return [first for first, _ in pairs], [second for _, second in pairs]


def _measure_once(name: str, line: str, index: int) -> CommandRun:
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        # A session of its own: all that it leaves behind can be killed at once.
        child = subprocess.Popen(
            [_SHELL, "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            try:
                _, status, used = os.wait4(child.pid, 0)
            except KeyboardInterrupt:  # passed on once; the command may take its time to end
                os.killpg(child.pid, signal.SIGINT)
                os.wait4(child.pid, 0)
                child.returncode = -signal.SIGINT
                raise
        except BaseException:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        wall_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if code := child.returncode:
            errors.seek(0)
            ended = f"exit code {code}" if code > 0 else f"signal {-code}"
            when = f"in round {index}" if index else "in the warm-up"
            text = errors.read().decode("utf-8", "replace")
            last = text.strip().rpartition("\n")[2][-_TAIL_CHARS:]
            raise UsageError(
                f"command {name}, {line!r}, ended with {ended} {when}, so nothing is compared"
                f"{f': {last}' if last else ''}"
            )
    return CommandRun(used.ru_utime + used.ru_stime, wall_s)
