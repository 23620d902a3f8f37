"""Many ranks read by many processes: the receipts of one process, whatever becomes of a worker."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rank_folders import folder_of_ranks, receipts

from compilediag.readers.parallel import pool_of


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
