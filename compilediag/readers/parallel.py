"""One task an item, in worker processes or any executor; what a lost worker had is done here.

A worker may be killed, by a user or for its memory. No result may be missing for that, and none may
depend on where it was made.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ProcessPoolExecutor

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 64
"""Most tasks handed out before their results are taken: results wait in memory."""

PRELOADED = ("compilediag.runs.offline.many_ranks",)
"""What workers import once, in the server that they are forked from, where there is one."""


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pool_of(workers: int) -> ProcessPoolExecutor:
    """Worker processes of this machine, started when the first task comes.

    They are forked from this process only where it has no other thread, whose locks a fork would
    copy as they are: this saves them the imports.
    """
    # Who reads a small trace pays neither the time nor the memory of these.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    methods = multiprocessing.get_all_start_methods()
    method = "fork" if _is_alone() else "forkserver" if "forkserver" in methods else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(list(PRELOADED))
    return ProcessPoolExecutor(workers, mp_context=context)


def _is_alone() -> bool:
    """Whether the system says that this process has one thread; elsewhere than on Linux it is not
    asked. Before 3.11 a pool forks again when its own thread is there."""
    if sys.platform != "linux" or sys.version_info < (3, 11):
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def each(
    task: Callable[[Item], Result], items: Iterable[Item], executor: Executor | None
) -> Iterator[Result]:
    """The result of every item, in their order; without an executor in this process.

    A task that failed in a worker is done again here, and an error is raised only if it fails here
    too. Tasks, items and results must be picklable.
    """
    if executor is None:
        yield from map(task, items)
        return
    waiting: deque[tuple[Item, Future[Result] | None]] = deque()
    for item in items:
        waiting.append((item, _handed(executor, task, item)))
        if len(waiting) >= AHEAD:
            yield _result(task, *waiting.popleft())
    while waiting:
        yield _result(task, *waiting.popleft())


def _handed(
    executor: Executor, task: Callable[[Item], Result], item: Item
) -> Future[Result] | None:
    """None where the executor takes no more, as a pool does that has lost a worker."""
    try:
        return executor.submit(task, item)
    except Exception:
        return None


def _result(task: Callable[[Item], Result], item: Item, future: Future[Result] | None) -> Result:
    if future is not None:
        try:
            return future.result()
        except Exception:  # BrokenProcessPool, dask's KilledWorker, a worker without memory
            pass
    return task(item)
