"""Work done in a fork of this process, of which nothing reaches the program: not its output, its
files, its exit code, nor a crash."""

from __future__ import annotations

import contextlib
import contextvars
import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator
from typing import Any, NoReturn

GRACE_S = 5.0
"""How much longer than its limit the work may take until it is killed."""

WAIT_S = 0.01
"""Between two looks at whether the work has ended."""

TOO_LONG = "it takes too long"
INTERRUPTED, TIMED_OUT = "Ctrl-C", "the time limit of the run"
ENDED_FROM_OUTSIDE = (TOO_LONG, INTERRUPTED, TIMED_OUT)

Send = Callable[[Any], object]


class TimeLimit(KeyboardInterrupt):
    """The run has reached its time limit: SIGTERM came."""


@contextlib.contextmanager
def end_at_signals() -> Generator[None]:
    """Let Ctrl-C and SIGTERM end a block by KeyboardInterrupt, whatever they are to the program."""

    def end_at_limit(_signum: int, _frame: object) -> NoReturn:
        raise TimeLimit

    interrupt = replace_action(signal.SIGINT, signal.default_int_handler)
    with interrupt, replace_action(signal.SIGTERM, end_at_limit):
        yield


def describe_interrupt(error: KeyboardInterrupt) -> str:
    """Describe what has ended the work: `INTERRUPTED` or `TIMED_OUT`."""
    return TIMED_OUT if isinstance(error, TimeLimit) else INTERRUPTED


def can_fork(torch: Any, file: str) -> bool:
    """True if a fork of this process can run torch, which one shows by way of a file."""
    # Autograd begins a thread for each device that there is, used or not; a fork has none of them.
    # A build for CUDA has such threads without a device, too, since fake tensors act as if it were.
    if not hasattr(os, "fork") or has_accelerator(torch):
        return False

    def run_backward(send: Send) -> None:
        with contextlib.suppress(RuntimeError):
            send(torch.ones((), device="cpu", requires_grad=True).backward())

    made, problem = run_in_fork(run_backward, file, GRACE_S)
    if problem in (INTERRUPTED, TIMED_OUT):
        raise TimeLimit if problem == TIMED_OUT else KeyboardInterrupt
    return bool(made)


def has_accelerator(torch: Any) -> bool:
    """True if there is a device besides the CPU, used or not."""
    return bool(getattr(torch, "accelerator", torch.cuda).is_available())


def run_in_fork(
    work: Callable[[Send], None], file: str, limit_s: float, *, grace_s: float | None = None
) -> tuple[list[Any], str | None]:
    """Run `work(send)` in a fork. Returns what it sent, by way of a file, and why it ended before
    it had sent everything; it is killed `grace_s` after its limit, else `GRACE_S`.

    Raises:
        RuntimeError: the interpreter forks no more.
        OSError: the system does not.
    """
    # The program's own handler is not called for a child of ours.
    quiet = replace_action(signal.SIGCHLD, signal.SIG_DFL)
    with open(file, "wb", buffering=0) as stream, quiet:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forks of a process with threads
            child = os.fork()
        if child == 0:
            _run_child(work, lambda message: stream.write(pickle.dumps(message)), limit_s)
        problem = _wait(
            child, time.monotonic() + limit_s + (GRACE_S if grace_s is None else grace_s)
        )
    messages: list[Any] = []
    with open(file, "rb") as stream, contextlib.suppress(Exception):  # killed while it wrote
        while True:
            messages.append(pickle.load(stream))  # noqa: S301 - of our own fork
    return messages, problem


def _wait(child: int, deadline: float) -> str | None:
    """Wait for a process to end, and kill it at the deadline; why it did not end well."""
    status, problem = 0, TOO_LONG
    with contextlib.suppress(ChildProcessError):  # the program waits for all of its children
        ended = 0
        try:
            while not ended and time.monotonic() < deadline:
                ended, status = os.waitpid(child, os.WNOHANG)
                time.sleep(0 if ended else WAIT_S)
        except KeyboardInterrupt as error:
            problem = describe_interrupt(error)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if not ended or problem != TOO_LONG:
            return problem
    code = os.waitstatus_to_exitcode(status)
    ending = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the process ended by {ending}" if code else None


@contextlib.contextmanager
def replace_action(number: int, action: Any) -> Generator[None]:
    """Give a signal another action in a block, where Python can put back that of the program."""
    former = signal.getsignal(number)
    if former is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(number, action)
    try:
        yield
    finally:
        signal.signal(number, former)


def _run_child(work: Callable[[Send], None], send: Send, limit_s: float) -> NoReturn:
    done: list[bool] = []
    try:
        _limit_child(limit_s)
        # A terminal sends the first to both, a supervisor the second.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

        def run() -> None:
            work(send)
            done.append(True)

        # A new thread: the pools of OpenMP belong to a thread, and those of the forked one wait
        # for workers that are not there. With the options of this one, which are its context's.
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(run,))
        thread.start()
        thread.join()
    finally:
        # No handler of the program's for its end, no buffer of its output.
        os._exit(0 if done else 1)


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


def limit_memory(more: int) -> None:
    """Limit the address space of this process to so many bytes more than it has."""
    with contextlib.suppress(Exception):
        import resource

        with open("/proc/self/statm") as stream:
            pages = int(stream.read().split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


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
