"""`analyze --cluster`: the receipts of one process, from the workers of a Dask cluster."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from direct_cluster import two_workers
from rank_folders import expected, folder_of_ranks, told

from compilediag import cli

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="dask is not installed"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_workers() as made:
        yield made


@needs_dask
@pytest.mark.filterwarnings("ignore")
def test_two_workers(cluster: Any, tmp_path: Path) -> None:
    """The command, with the address of a scheduler: what it wrote is what one process gives."""
    from compilediag.receipt.file import read_receipt

    folder = folder_of_ranks(tmp_path / "in")
    out = tmp_path / "out"
    options = ["--cluster", cluster.scheduler_address, "--name", "lane", "-o", str(out)]
    assert cli.main(["analyze", str(folder), *options]) == 0
    wrote = {"all": told(read_receipt(out))}
    wrote |= {rank: told(read_receipt(out / f"rank-{rank}")) for rank in (0, 1, 3, 4)}
    assert wrote == expected(folder)
