"""A foreign program as a child with limits on time, memory and what it writes to one file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

TAIL_BYTES = 2000
POLL_S = 0.2
"""Seconds between calls of `stopped`."""
_WITH_LIMITS = """
for limit in "-c 0" "-v $1" "-f $2"; do ulimit $limit 2>/dev/null; done
shift 2
exec "$@"
"""
"""A limit that is lower already stays. The program starts with its limits: set from outside, they
may come after it has written; and nothing of ours may run between fork and exec."""
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class Limits(NamedTuple):
    """What a child may use; when it uses more it is ended."""

    time_s: float = 60.0
    memory_bytes: int = 4 << 30
    file_bytes: int = 512 << 20


class ChildEnded(NamedTuple):
    """How a child ended."""

    problem: str | None
    """None where it succeeded; else one sentence, without its name."""
    output_tail: str
    """The end of what it printed."""


def run_with_limits(
    command: Sequence[str],
    folder: str,
    limits: Limits,
    environment: Mapping[str, str],
    stopped: Callable[[], bool] | None = None,
) -> ChildEnded:
    """Runs a command in a folder, with no input, and waits for its end.

    Its environment is `environment` and few variables of ours. Processes that it leaves running are
    killed. Where `stopped`, called every `POLL_S`, returns True, the command is interrupted and may
    take its time to end; where it does so again, it is killed.
    """
    passed_on = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    kib, blocks = limits.memory_bytes // 1024, limits.file_bytes // 512
    if shutil.which(command[0]) is None:
        return ChildEnded("it cannot be started: there is no such program", "")
    with tempfile.TemporaryFile() as printed:
        try:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _WITH_LIMITS, "sh", str(kib), str(blocks), *command],
                cwd=folder,
                env={**passed_on, **environment},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        except OSError as error:
            return ChildEnded(f"it cannot be started: {error.strerror or error}", "")
        problem = _wait(child, limits, stopped)
        printed.seek(max(os.fstat(printed.fileno()).st_size - TAIL_BYTES, 0))
        return ChildEnded(problem, printed.read().decode("utf-8", "replace").strip())


def _wait(
    child: subprocess.Popen[bytes], limits: Limits, stopped: Callable[[], bool] | None
) -> str | None:
    until = time.monotonic() + limits.time_s
    code: int | None = None
    interrupted = False
    try:
        while code is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return f"it took longer than {limits.time_s:g} s"
            if stopped is not None and stopped():
                if interrupted:
                    return "it was stopped"
                interrupted = True
                os.killpg(child.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(left_s if stopped is None else min(left_s, POLL_S))
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if interrupted:
        return "it was stopped"
    if code == 0:
        return None
    return f"it ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}"
