"""`compilediag analyze` at URIs: what a folder of this machine gives, and every loss counted."""

import binascii
import gzip
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from command_line import analyze
from rank_folders import folder_of_ranks

from compilediag import cli
from compilediag.readers import inputs
from compilediag.readers.inputs import RUN, UNREADABLE, list_inputs

MemoryFileSystem: Any = import_module("fsspec.implementations.memory").MemoryFileSystem

DATA = Path(__file__).parents[1] / "data"
TRACES = DATA / "traces"

_BODY = b'0 {"k":"EvidenceLost","t":0.5,"step":1,"source":"a","reason":"b"}'
JOURNAL_LINE = b"%08x " % binascii.crc32(_BODY) + _BODY + b"\n"

WHERE = ("artifacts", "receipt_id", "header", "extensions")
"""What tells where and when a receipt was made."""


@pytest.fixture
def store() -> Iterator[Any]:
    """fsspec's file system in memory, empty."""
    system = MemoryFileSystem()
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


def put(store: Any, folder: Path, at: str) -> None:
    """The files of a folder, below `at`."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.pipe_file(f"{at}/{path.relative_to(folder)}", path.read_bytes())


def analyzed(out: Path, *arguments: object) -> dict[str, Any]:
    return analyze(out, *arguments, "--name", "lane")


def apart_from_place(receipt: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in receipt.items() if name not in WHERE}


def test_a_folder_at_a_uri_is_a_folder(store: Any, tmp_path: Path) -> None:
    """Traces of several ranks, packed and plain, in folders, with foreign files between them: the
    receipts of all ranks and of each, and links to the copies."""
    folder = folder_of_ranks(tmp_path / "in")
    (folder / "more").mkdir()
    (folder / "more" / "other.log.gz").write_bytes((TRACES / "break_in_loop.log.gz").read_bytes())
    (folder / "notes.md").write_text("nothing of torch's")
    put(store, folder, "/runs/a")
    here = analyzed(tmp_path / "here", folder)
    there = analyzed(tmp_path / "there", "memory://runs/a/")
    assert apart_from_place(there) == apart_from_place(here)
    assert there["extensions"] == here["extensions"]
    assert there["extensions"]["analyze"]["left_out"] == ["notes.md"]
    links = {item["uri"]: item["bytes"] for item in there["artifacts"]}
    trace = "dedicated_log_torch_trace_rank_0_x.log"
    assert links[f"copied/1/{trace}"] == (folder / trace).stat().st_size
    assert sorted(path.name for path in (tmp_path / "there").glob("rank-*")) == [
        path.name for path in sorted((tmp_path / "here").glob("rank-*"))
    ]


def test_a_file_at_a_uri(store: Any, tmp_path: Path) -> None:
    """A trace and a text log that are named; a trainer's output would be found as well."""
    put(store, TRACES, "/t")
    store.pipe_file("/logs/x.txt", (DATA / "torch_logs_2.13.0.txt").read_bytes())
    receipt = analyzed(tmp_path / "out", "memory://t/breaks_inflated.log.gz", "memory://logs/x.txt")
    assert receipt["compile"]["recompiles"] == 2
    assert receipt["completeness"]["sources"]["text_log"] is True


def test_a_run_directory_is_one_input(tmp_path: Path) -> None:
    """Its journals are read, and the trace that it kept is not read a second time."""
    run = tmp_path / "r" / "run"
    run.mkdir(parents=True)
    (run / "journal-1-a.jsonl").write_bytes(JOURNAL_LINE)
    shutil.copytree(TRACES / "ranks", run / "artifacts" / "torch_trace")
    for given in (tmp_path / "r", run, run / "journal-1-a.jsonl"):
        assert [(item.path, item.kind) for item in list_inputs([str(given)])] == [(str(run), RUN)]


def test_names_never_become_other_places(store: Any, tmp_path: Path) -> None:
    """A file is copied below the folder of the receipts, whatever its name says."""
    secret = tmp_path / "secret.log"
    secret.write_bytes(gzip.decompress((TRACES / "breaks_inflated.log.gz").read_bytes()))
    trace = (TRACES / "break_in_loop.log.gz").read_bytes()
    for name in (f"simplecache::file://{secret}", "../../../planted.log.gz"):
        store.pipe_file(f"/in/{name}", trace)
    receipt = analyzed(tmp_path / "a" / "b" / "out", "memory://in")
    assert receipt["compile"]["recompiles"] == 0
    copied = tmp_path / "a" / "b" / "out" / "copied"
    assert {path for path in tmp_path.rglob("*.log*") if copied not in path.parents} == {secret}


def test_a_damaged_packed_file_in_a_folder_is_counted(tmp_path: Path) -> None:
    """Whether it was a trace cannot be known, here as at a URI."""
    shutil.copy(TRACES / "break_in_loop.log.gz", tmp_path / "a.log.gz")
    (tmp_path / "b.log.gz").write_bytes(b"\x1f\x8b\x08" + b"\xff" * 40)
    receipt = analyzed(tmp_path / "out", tmp_path)
    assert receipt["completeness"]["records_lost"][UNREADABLE] == 1
    assert receipt["verdict"] == "blind"


def test_files_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch) -> None:
    """They are not looked at, and the verdict is blind."""
    for name in ("a", "b", "c"):
        shutil.copy(TRACES / "break_in_loop.log.gz", tmp_path / f"{name}.log.gz")
    monkeypatch.setattr(inputs, "FILES_LIMIT", 1)
    receipt = analyzed(tmp_path / "out", tmp_path)
    assert receipt["completeness"]["records_lost"]["files_over_limit"] == 2
    told = "files: 2 files were not looked at: only 1 files of one command are looked at"
    assert told in receipt["completeness"]["reasons"]
    assert (receipt["verdict"], receipt["compile"]["compiles"]) == ("blind", 1)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("memory://nothing", "memory://nothing cannot be used: there is nothing at"),
        ("nosuch://bucket/a", "nosuch://bucket/a cannot be used: Protocol not known: nosuch"),
        ("file:///nothing/here", "file:///nothing/here cannot be used: there is nothing at"),
    ],
)
def test_a_place_that_is_none(uri: str, said: str, tmp_path: Path, capsys) -> None:
    """One sentence, exit code 2, and nothing written."""
    assert cli.main(["analyze", uri, "-o", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
