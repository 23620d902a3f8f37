"""A foreign program as a child with limits on time, memory and what it writes to one file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

TAIL_BYTES = 2000
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
) -> ChildEnded:
    """Runs a command in a folder, with no input, and waits for its end.

    Its environment is `environment` and few variables of ours. Processes that it leaves running are
    killed.
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
        problem = _wait(child, limits)
        printed.seek(max(os.fstat(printed.fileno()).st_size - TAIL_BYTES, 0))
        return ChildEnded(problem, printed.read().decode("utf-8", "replace").strip())


def _wait(child: subprocess.Popen[bytes], limits: Limits) -> str | None:
    try:
        code = child.wait(limits.time_s)
    except subprocess.TimeoutExpired:
        return f"it took longer than {limits.time_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return ended_with(code) if code else None


def ended_with(code: int) -> str:
    """A return code other than 0, in words."""
    return f"it ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}"
