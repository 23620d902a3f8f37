"""`analyze --cluster`: the receipts of one process, from the workers of a Dask cluster."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rank_folders import folder_of_ranks, receipts, told

from compilediag import cli
from compilediag.runs.offline.receipts import merged_receipt
from compilediag.runs.offline.sources import read_record

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="dask is not installed"
)


def expected(folder: Path) -> dict[object, bytes]:
    """The receipts of one process, with the links that a folder for them gives."""
    record = read_record([str(folder)])
    merged = merged_receipt(record, "lane", None, str(folder.parent / "out"))
    return {**receipts(folder, None), "all": told(merged)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes of this machine."""
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
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
