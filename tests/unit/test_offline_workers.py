"""Many ranks read by many processes: the receipts of one process, whatever becomes of a worker."""

from __future__ import annotations

import os
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from rank_folders import folder_of_ranks

from compilediag import cli
from compilediag.diagnosis.ranks.divergence import compare_ranks
from compilediag.readers.inputs import TRACE, Source
from compilediag.readers.parallel import AHEAD, map_ordered, pool_of
from compilediag.runs.offline import (
    find_sources,
    merged_receipt,
    read_record,
    summarise,
    workers_worth,
)


@pytest.fixture(scope="module")
def pool() -> Any:
    with pool_of(2) as made:
        yield made


def test_summaries_alone_compare_the_ranks(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    """As the receipt of all ranks does, with nothing but the summaries in this process."""
    folder = folder_of_ranks(tmp_path / "in")
    summaries = map_ordered(summarise, find_sources([str(folder)]), pool)
    found = compare_ranks(chain.from_iterable(summaries), 5)
    section = merged_receipt(read_record([str(folder)]), "lane", 5).ranks
    assert section is not None
    assert [row.rank for row in found.ranks] == [row.rank for row in section.rows]
    assert (found.missing, section.missing) == ((2,), (2,))
    told = [(item.aspect, item.ranks, item.only_here) for item in found.divergences]
    assert told == [(item.aspect, item.ranks, item.only_here) for item in section.divergences]
    assert ("compile_ids", (1,)) in [item[:2] for item in told]


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


def test_an_error_of_the_task_itself_is_raised(pool: ProcessPoolExecutor) -> None:
    """It is tried once more here, and is no lost worker."""
    with pytest.raises(ValueError, match="invalid literal"):
        list(map_ordered(int, ["no number"], pool))


def test_little_is_read_in_one_process(tmp_path: Path) -> None:
    """Processes start later than a small file is read; many ranks are worth them at any size."""
    (tmp_path / "a").touch()
    small = Source(str(tmp_path / "a"), TRACE)
    assert workers_worth([small]) == workers_worth([small] * 3) == 1
    assert workers_worth([small] * 1000) == min(1000, len(os.sched_getaffinity(0)))


def test_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--jobs` as typed, and no number of processes that is none."""
    folder = folder_of_ranks(tmp_path / "in")
    assert cli.main(["analyze", str(folder), "-j", "2", "-o", str(tmp_path / "out")]) == 0
    assert sorted(path.parent.name for path in tmp_path.glob("out/rank-*/receipt.json")) == [
        "rank-0", "rank-1", "rank-3", "rank-4",
    ]  # fmt: skip
    assert cli.main(["analyze", str(folder), "-j", "0"]) == 2
    assert "0 is not in the range" in capsys.readouterr().err
