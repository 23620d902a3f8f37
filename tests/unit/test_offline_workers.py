"""Many ranks read by many processes: the receipts of one process, whatever becomes of a worker."""

import os
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from compilediag.readers.inputs import TRACE, Input
from compilediag.readers.parallel import AHEAD, map_ordered
from compilediag.runs.offline.sources import choose_worker_count


class Refusing(Executor):
    """Takes every second task; of those, every second fails."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        if self.count % 2:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        if self.count % 4:
            future.set_result(fn(*args))
        else:
            future.set_exception(MemoryError())
        return future


def test_any_executor_will_do() -> None:
    """Tasks that it refuses or loses are done here; results keep their order."""
    executor = Refusing()
    assert list(map_ordered(abs, range(-3 * AHEAD, 0), executor)) == list(range(3 * AHEAD, 0, -1))
    assert executor.count == 3 * AHEAD


def test_what_is_handed_out_is_bounded() -> None:
    """Results that wait are memory: no more tasks are begun than a bound."""
    taken: list[int] = []
    asked = map_ordered(abs, (taken.append(number) or number for number in range(1000)), Refusing())
    next(asked)
    assert len(taken) == AHEAD


def test_little_is_read_in_one_process(tmp_path: Path) -> None:
    """Processes start later than a small file is read; many ranks are worth them at any size."""
    (tmp_path / "a").touch()
    small = Input(str(tmp_path / "a"), TRACE)
    assert choose_worker_count([small]) == choose_worker_count([small] * 3) == 1
    assert choose_worker_count([small] * 1000) == min(1000, len(os.sched_getaffinity(0)))
