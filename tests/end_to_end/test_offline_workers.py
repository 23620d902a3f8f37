"""Many ranks read by many processes: the receipts of one process, whatever becomes of a worker."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from rank_folders import folder_of_ranks, receipts

from compilediag import cli
from compilediag.diagnosis.ranks.divergence import compare_ranks
from compilediag.readers.inputs import TRACE, Input
from compilediag.readers.parallel import map_ordered, pool_of
from compilediag.runs.offline import (
    find_sources,
    merged_receipt,
    read_record,
    read_source,
    summarise,
)


@pytest.fixture(scope="module")
def pool() -> Any:
    with pool_of(2) as made:
        yield made


def test_two_processes_give_the_receipts_of_one(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    """Byte for byte, of all ranks together and of each."""
    folder = folder_of_ranks(tmp_path / "in")
    alone = receipts(folder, None)
    assert list(alone) == ["all", 0, 1, 3, 4]
    assert receipts(folder, pool) == alone
    assert pool._processes, "no worker was started: nothing was shown"


def test_summaries_alone_compare_the_ranks(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    """As the receipt of all ranks does, with nothing but the summaries in this process."""
    folder = folder_of_ranks(tmp_path / "in")
    summaries = map_ordered(summarise, find_sources([str(folder)]), pool)
    found = compare_ranks(chain.from_iterable(summaries), 5)
    section = merged_receipt(read_record([str(folder)]), "lane", 5).ranks
    assert section is not None
    assert [row.rank for row in found.ranks] == [row.rank for row in section.rows]
    assert (found.missing, section.missing) == ((2,), (2,))
    divergences = [(item.aspect, item.ranks, item.only_here) for item in found.divergences]
    assert divergences == [
        (item.aspect, item.ranks, item.only_here) for item in section.divergences
    ]
    assert ("compile_ids", (1,)) in [item[:2] for item in divergences]


def killed_or_read(source: Input, *, driver: int) -> Any:
    """In a worker, the second rank's trace ends the process that reads it."""
    if "rank_1" in source.path and os.getpid() != driver:
        os.kill(os.getpid(), signal.SIGKILL)
    return read_source(source)


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    """What it had is read in this process, and so is what the broken pool no longer takes."""
    folder = folder_of_ranks(tmp_path / "in")
    sources = [Input(str(path), TRACE) for path in sorted(folder.iterdir())]
    with pool_of(2) as broken:
        found = list(map_ordered(partial(killed_or_read, driver=os.getpid()), sources, broken))
        with pytest.raises(BrokenProcessPool, match="terminated abruptly"):
            broken.submit(read_source, sources[0]).result()
    assert found == [read_source(source) for source in sources]


def test_an_error_of_the_task_itself_is_raised(pool: ProcessPoolExecutor) -> None:
    """It is tried once more here, and is no lost worker."""
    with pytest.raises(ValueError, match="invalid literal"):
        list(map_ordered(int, ["no number"], pool))


def test_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--jobs` as typed, and no number of processes that is none."""
    folder = folder_of_ranks(tmp_path / "in")
    assert cli.main(["analyze", str(folder), "-j", "2", "-o", str(tmp_path / "out")]) == 0
    assert sorted(path.parent.name for path in tmp_path.glob("out/rank-*/receipt.json")) == [
        "rank-0", "rank-1", "rank-3", "rank-4",
    ]  # fmt: skip
    assert cli.main(["analyze", str(folder), "-j", "0"]) == 2
    assert "0 is not in the range" in capsys.readouterr().err
