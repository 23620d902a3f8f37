"""`analyze --cluster`: the receipts of one process, from the workers of a Dask cluster."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from direct_cluster import Direct, two_workers
from rank_folders import expected, folder_of_ranks, told

from compilediag import cli
from compilediag.errors import UsageError
from compilediag.readers.inputs import Input
from compilediag.runs.offline.cluster import JOINED, connected, receipts_on
from compilediag.runs.offline.many_ranks import ReceiptOptions, options_here
from compilediag.runs.offline.sources import find_sources, read_source

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="dask is not installed"
)


def on(client: Any, folder: Path, read: Any = read_source) -> dict[object, bytes]:
    """What `receipts` gives, of a cluster."""
    asked = ReceiptOptions("lane", None, str(folder.parent / "out"), os.getcwd())
    made = receipts_on(client, find_sources([str(folder)]), asked, read)
    return {"all" if rank is None else rank: told(receipt) for rank, receipt in made}


def test_the_tree_gives_the_receipts_of_one_process(tmp_path: Path) -> None:
    """With more traces than one task puts together; no task takes more than it may."""
    folder = folder_of_ranks(tmp_path / "in")
    first = min(folder.iterdir())
    for number in range(2 * JOINED):
        (folder / f"other_{number}.log").write_bytes(first.read_bytes())
    client = Direct()
    assert on(client, folder) == expected(folder)
    assert client.joined == [JOINED, JOINED, 4, 3]


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what needs nothing."""
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'compilediag\[dask\]'.*--jobs N"):
        connected("tcp://localhost:1")


def test_options_that_contradict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """tlparse runs where the command runs."""
    arguments = ["analyze", str(folder_of_ranks(tmp_path / "in")), "--cluster", "tcp://x:1"]
    assert cli.main([*arguments, "--tlparse"]) == 2
    assert cli.main([*arguments, "-j", "2"]) == 2
    assert capsys.readouterr().err.count("give one") == 2


def test_what_is_asked_holds_wherever_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are whole: workers have another working directory."""
    monkeypatch.chdir(tmp_path)
    assert options_here("lane", 4, "out") == ReceiptOptions(
        "lane", 4, str(tmp_path / "out"), str(tmp_path)
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_workers() as made:
        yield made


@needs_dask
@pytest.mark.filterwarnings("ignore")
def test_workers_open_uris_themselves(cluster: Any, tmp_path: Path) -> None:
    """Through fsspec: what comes here is never the content of a file."""
    folder = folder_of_ranks(tmp_path / "in")
    uri = f"simplecache::file://{folder}"
    asked = ReceiptOptions("lane", None, str(tmp_path / "out"), os.getcwd())
    with connected(cluster.scheduler_address) as client:
        made = dict(receipts_on(client, find_sources([uri]), asked))
    links = {item.uri for item in made[None].artifacts}
    assert f"{uri}/dedicated_log_torch_trace_rank_0_x.log" in links
    assert {rank: told(receipt) for rank, receipt in made.items() if rank is not None} == {
        rank: raw for rank, raw in expected(folder).items() if rank != "all"
    }


def killed_once(source: Input, *, marker: str) -> Any:
    """The worker that reads the second rank's trace is killed, the first time."""
    if "rank_1" in source.path and not os.path.exists(marker):
        with open(marker, "x"):
            os.kill(os.getpid(), signal.SIGKILL)
    return read_source(source)


@needs_dask
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    """Dask gives its tasks, and the results it held, to the other worker."""
    folder = folder_of_ranks(tmp_path / "in")
    marker = tmp_path / "killed"
    with connected(cluster.scheduler_address) as client:
        found = on(client, folder, partial(killed_once, marker=str(marker)))
    assert marker.exists()
    assert found == expected(folder)


@needs_dask
@pytest.mark.filterwarnings("ignore")
def test_no_scheduler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence."""
    monkeypatch.setattr("compilediag.runs.offline.cluster.CONNECT_S", 0.2)
    with pytest.raises(UsageError, match="no dask scheduler answers at tcp://127"):
        connected("tcp://127.0.0.1:9")
