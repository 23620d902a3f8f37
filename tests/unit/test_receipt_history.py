"""Older, newer and renamed: every released version is read, and a newer major is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from compilediag.errors import ReceiptTooNew, ReceiptUnreadable
from compilediag.receipt import versions
from compilediag.receipt.file import receipt_from
from compilediag.receipt.schema.receipt import SCHEMA_VERSION
from compilediag.receipt.schema.record import as_plain
from compilediag.receipt.spelling import encoded
from compilediag.receipt.versions import receipt_of, respelled, upgraded, version_of

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
    receipt = receipt_of(copy.deepcopy(raw), path.name)
    assert receipt.receipt_id == raw["receipt_id"]
    if raw["schema_version"] == SCHEMA_VERSION:
        assert as_plain(receipt) == raw


def test_a_newer_minor_is_read_and_kept() -> None:
    """Its new fields survive, because they may not change what the old ones mean."""
    raw = example(schema_version="1.7", brand_new={"a": 1})
    assert as_plain(receipt_of(raw, "r"))["brand_new"] == {"a": 1}


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
    with pytest.raises(ReceiptTooNew, match="upgrade compilediag"):
        receipt_of(example(**changes), "r")


@pytest.mark.parametrize("raw", [None, [], "text", 5, {}, {"schema": ["compilediag.receipt"]}])
def test_what_is_no_receipt(raw: object) -> None:
    """Any JSON value is an input."""
    with pytest.raises(ReceiptUnreadable, match="not a compilediag receipt"):
        receipt_of(raw, "r")


def test_versions() -> None:
    """Two numbers and a dot, nothing else."""
    assert version_of("1.10") == (1, 10)
    for text in (None, 1.0, "1", "1.0.0", "v1.0", "1.x", "1.0\n", "9999999.0"):
        assert version_of(text) is None


def test_upgrades_run_in_a_chain() -> None:
    """An old document passes every step up to the newest, and a new one none."""
    chain = {
        1: lambda raw: {**raw, "steps": [*raw["steps"], "1 to 2"]},
        2: lambda raw: {**raw, "steps": [*raw["steps"], "2 to 3"]},
    }
    assert upgraded({"steps": []}, 1, chain) == {"steps": ["1 to 2", "2 to 3"]}
    assert upgraded({"steps": []}, 3, chain) == {"steps": []}


def test_old_spellings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed field is found under its old key, also where it is required, at any depth."""
    monkeypatch.setattr(
        versions,
        "_aliases",
        lambda: {"compile.frame_count": "frames", "compile.events[].took": "seconds"},
    )
    raw = example(schema_version="1.4")
    raw["compile"]["frame_count"] = raw["compile"].pop("frames")
    raw["compile"]["events"][1]["took"] = raw["compile"]["events"][1].pop("seconds")
    receipt = receipt_of(raw, "r")
    assert receipt.compile.frames == 1
    assert receipt.compile.events[1].seconds == 0.18
    assert not receipt.compile.unknown


def test_a_renamed_key_survives_being_written_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read under its old key, written under its new one, and read again without its help: nothing
    is lost, and what else was unknown is still there."""
    monkeypatch.setattr(versions, "_aliases", lambda: {"compile.frame_count": "frames"})
    raw = example(schema_version="0.9", later=1)
    raw["compile"]["frame_count"] = raw["compile"].pop("frames")
    written = encoded(receipt_of(raw, "r"))
    monkeypatch.undo()
    again = receipt_from(written, "r")
    assert (again.compile.frames, again.schema_version) == (1, SCHEMA_VERSION)
    assert again.unknown == {"later": 1}


def test_a_newer_rename_of_a_needed_key_is_refused_and_said() -> None:
    """A later version that renames a field this one needs must ask for a newer reader: then the
    refusal says what to do. Otherwise the missing field is named."""
    raw = example(schema_version="1.4")
    raw["compile"]["frame_count"] = raw["compile"].pop("frames")
    with pytest.raises(ReceiptUnreadable, match="missing required field `frames`"):
        receipt_of(copy.deepcopy(raw), "r")
    with pytest.raises(ReceiptTooNew, match="upgrade compilediag"):
        receipt_of({**raw, "min_reader_version": "1.4"}, "r")


def test_this_version_needs_no_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt of this version, unknown fields or not, is read without reading the register."""

    def read() -> dict[str, str]:
        raise AssertionError("the register was read")

    monkeypatch.setattr(versions, "_aliases", read)
    assert receipt_of(example(extra=1), "r").unknown == {"extra": 1}


def test_respelling_overwrites_nothing() -> None:
    """Where both spellings stand the present one counts; shapes that do not fit are left alone."""
    aliases = {"a.old": "new", "m{}.old": "new", "l[].old": "new", "old": "new"}
    document: dict[str, Any] = {
        "a": {"old": 1, "new": 2},
        "m": {"x": {"old": 1}, "y": 5},
        "l": {"old": 1},
    }
    assert respelled(copy.deepcopy(document), aliases) == {
        "a": {"old": 1, "new": 2},
        "m": {"x": {"new": 1}, "y": 5},
        "l": {"old": 1},
    }
