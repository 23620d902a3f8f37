"""A task for each argument, in worker processes or any executor; those of a lost worker run here.

A worker may be killed, by a user or for its memory. No result may be missing for that, and none may
depend on where it was computed.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ProcessPoolExecutor

Argument = TypeVar("Argument")
Result = TypeVar("Result")

AHEAD = 64
"""Most tasks submitted before their results are taken: results wait in memory."""

PRELOADED = ("compilediag.runs.offline.many_ranks",)
"""What workers import once, in the fork server, where there is one."""


def count_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_process_pool(workers: int) -> ProcessPoolExecutor:
    """Make a pool of worker processes of this machine, started when the first task comes.

    They are forked from this process, which saves them the imports, only where it has no other
    thread: a fork copies the locks of other threads as they are.
    """
    # Reading a small trace needs neither.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    names = multiprocessing.get_all_start_methods()
    method = "fork" if _is_single_threaded() else "forkserver" if "forkserver" in names else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(list(PRELOADED))
    return ProcessPoolExecutor(workers, mp_context=context)


def _is_single_threaded() -> bool:
    """True where this process is known to have one thread (Linux only). Before Python 3.11 a pool
    forks again when its own thread is running."""
    if sys.platform != "linux" or sys.version_info < (3, 11):
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def map_ordered(
    task: Callable[[Argument], Result], arguments: Iterable[Argument], executor: Executor | None
) -> Iterator[Result]:
    """Iterate over the results of a task for every argument, in order, of this process without an
    executor. What fails in a worker is repeated here, and an error is raised only if it fails
    again. Tasks, arguments and results must be picklable."""
    if executor is None:
        yield from map(task, arguments)
        return
    waiting: deque[tuple[Argument, Future[Result] | None]] = deque()
    for argument in arguments:
        future = None
        with suppress(Exception):  # a pool that has lost a worker takes no more tasks
            future = executor.submit(task, argument)
        # Invariant: results are taken in the order of the arguments, the oldest future first.
        waiting.append((argument, future))
        if len(waiting) >= AHEAD:
            yield _get_result(task, *waiting.popleft())
    while waiting:
        yield _get_result(task, *waiting.popleft())


def _get_result(
    task: Callable[[Argument], Result], argument: Argument, future: Future[Result] | None
) -> Result:
    if future is not None:
        with suppress(Exception):  # BrokenProcessPool, dask's KilledWorker, MemoryError of a worker
            return future.result()
    return task(argument)
