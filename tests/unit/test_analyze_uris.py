"""`compilediag analyze` at URIs: what a folder of this machine gives, and every loss counted."""

import binascii
import gzip
import io
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
from compilediag.readers.inputs import RUN, TRACE, UNREADABLE, list_inputs
from compilediag.readers.journal import read_run
from compilediag.readers.storage import get_parent, join_path

MemoryFileSystem: Any = import_module("fsspec.implementations.memory").MemoryFileSystem

DATA = Path(__file__).parents[1] / "data"
TRACES = DATA / "traces"

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
    receipts of all ranks and of each, and links to the URIs."""
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
    assert links[f"memory://runs/a/{trace}"] == (folder / trace).stat().st_size
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


def test_a_run_directory_at_a_uri(store: Any, tmp_path: Path) -> None:
    """Its journals are read, and the trace that it kept is not read a second time."""
    body = b'0 {"k":"EvidenceLost","t":0.5,"step":1,"source":"a","reason":"b"}'
    line = b"%08x " % binascii.crc32(body) + body
    run = tmp_path / "r" / "run"
    run.mkdir(parents=True)
    (run / "journal-1-a.jsonl").write_bytes(line + b"\n")
    (run / "journal-2-b.jsonl").write_bytes(line + b"\n" + line[:20])
    shutil.copytree(TRACES / "ranks", run / "artifacts" / "torch_trace")
    put(store, tmp_path / "r", "/r")
    assert read_run("memory://r/run") == read_run(str(run))
    for given in ("memory://r", "memory://r/run", "memory://r/run/journal-1-a.jsonl"):
        found = list_inputs([given])
        assert [(item.path, item.kind) for item in found] == [("memory://r/run", RUN)]


class Flaky(MemoryFileSystem):
    """A store that refuses some files, and loses the connection in others."""

    protocol = "flaky"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own way
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return MemoryFileSystem._strip_protocol(path.removeprefix("flaky:/"))

    def find(self, path: str, **options: Any) -> Any:
        """As over HTTP, without sizes."""
        found = MemoryFileSystem.find(self, path, **options)
        return {name: {"name": name, "type": "file", "size": None} for name in found}

    def cat_file(self, path: str, *arguments: Any, **options: Any) -> Any:
        if "refused" in path:
            raise PermissionError("403 Forbidden:\n  no key")
        return MemoryFileSystem.cat_file(self, path, *arguments, **options)

    def _open(self, path: str, *arguments: Any, **options: Any) -> Any:
        if "refused" in path and options.get("mode", "rb") == "rb":
            raise PermissionError("403 Forbidden:\n  no key")
        file: Any = MemoryFileSystem._open(self, path, *arguments, **options)
        reads = options.get("mode", "rb") == "rb" and not arguments[:1] == ("wb",)
        return Lost(file.getvalue()) if "lost" in path and reads else file


class Lost(io.RawIOBase):
    """Gives half of a file."""

    def __init__(self, content: bytes) -> None:
        self.left = content[: len(content) // 2]

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self.left:
            raise RuntimeError("the connection was lost")
        given, self.left = self.left[: len(target)], self.left[len(target) :]
        target[: len(given)] = given
        return len(given)


@pytest.fixture
def flaky() -> Iterator[Any]:
    import_module("fsspec").register_implementation("flaky", Flaky, clobber=True)
    system = Flaky()
    yield system
    Flaky.store.clear()


def test_what_a_store_refuses_or_loses_is_counted(flaky: Any, tmp_path: Path) -> None:
    """What came before the loss counts, and the verdict is blind."""
    plain = gzip.decompress((TRACES / "breaks_inflated.log.gz").read_bytes())
    flaky.pipe_file("/in/a.log", plain)
    flaky.pipe_file("/in/dedicated_log_torch_trace_lost_b.log", plain)
    flaky.pipe_file("/in/dedicated_log_torch_trace_refused_c.log", plain)
    flaky.pipe_file("/in/refused.log", plain)
    receipt = analyzed(tmp_path / "out", "flaky://in")
    told = receipt["completeness"]
    assert told["records_lost"][UNREADABLE] == 1
    assert "files: refused.log: 403 Forbidden: no key" in told["reasons"]
    said = "\n".join(told["reasons"])
    assert "trace_lost_b.log: the connection was lost" in said
    assert "trace_refused_c.log: 403 Forbidden: no key" in said
    assert 3 < receipt["compile"]["compiles"] < 12
    assert (receipt["verdict"], receipt["status"]) == ("blind", "partial")


def test_a_journal_that_a_store_loses(flaky: Any) -> None:
    """Events before the loss count; one that cannot be opened says so."""
    body = b'%d {"k":"EvidenceLost","t":0.5,"step":1,"source":"a","reason":"b"}'
    lines = [b"%08x " % binascii.crc32(body % n) + body % n + b"\n" for n in range(4)]
    flaky.pipe_file("/run/journal-1-lost.jsonl", b"".join(lines))
    flaky.pipe_file("/run/journal-2-refused.jsonl", b"".join(lines))
    lost, refused = read_run("flaky://run")
    assert (len(lost.events), lost.lost, lost.torn_tail) == (3, {UNREADABLE: 1}, True)
    assert (len(refused.events), refused.lost) == (1, {UNREADABLE: 1})


def test_names_never_become_other_places(store: Any, tmp_path: Path) -> None:
    """fsspec reads "::" as another place: a file of that name is not opened, and counted."""
    secret = tmp_path / "secret.log"
    secret.write_bytes(gzip.decompress((TRACES / "breaks_inflated.log.gz").read_bytes()))
    name = f"simplecache::file://{secret}"
    store.pipe_file(f"/in/{name}", b"x")
    store.pipe_file("/in/a.log.gz", (TRACES / "break_in_loop.log.gz").read_bytes())
    kinds = {item.kind for item in list_inputs(["memory://in"])}
    assert kinds == {TRACE, UNREADABLE}
    receipt = analyzed(tmp_path / "out", "memory://in")
    assert receipt["compile"]["recompiles"] == 0
    assert receipt["completeness"]["records_lost"][UNREADABLE] == 1


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
        ("file:///nothing/here", "there is no file or folder file:///nothing/here"),
    ],
)
def test_a_place_that_is_none(uri: str, said: str, tmp_path: Path, capsys) -> None:
    """One sentence, exit code 2, and nothing written."""
    assert cli.main(["analyze", uri, "-o", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_joined_locations_and_their_parents() -> None:
    """The name goes to the link of a chain that has a place of its own."""
    assert join_path("s3://b/runs/", "x.log") == "s3://b/runs/x.log"
    assert join_path("simplecache::s3://b/runs", "x") == "simplecache::s3://b/runs/x"
    assert join_path("zip://in::s3://b/a.zip", "x") == "zip://in/x::s3://b/a.zip"
    assert get_parent("zip://in/x::s3://b/a.zip") == "zip://in::s3://b/a.zip"
    assert get_parent("s3://b/runs/x") == "s3://b/runs"
