"""Older and newer: every released version is read, and a newer major is refused."""

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag import cli
from compilediag.errors import ReceiptTooNew, ReceiptUnreadable
from compilediag.receipt.file import convert_receipt, parse_version
from compilediag.receipt.schema.receipt import SCHEMA_VERSION

DATA = Path(__file__).parents[1] / "data"
EXAMPLE: dict[str, Any] = json.loads((DATA / "receipt-example.json").read_text(encoding="utf-8"))
GOLDEN = sorted(DATA.glob("receipt-[0-9]*.json"))


def example(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(EXAMPLE), **changes}


def test_there_is_a_golden_file_of_this_version() -> None:
    """A release without its golden file could not be held to by later readers."""
    assert f"receipt-{SCHEMA_VERSION}.json" in [path.name for path in GOLDEN]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden_files_are_read(path: Path) -> None:
    """Receipts of every released version are read, and nothing in them is lost."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    receipt = convert_receipt(copy.deepcopy(raw), path.name)
    assert receipt.receipt_id == raw["receipt_id"]
    if raw["schema_version"] == SCHEMA_VERSION:
        assert msgspec.json.decode(msgspec.json.encode(receipt)) == raw


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": "2.0", "min_reader_version": "2.0"},
        {"schema_version": "2.0", "min_reader_version": "1.0"},
        {"schema_version": "1.5", "min_reader_version": "1.5"},
        {"schema_version": "10.0"},
    ],
)
def test_what_asks_for_a_newer_reader_is_refused(changes: dict[str, str]) -> None:
    """A newer major version, or one that says this reader is too old, is not guessed at."""
    with pytest.raises(ReceiptTooNew, match=r"schema version \d+\.\d .* upgrade compilediag"):
        convert_receipt(example(**changes), "r")


@pytest.mark.parametrize("raw", [None, [], "text", 5, {}, {"schema": ["compilediag.receipt"]}])
def test_what_is_no_receipt(raw: object) -> None:
    """Any JSON value is an input."""
    with pytest.raises(ReceiptUnreadable, match="not a compilediag receipt"):
        convert_receipt(raw, "r")


def test_versions() -> None:
    """Two numbers and a dot, nothing else."""
    assert parse_version("1.10") == (1, 10)
    for text in (None, 1.0, "1", "1.0.0", "v1.0", "1.x", "1.0\n", "9999999.0"):
        assert parse_version(text) is None


def test_a_newer_rename_of_a_needed_key_is_refused_and_said() -> None:
    """A later version that renames a field this one needs must ask for a newer reader: then the
    refusal says what to do. Otherwise the missing field is named."""
    raw = example(schema_version="1.4")
    raw["compile"]["frame_count"] = raw["compile"].pop("frames")
    with pytest.raises(ReceiptUnreadable, match="missing required field `frames`"):
        convert_receipt(copy.deepcopy(raw), "r")
    with pytest.raises(ReceiptTooNew, match="upgrade compilediag"):
        convert_receipt({**raw, "min_reader_version": "1.4"}, "r")


def test_commands_name_the_newer_version(tmp_path: Path, capsys) -> None:
    """A note on stderr names the version of a file that says more; `show --json` prints it all."""
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(example(schema_version="1.7", brand_new={"a": 1})))
    assert cli.main(["show", "--json", str(path)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["brand_new"] == {"a": 1}
    assert "has schema version 1.7, this compilediag reads 1.0" in shown.err
    path.write_text(json.dumps(example()))
    assert cli.main(["show", "--json", str(path)]) == 0
    assert capsys.readouterr().err == ""
