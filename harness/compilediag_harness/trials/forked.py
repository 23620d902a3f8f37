"""Work done in a fork of this process, of which nothing reaches the program: not its output, its
files, its exit code, nor a crash."""

from __future__ import annotations

import contextlib
import contextvars
import faulthandler
import io
import os
import pickle
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, NoReturn

GRACE_S = 5.0
"""How much longer than its limit the work may take until it is killed."""

Send = Callable[[Any], None]


class ForkOutcome(NamedTuple):
    """Outcome of work in a fork."""

    messages: list[Any]
    crash: str | None
    """Why it ended before its work did; None where it did not."""
    was_late: bool
    """It was killed at its limit."""


def can_fork(torch: Any) -> bool:
    """True if a fork of this process can run torch: no device was used but the CPU."""
    # Autograd begins a thread for each device that there is, used or not; a fork has none of them.
    accelerator = getattr(torch, "accelerator", torch.cuda)
    return hasattr(os, "fork") and not accelerator.is_available()


def run_in_fork(work: Callable[[Send], None], limit_s: float) -> ForkOutcome:
    """Run `work(send)` in a fork, and return what it sent.

    Raises:
        RuntimeError: the interpreter forks no more.
        OSError: the system does not.
    """
    reading, writing = os.pipe()
    with _ignore_child_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks of a process with threads
        try:
            child = os.fork()
        except BaseException:
            os.close(reading)
            os.close(writing)
            raise
        if child == 0:
            _run_child(work, writing, limit_s)
        os.close(writing)
        content, was_late = _read_until(reading, time.monotonic() + limit_s + GRACE_S)
        if was_late:
            os.kill(child, signal.SIGKILL)
        status = 0
        with contextlib.suppress(ChildProcessError):  # the program waits for all of its children
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    crash = f"signal {-status}" if status < 0 else f"exit code {status}" if status else None
    return ForkOutcome(list(_iterate_messages(content)), None if was_late else crash, was_late)


@contextlib.contextmanager
def _ignore_child_signals() -> Generator[None]:
    """The program's own handler is not called for a child of ours."""
    handler = signal.getsignal(signal.SIGCHLD)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)


def _run_child(work: Callable[[Send], None], writing: int, limit_s: float) -> NoReturn:
    status = 1
    try:
        _limit_child(limit_s)
        done: list[bool] = []

        def send(message: Any) -> None:
            data = memoryview(pickle.dumps(message))
            while data:
                data = data[os.write(writing, data) :]

        def run() -> None:
            work(send)
            done.append(True)

        # A new thread: the pools of OpenMP belong to a thread, and those of the forked one wait
        # for workers that are not there. With the options of this one, which are its context's.
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(run,))
        thread.start()
        thread.join()
        status = 0 if done else 1
    finally:
        os._exit(status)  # no handler of the program's for its end, no buffer of its output


def _limit_child(limit_s: float) -> None:
    """See to it that a child ends, writes nothing anybody sees, and is the first to be killed where
    memory is short."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s + 2 * GRACE_S)
    faulthandler.disable()
    _discard_output()
    with contextlib.suppress(Exception):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/oom_score_adj", "w") as stream:
            stream.write("1000")


def _discard_output() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


@contextlib.contextmanager
def hide_output() -> Generator[None]:
    """Hide what a block writes to the outputs of this process."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    for stream in streams:
        stream.flush()
    kept = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    try:
        _discard_output()
        yield
    finally:
        for stream in streams:
            stream.flush()
        for descriptor, copy in kept:
            os.dup2(copy, descriptor)
            os.close(copy)


def _read_until(reading: int, deadline: float) -> tuple[bytes, bool]:
    """Read a pipe to its end; the bytes, and whether the deadline came first."""
    parts: list[bytes] = []
    try:
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([reading], [], [], left)[0]:
                return b"".join(parts), True
            part = os.read(reading, 1 << 16)
            if not part:
                return b"".join(parts), False
            parts.append(part)
    finally:
        os.close(reading)


def _iterate_messages(content: bytes) -> Iterator[Any]:
    stream = io.BytesIO(content)
    while stream.tell() < len(content):
        try:
            yield pickle.load(stream)  # noqa: S301 - of our own fork
        except Exception:  # it was killed while it wrote
            return
