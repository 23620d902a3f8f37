"""Many ranks read by many processes, a few to a task or on a Dask cluster: the receipts of one
process, whatever becomes of a worker."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from rank_folders import expected, folder_of_ranks, receipts, told

from compilediag import cli
from compilediag.diagnosis.ranks import divergence as choice
from compilediag.diagnosis.ranks.divergence import MIN_RANKS, compare_ranks
from compilediag.readers.inputs import TRACE, Input
from compilediag.readers.parallel import make_process_pool, map_ordered
from compilediag.receipt.file import read_receipt
from compilediag.runs.offline import (
    find_sources,
    many_ranks,
    merged_receipt,
    rank_receipts,
    read_record,
    read_source,
    summarise,
)
from compilediag.runs.offline.many_ranks import (
    ReceiptOptions,
    build_receipt_of_many,
    connect_workers,
)


@pytest.fixture(scope="module")
def pool() -> Any:
    with make_process_pool(2) as made:
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
    with make_process_pool(2) as broken:
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers of this machine."""
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fewest", [0, MIN_RANKS])
def test_a_cluster_gives_the_receipts_of_one_process(cluster, fewest, tmp_path, monkeypatch):
    """The command, with the address of a scheduler; of few ranks and of many, which are written
    here; and workers open URIs themselves."""
    monkeypatch.setattr(many_ranks, "MIN_RANKS", fewest)
    folder = folder_of_ranks(tmp_path / "in")
    out, uri = tmp_path / "out", f"simplecache::file://{folder}"
    options = ["--cluster", cluster.scheduler_address, "--name", "lane", "-o"]
    assert cli.main(["analyze", str(folder), *options, str(out)]) == 0
    wrote = {"all": told(read_receipt(out))}
    wrote |= {rank: told(read_receipt(out / f"rank-{rank}")) for rank in (0, 1, 3, 4)}
    assert wrote == expected(folder)
    assert cli.main(["analyze", uri, *options, str(tmp_path / "uri")]) == 0
    made = read_receipt(tmp_path / "uri")
    assert f"{uri}/dedicated_log_torch_trace_rank_0_x.log" in {item.uri for item in made.artifacts}
    assert told(read_receipt(tmp_path / "uri" / "rank-1")) == wrote[1]


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_of_a_cluster_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    """Dask gives its tasks, and the results it held, to the other worker."""
    folder = folder_of_ranks(tmp_path / "in")
    sources = [Input(str(path), TRACE) for path in sorted(folder.iterdir())]
    with connect_workers(cluster.scheduler_address) as executor:
        task = partial(killed_or_read, driver=os.getpid())
        assert list(map_ordered(task, sources, executor)) == [read_source(each) for each in sources]


def mixed_folder(folder: Path) -> Path:
    """Four ranks, one of them with two files, a process without a rank, and an empty file."""
    folder_of_ranks(folder)
    again = next(folder.glob("*rank_1_*")).read_bytes().replace(b'"rank": 1', b'"rank": 0')
    (folder / "dedicated_log_torch_trace_rank_0_again.log").write_bytes(again)
    alone = next(folder.glob("*rank_3_*")).read_bytes().replace(b'"rank": 3, ', b"")
    (folder / "dedicated_log_torch_trace_alone.log").write_bytes(alone)
    (folder / "empty.log").touch()
    return folder


@pytest.mark.parametrize("room", [1, 2, 256])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_receipts_of_a_record_that_is_held(tmp_path, monkeypatch, room, workers: int) -> None:
    """Of all ranks and of each, whether or not all of them are told, in this process or in two."""
    monkeypatch.setattr(choice, "MAX_RANKS", room)
    monkeypatch.setattr(choice, "MIN_RANKS", 0)
    monkeypatch.setattr(many_ranks, "SOURCES_PER_TASK", 2)
    folder, out = mixed_folder(tmp_path / "in"), tmp_path / "out"
    asked = ReceiptOptions("lane", 7, str(out), elsewhere=room == 2)
    sources = find_sources([str(folder)])
    if workers:
        with make_process_pool(workers) as pool:
            made = build_receipt_of_many(sources, asked, pool)
    else:
        made = build_receipt_of_many(sources, asked)
    record = read_record([str(folder)])
    assert told(made) == told(merged_receipt(record, "lane", 7, str(out)))
    each = dict(rank_receipts(record, "lane"))
    assert sorted(each) == [0, 1, 3, 4]
    for rank, alone in each.items():
        assert told(read_receipt(out / f"rank-{rank}")) == told(alone)
