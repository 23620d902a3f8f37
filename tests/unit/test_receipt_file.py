"""Receipts on disk: whole or not at all, found where they are, refused with one sentence."""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.errors import OutputUnwritable, ReceiptNotFound, ReceiptUnreadable
from compilediag.receipt.file import (
    LARGEST_BYTES,
    decode_receipt,
    encode_receipt,
    read_json,
    read_receipt,
    write_receipt,
)
from compilediag.receipt.locate import find_latest_run, find_receipt, link_latest
from compilediag.receipt.schema.receipt import SCHEMA_VERSION, Receipt

DATA = Path(__file__).parents[1] / "data"


def example() -> dict[str, Any]:
    return json.loads((DATA / "receipt-example.json").read_text(encoding="utf-8"))


def receipt() -> Receipt:
    return msgspec.convert(example(), Receipt)


def test_written_and_read(tmp_path: Path) -> None:
    """What is read is what was written, and the returned size is the size of the file."""
    path = tmp_path / "run" / "receipt.json"
    assert write_receipt(receipt(), path) == path.stat().st_size
    assert read_receipt(path) == receipt()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("moment", ["write", "replace"])
def test_a_failed_write_leaves_the_old_receipt(tmp_path: Path, monkeypatch, moment: str) -> None:
    """A full disk, or a rename that fails, leaves the older file and no temporary one."""
    path = tmp_path / "receipt.json"
    write_receipt(receipt(), path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    target, name = (os, "fsync") if moment == "write" else (os, "replace")
    monkeypatch.setattr(target, name, fail)
    with pytest.raises(OutputUnwritable, match="No space left on device"):
        write_receipt(msgspec.convert({**example(), "status": "failed"}, Receipt), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_stale_temporaries_are_swept(tmp_path: Path) -> None:
    """A killed writer's old temporary goes; a young one may be a living writer's and stays."""
    old, young = tmp_path / ".receipt.json-1-aa.tmp", tmp_path / ".receipt.json-2-bb.tmp"
    for leftover, age_s in ((old, 3601), (young, 10)):
        leftover.write_bytes(b"{")
        os.utime(leftover, (time.time() - age_s,) * 2)
    write_receipt(receipt(), tmp_path / "receipt.json")
    assert {path.name for path in tmp_path.iterdir()} == {young.name, "receipt.json"}


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    """An output directory that cannot be made is an error of one sentence."""
    (tmp_path / "run").write_text("mine")
    with pytest.raises(OutputUnwritable, match="cannot be written"):
        write_receipt(receipt(), tmp_path / "run" / "receipt.json")
    assert (tmp_path / "run").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not readable as JSON"),
        (b'{"schema": "compilediag.receipt", ', "not readable as JSON"),
        (b"[" * 200_000, "not readable as JSON"),
        (b"\x00\xff\xfe", "not readable as JSON"),
        (b"[1]", "is not a compilediag receipt"),
        (b'{"schema": "other", "schema_version": "1.0"}', "is not a compilediag receipt"),
        (b'{"schema": "compilediag.receipt"}', "no schema version"),
        (b'{"schema": "compilediag.receipt", "schema_version": "one"}', "no schema version"),
        (b'{"schema": "compilediag.receipt", "schema_version": "1.0"}', "not a valid receipt"),
    ],
)
def test_unreadable(tmp_path: Path, content: bytes, says: str) -> None:
    """Torn, deep, foreign and wrong files are refused with one sentence that names the file."""
    path = tmp_path / "receipt.json"
    path.write_bytes(content)
    with pytest.raises(ReceiptUnreadable, match=says) as caught:
        read_receipt(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_large(tmp_path: Path) -> None:
    """A file that can be no receipt is not even read."""
    path = tmp_path / "receipt.json"
    with path.open("wb") as stream:
        stream.truncate(LARGEST_BYTES + 1)
    with pytest.raises(ReceiptUnreadable, match="larger than 64 MiB"):
        read_receipt(path)


def test_spellings_of_other_writers(tmp_path: Path) -> None:
    """NaN, as Python's own writer spells it, and a number beyond the largest float are null, which
    is reported; a byte-order mark, lone surrogates, bytes that are no UTF-8 and integers of any
    length cost nothing; what is read can be written again."""
    raw = {**example(), "later": {"n": 2**80, "s": "a\ud800b"}}
    raw["steps"]["mean"], raw["steps"]["median"] = float("nan"), float("-inf")
    content = json.dumps(raw)
    content = content.replace('"fraction": 0.00', '"fraction": 1e999, "was": 0.00', 1)
    path = tmp_path / "receipt.json"
    path.write_bytes(b"\xef\xbb\xbf" + content.encode().replace(b"gpt-small", b"gpt-\xffmall"))
    read = read_receipt(path)
    assert read.header.configuration.name == "gpt-�mall/train"
    assert (read.goodput.fraction, read.steps.mean, read.steps.median) == (None, None, None)
    assert read.checks.values_finite is False, "the loss is reported"
    assert read_json(path)["schema_version"] == SCHEMA_VERSION
    write_receipt(read, path)
    assert read_receipt(path) == read


def test_a_half_written_file_says_what_to_do(tmp_path: Path) -> None:
    """Cut at any place it is refused as half-written; beside journals the message names the
    command that makes it again. Nothing is written over it."""
    content = encode_receipt(receipt())
    path = tmp_path / "receipt.json"
    literal = content.index(b": null") + 4
    for length in (1, 100, literal, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:length])
        with pytest.raises(ReceiptUnreadable, match="it ends in the middle, in line") as caught:
            read_receipt(path)
        assert "analyze" not in str(caught.value)
        assert path.read_bytes() == content[:length]
    (tmp_path / "journal-1-ab.jsonl").write_bytes(b"")
    with pytest.raises(ReceiptUnreadable, match=f"`compilediag analyze {tmp_path}` makes it again"):
        read_receipt(path)
    path.write_bytes(b" \n")
    with pytest.raises(ReceiptUnreadable, match="it is empty"):
        read_receipt(path)


