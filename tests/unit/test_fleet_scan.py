"""Which files of a folder count, and what the others are: named, counted, never fatal."""

import os
from pathlib import Path

import pytest
from many_receipts import content, entry, measured, plain, written

from compilediag.errors import UsageError
from compilediag.extensions.fleet.entry import BadFile, Entry
from compilediag.extensions.fleet.scan import (
    load_fleet,
    read_content,
    read_file,
    scan,
    select_candidates,
)


def kinds(folder: Path) -> dict[str, str]:
    return {item.path: item.kind for item in load_fleet(str(folder)).problems}


def test_what_is_no_receipt_is_named(tmp_path: Path) -> None:
    """Receipts of a newer major, half-written ones, other JSON, empty and huge files."""
    whole = content(1)
    (tmp_path / "good.json").write_bytes(whole)
    newer = whole.replace(b'"schema_version": "1.', b'"schema_version": "2.')
    (tmp_path / "newer.json").write_bytes(newer)
    (tmp_path / "torn.json").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "other.json").write_text('{"loss": 3}', encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "notes.json").write_text("no JSON at all", encoding="utf-8")
    (tmp_path / "wrong.json").write_bytes(whole.replace(b'"status": "complete"', b'"status": 7'))
    (tmp_path / "huge.json").touch()
    os.truncate(tmp_path / "huge.json", 65 << 20)
    assert kinds(tmp_path) == {
        "newer.json": "newer",
        "torn.json": "damaged",
        "empty.json": "damaged",
        "other.json": "foreign",
        "list.json": "foreign",
        "notes.json": "foreign",
        "wrong.json": "damaged",
        "huge.json": "foreign",
    }
    (good,) = load_fleet(str(tmp_path)).entries
    assert good.path == "good.json"


def test_runs_and_files_at_any_depth(tmp_path: Path) -> None:
    """Artifacts of runs, hidden files and links to folders are not looked at."""
    _write(tmp_path / "a.json", 1)
    _write(tmp_path / "deep" / "er" / "b.json", 2)
    _write(tmp_path / ".compilediag" / "run1" / "receipt.json", 3)
    _write(tmp_path / ".compilediag" / "run1" / "artifacts" / "c.json", 4)
    _write(tmp_path / ".compilediag" / "run1" / "other.json", 5)
    _write(tmp_path / ".hidden" / "d.json", 6)
    _write(tmp_path / ".e.json", 7)
    (tmp_path / ".compilediag" / "latest").symlink_to("run1", target_is_directory=True)
    (tmp_path / "gone.json").symlink_to("nowhere.json")
    paths, problems = scan(str(tmp_path))
    assert paths == [".compilediag/run1/receipt.json", "a.json", "deep/er/b.json"]
    assert problems == []
    plain_files = (path for path in tmp_path.rglob("*") if not path.is_symlink())
    assert select_candidates([str(path.relative_to(tmp_path)) for path in plain_files]) == paths


def test_copies_count_once(tmp_path: Path) -> None:
    """A receipt that lies there twice is one run; the copy is named."""
    _write(tmp_path / "a.json", 1)
    _write(tmp_path / "b.json", 1)
    assert [found.path for found in load_fleet(str(tmp_path)).entries] == ["a.json"]
    assert kinds(tmp_path) == {"b.json": "copy"}


def test_only_what_is_wanted_is_kept(tmp_path: Path) -> None:
    """A lane can be asked for; copies of others are not named."""
    names = ("gpt/train", "vit/train")
    written(
        tmp_path, range(6), lambda n: measured(header__lane__name=names[n % 2], steps__median=n)
    )
    (tmp_path / "copy.json").write_bytes((tmp_path / "r00001.json").read_bytes())
    found = load_fleet(str(tmp_path), lambda entry: entry.configuration.name == "gpt/train")
    assert [entry.values["step_s"] for entry in found.entries] == [0, 2, 4]
    assert (found.problems, found.files_read) == ((), 7)


def test_a_file_that_vanishes_is_a_problem(tmp_path: Path) -> None:
    """Between the look and the reading."""
    found = read_file(str(tmp_path), "gone.json")
    assert isinstance(found, BadFile)
    assert found.kind == "unreadable"


@pytest.mark.parametrize(
    ("text", "utc", "seconds"),
    [
        ("2026-11-20T14:45:00Z", "2026-11-20T14:45:00Z", 1795185900.0),
        ("2026-11-20T15:45:00+01:00", "2026-11-20T14:45:00Z", 1795185900.0),
        ("2026-11-20T14:45:00", "2026-11-20T14:45:00Z", 1795185900.0),
        ("last Tuesday", "last Tuesday", None),
    ],
)
def test_times_are_utc(text: str, utc: str, seconds: float | None) -> None:
    """Whatever zone a receipt tells; one without a time that can be read has none."""
    found = entry(1, measured(header__created_at_utc=text))
    assert (found.created, found.created_s) == (utc, seconds)


def test_what_is_kept_of_a_receipt() -> None:
    """Its measures by name; counts only where the evidence is complete, and checks as they are."""
    found = entry(3, measured(throughput__tokens_per_s=1000.0, checks__no_oom=False))
    assert found.values["tokens_per_s"] == 1000.0
    assert found.values["checks_passed"] == 0.0
    assert found.values["recompiles"] == 1
    assert found.failed == ("no_oom",)
    blind = entry(3, measured(verdict="blind"))
    assert {"recompiles", "graph_breaks", "compile_s"}.isdisjoint(blind.values)
    assert "step_s" in blind.values
    assert entry(3, measured(checks=dict.fromkeys(plain(3)["checks"]))).failed is None


def test_memory_is_that_of_the_fullest_device() -> None:
    """Both counters: what live tensors hold, and what the allocator has reserved."""
    devices = [
        {"device": 0, "allocated_peak_bytes": 5, "reserved_peak_bytes": 9},
        {"device": 1, "allocated_peak_bytes": 7, "reserved_peak_bytes": 8},
    ]
    found = entry(1, measured(memory__devices=devices))
    assert found.values["device_allocated_peak_bytes"] == 7
    assert found.values["device_reserved_peak_bytes"] == 9


def test_no_content_raises() -> None:
    """Bytes that are no JSON, deep nesting, odd types: a problem with a text, every time."""
    cases = [b"\xff\xfe", b"[" * 100_000, b'{"schema": "compilediag.receipt"}', b"\x00", b"null"]
    found = [read_content(case, "x.json", "x.json") for case in cases]
    assert all(isinstance(item, BadFile) and item.text for item in found)
    assert isinstance(read_content(content(1), "x.json", "x.json"), Entry)


def _write(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content(number))


def test_receipts_at_a_uri_are_those_of_the_folder(tmp_path: Path) -> None:
    """By the same rules: the artifacts of a run are not looked at."""
    pytest.importorskip("fsspec")
    written(tmp_path, range(5), lambda n: measured(steps__median=n / 8, checks__no_oom=n > 2))
    run = tmp_path / "run" / "receipt.json"
    run.parent.mkdir()
    run.write_bytes(content(8, measured(header__lane__preset="größer \u202e 'x'")))
    (run.parent / "other.json").write_text("{}", encoding="utf-8")
    here, there = load_fleet(str(tmp_path)), load_fleet(f"file://{tmp_path}")
    assert len(there.entries) == 6
    assert there.entries == here.entries
    assert there.problems == here.problems == ()
    with pytest.raises(UsageError, match="there is nothing at"):
        load_fleet(f"file://{tmp_path}/nothing")
    with pytest.raises(UsageError, match="Protocol not known"):
        load_fleet("nosuch://place")
