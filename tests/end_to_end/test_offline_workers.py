"""Many ranks read by many processes: the receipts of one process, whatever becomes of a worker."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rank_folders import folder_of_ranks, receipts

from compilediag.readers.inputs import TRACE, Source
from compilediag.readers.parallel import map_ordered, pool_of
from compilediag.runs.offline import read_source


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


def killed_or_read(source: Source, *, driver: int) -> Any:
    """In a worker, the second rank's trace ends the process that reads it."""
    if "rank_1" in source.path and os.getpid() != driver:
        os.kill(os.getpid(), signal.SIGKILL)
    return read_source(source)


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    """What it had is read in this process, and so is what the broken pool no longer takes."""
    folder = folder_of_ranks(tmp_path / "in")
    sources = [Source(str(path), TRACE) for path in sorted(folder.iterdir())]
    with pool_of(2) as broken:
        found = list(map_ordered(partial(killed_or_read, driver=os.getpid()), sources, broken))
        with pytest.raises(BrokenProcessPool, match="terminated abruptly"):
            broken.submit(read_source, sources[0]).result()
    assert found == [read_source(source) for source in sources]