def test_a_newer_minor_version(tmp_path: Path) -> None:
    """Its new fields are ignored, also where the receipt is written again; as JSON values the file
    is what it is."""
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps({**example(), "schema_version": "1.7", "later": 1}))
    read = read_receipt(path)
    assert read.schema_version == "1.7"
    assert read_json(path) == {**example(), "schema_version": "1.7", "later": 1}
    write_receipt(read, path)
    assert read_receipt(path) == receipt()
    assert "later" not in read_json(path)


def run_directory(folder: Path, name: str = "20261120-model-7") -> Path:
    run = folder / ".compilediag" / name
    write_receipt(receipt(), run / "receipt.json")
    return run


def test_find_by_file_directory_and_default(tmp_path: Path, monkeypatch) -> None:
    """A receipt file, a run directory, the folder above, and nothing all lead to the receipt."""
    run = run_directory(tmp_path)
    link_latest(run)
    wanted = run / "receipt.json"
    assert find_receipt(str(wanted), tmp_path) == str(wanted)
    assert find_receipt(".compilediag/20261120-model-7", tmp_path) == str(wanted)
    for argument in (None, ".", ".compilediag", ".compilediag/latest"):
        assert Path(find_receipt(argument, tmp_path)).resolve() == wanted.resolve()
    monkeypatch.chdir(tmp_path)
    assert Path(find_receipt()).resolve() == wanted.resolve()
    assert read_receipt() == receipt()
    monkeypatch.chdir(tmp_path / ".compilediag")  # where "." is not the folder above
    assert Path(find_receipt(".")).resolve() == wanted.resolve()


def test_latest_moves_on(tmp_path: Path) -> None:
    """The newest run takes the name; nothing else is left beside it."""
    first, second = run_directory(tmp_path, "1"), run_directory(tmp_path, "2")
    link_latest(first)
    link_latest(second)
    assert find_latest_run(tmp_path / ".compilediag") == str(second.resolve())
    assert {path.name for path in (tmp_path / ".compilediag").iterdir()} == {"1", "2", "latest"}


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (None, "compilediag run"),
        ("nowhere.json", "no receipt at nowhere.json"),
        ("empty", "no receipt.json in empty"),
    ],
)
def test_not_found(tmp_path: Path, argument: str | None, says: str) -> None:
    """One sentence says where was looked, and what to do."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReceiptNotFound, match=says):
        find_receipt(argument, tmp_path)


def test_latest_run_without_receipt(tmp_path: Path) -> None:
    """A run that is still going on has no receipt yet."""
    run = tmp_path / ".compilediag" / "1"
    run.mkdir(parents=True)
    link_latest(run)
    with pytest.raises(ReceiptNotFound, match=r"The last run, .*1, has no receipt\.json"):
        find_receipt(None, tmp_path)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read all files")
def test_no_permission(tmp_path: Path) -> None:
    """A file that may not be read is an error of one sentence."""
    path = tmp_path / "receipt.json"
    write_receipt(receipt(), path)
    path.chmod(0)
    with pytest.raises(ReceiptUnreadable, match="Permission denied"):
        read_receipt(path)


TOKENS = (b"NaN", b"null", b"1e999", b'"\\ud800"', b"[", b"{", b'"', b"\xff", b"9" * 40)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_whole_or_refused(seed: int) -> None:
    """Changed, missing and foreign bytes anywhere: one sentence, or a receipt that can be written
    and read again; never another error."""
    draw = random.Random(seed)
    whole = encode_receipt(receipt())
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(content))
            kind = draw.randrange(4)
            if kind == 0:
                content[place] = draw.randrange(256)
            elif kind == 1:
                del content[place : place + draw.randint(1, 50)]
            elif kind == 2:
                content[place:place] = draw.choice(TOKENS)
            else:
                content = content[: place + 1]
        try:
            read, said = decode_receipt(bytes(content), "receipt.json"), ""
        except ReceiptUnreadable as error:
            read, said = None, str(error)
        assert "\n" not in said
        assert read is None or decode_receipt(encode_receipt(read), "receipt.json") == read
