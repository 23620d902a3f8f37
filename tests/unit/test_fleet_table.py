"""Receipts as a table, at URIs and in Parquet: with the real DuckDB and fsspec."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from many_receipts import content, measured, written

from compilediag.cli import main
from compilediag.errors import OutputUnwritable, ReceiptUnreadable, UsageError
from compilediag.extensions.fleet.folder import fleet_at, fleet_of
from compilediag.extensions.fleet.table import query, read_table, write_table


@pytest.fixture(scope="module")
def receipts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Receipts with everything that a table must hold: flags, failed checks, nothing at all."""
    folder = tmp_path_factory.mktemp("many")
    written(folder, range(5), lambda n: measured(steps__median=n / 8, checks__no_oom=n > 2))
    (folder / "bare.json").write_bytes(
        content(7, measured(steps=None, header__created_at_utc="never", verdict="blind"))
    )
    run = folder / "run" / "receipt.json"
    run.parent.mkdir()
    run.write_bytes(content(8, measured(header__lane__preset="größer \u202e 'x'")))
    (run.parent / "other.json").write_text("{}", encoding="utf-8")
    return folder


def test_a_table_holds_what_the_receipts_do(receipts: Path, tmp_path: Path) -> None:
    """Written and read again, every entry is the same."""
    pytest.importorskip("duckdb")
    entries = fleet_of(str(receipts)).entries
    table = tmp_path / "it's [all].parquet"
    write_table(entries, str(table))
    assert fleet_at(str(table)).entries == entries
    write_table(entries[:2], str(table))
    assert len(read_table(str(table))) == 2
    assert [path.name for path in tmp_path.iterdir()] == [table.name]


def test_a_table_at_a_uri(receipts: Path) -> None:
    """fsspec takes it wherever it can write."""
    pytest.importorskip("duckdb")
    pytest.importorskip("fsspec")
    entries = fleet_of(str(receipts)).entries
    write_table(entries, "memory://store/all.parquet")
    found = fleet_at("memory://store/all.parquet", lambda lane, created_s: created_s is not None)
    assert found.entries == entries[1:]


def test_receipts_at_a_uri_are_those_of_the_folder(receipts: Path) -> None:
    """By the same rules: the artifacts of a run are not looked at."""
    pytest.importorskip("fsspec")
    here, there = fleet_of(str(receipts)), fleet_at(f"file://{receipts}")
    assert there.entries == here.entries
    assert there.problems == here.problems == ()
    with pytest.raises(UsageError, match="there is nothing at"):
        fleet_at(f"file://{receipts}/nothing")
    with pytest.raises(UsageError, match="Protocol not known"):
        fleet_at("nosuch://place")


def test_questions_in_sql(receipts: Path, tmp_path: Path) -> None:
    """Of the table and nothing else: no file is read or written."""
    pytest.importorskip("duckdb")
    entries = fleet_of(str(receipts)).entries
    asked = "SELECT count(*) AS runs, max(step_s) AS slowest FROM receipts WHERE step_s < 1"
    assert query(entries, asked) == (["runs", "slowest"], [(6, 0.5)])
    flag = "SELECT DISTINCT lane_flags['numerics_flags.matmul_precision'] FROM receipts"
    assert query(entries, flag)[1] == [('"highest"',)]
    for wrong in ("SELECT nothing FROM receipts", f"COPY receipts TO '{tmp_path}/x.csv'", "x"):
        with pytest.raises(UsageError, match="DuckDB cannot answer"):
            query(entries, wrong)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_table_of_ours_is_left_alone(receipts: Path, tmp_path: Path) -> None:
    """Neither read as one nor written over, another's Parquet file included."""
    duckdb = pytest.importorskip("duckdb")
    text, theirs = tmp_path / "text.parquet", tmp_path / "theirs.parquet"
    text.write_text("mine", encoding="utf-8")
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT 1 AS x) TO '{theirs}' (FORMAT parquet)")
    entries = fleet_of(str(receipts)).entries
    for path in (text, theirs):
        before = path.read_bytes()
        with pytest.raises(OutputUnwritable, match="no table of receipts"):
            write_table(entries, str(path))
        assert path.read_bytes() == before
        with pytest.raises(ReceiptUnreadable, match="is no table of receipts"):
            read_table(str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        read_table(str(tmp_path / "gone.parquet"))
    with pytest.raises(OutputUnwritable, match="cannot be written"):
        write_table(entries, str(tmp_path / "no" / "such" / "folder.parquet"))


def test_the_command_writes_and_queries(
    receipts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From end to end, with the table as a source of its own."""
    pytest.importorskip("duckdb")
    table = str(tmp_path / "all.parquet")
    assert main(["stats", str(receipts), "--export", table]) == 0
    assert capsys.readouterr().out == f"Wrote {table}: 7 receipts\n"
    assert main(["stats", table, "--sql", "SELECT count(*) AS n FROM receipts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"n": 7}]
    assert main(["trend", table]) == 0
    assert "7 receipts of 2 lanes" in capsys.readouterr().out


def test_without_duckdb_the_extra_is_named(
    receipts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a single receipt is read."""
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    assert main(["stats", str(receipts), "--sql", "SELECT 1"]) == 2
    assert "pip install 'compilediag[store]'" in capsys.readouterr().err
