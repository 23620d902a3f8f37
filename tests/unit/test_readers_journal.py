"""The reader of journals: nothing it is given makes it raise, and every loss has a number."""

import binascii
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.readers.journal import (
    LINE_LIMIT,
    LOST_KEYS,
    BadLine,
    decode_line,
    read_journal,
    read_run,
)
from compilediag_harness.wire import Compiled, EnvironmentRead, FaultOccurred, Location, encode


def line(sequence: int, payload: bytes) -> bytes:
    body = b"%d %s" % (sequence, payload)
    return b"%08x %s" % (binascii.crc32(body), body)


def fault(text: str) -> FaultOccurred:
    return FaultOccurred(1.0, "here", text)


def write(path: Path, *lines: bytes, end: bytes = b"\n") -> str:
    path.write_bytes(b"\n".join(lines) + end)
    return str(path)


def test_every_loss_is_counted_by_reason(tmp_path: Path) -> None:
    """One file with one of each damage: five reasons, and the good records around them."""
    good = encode(fault("x"))
    path = write(
        tmp_path / "journal-1-a.jsonl",
        line(0, good),
        line(1, b'{"k":"FromTheFuture","t":1}'),
        line(2, b'{"k":"FaultOccurred","t":"soon"}'),
        line(3, good)[:-4] + b"junk",
        b"x" * (LINE_LIMIT + 5),
        line(9, good),
    )
    found = read_journal(path)
    assert found.events == (fault("x"), fault("x"))
    assert found.lost == {
        "unknown_kind": 1,
        "bad_json": 1,
        "bad_payload_hash": 1,
        "too_long": 1,
        "gap": 4,
    }
    assert set(found.lost) == set(LOST_KEYS)
    assert not found.torn_tail


def test_a_torn_tail_is_reported_and_is_no_bad_line(tmp_path: Path) -> None:
    """The end of a file cut in the middle of a line, as a kill or a full disk leaves it."""
    whole = line(0, encode(fault("x")))
    found = read_journal(write(tmp_path / "j", whole, line(1, encode(fault("y")))[:30], end=b""))
    assert (found.torn_tail, found.lost, len(found.events)) == (True, {}, 1)


def test_what_only_python_writes_becomes_null_and_a_replacement(tmp_path: Path) -> None:
    """NaN and lone surrogates are valid for the writer and not for JSON: the record is kept."""
    event = EnvironmentRead(0.0, {"load": float("nan"), "name": "a\udc80b"})
    found = decode_line(line(0, encode(event)))
    assert found == (0, EnvironmentRead(0.0, {"load": None, "name": "a?b"}))


def test_unknown_fields_are_ignored() -> None:
    """A newer harness may tell more: what is known is read."""
    payload = encode(fault("x"))[:-1] + b',"since":"1.1"}'
    assert decode_line(line(4, payload)) == (4, fault("x"))


def test_nested_records_come_back_equal() -> None:
    """Dataclasses within dataclasses, tuples and nulls survive the way through the file."""
    event = Compiled(
        1.5, 2, "0/1", 0, Location("m.py", 3, "f"), True, True, 0.25, None, 4, 5, 1, "why", None,
        None, ("again",), 8,
    )  # fmt: skip
    assert decode_line(line(0, encode(event))) == (0, event)


def test_deep_nesting_is_a_bad_line() -> None:
    """200,000 brackets exhaust no stack."""
    deep = b'{"k":"FaultOccurred","t":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert decode_line(line(0, deep)) == BadLine("bad_json", 0)


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)]
)
def test_only_regular_files_are_read(tmp_path: Path, make) -> None:
    """A pipe would block, a link leads elsewhere: neither is opened."""
    make(tmp_path / "journal-1-a.jsonl")
    (found,) = read_run(str(tmp_path))
    assert (found.events, found.lost, found.torn_tail) == ((), {}, False)


def test_a_missing_directory_is_an_empty_run(tmp_path: Path) -> None:
    """No directory, no journals, no exception."""
    assert read_run(str(tmp_path / "no")) == ()


def test_damaged_numbers_do_not_count_twice(tmp_path: Path) -> None:
    """A line whose number was destroyed is one loss, not a bad line and a gap."""
    good = encode(fault("x"))
    found = read_journal(write(tmp_path / "j", line(0, good), b"garbage", line(2, good)))
    assert found.lost == {"bad_payload_hash": 1}


@given(st.binary(max_size=400))
def test_no_bytes_make_the_line_reader_raise(data: bytes) -> None:
    """Any line gives an event or a reason."""
    assert isinstance(decode_line(data), BadLine | tuple)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["Compiled", "Recompiled", "StepsEnded", "GraphBroke", "?"]), JSON, JSON)
def test_no_values_make_the_decoder_raise(kind: str, first: object, second: object) -> None:
    """Valid checksums around wrong values: an event, or a reason out of the known ones."""
    import json

    text = json.dumps({"k": kind, "t": first, "step": second, "frame": first, "entries": second})
    result = decode_line(line(0, text.encode()))
    assert not isinstance(result, BadLine) or result.reason in LOST_KEYS


@given(st.lists(st.binary(max_size=60), max_size=8), st.data())
def test_no_file_makes_the_reader_raise(lines: list[bytes], data) -> None:
    """A doctored file: good lines cut, shuffled and mixed with bytes."""
    import tempfile

    good = [line(index, encode(fault("x"))) for index in range(3)]
    mixed = b"\n".join(data.draw(st.permutations(lines + good)))
    cut = data.draw(st.integers(0, len(mixed)))
    with tempfile.NamedTemporaryFile() as file:
        file.write(mixed[:cut])
        file.flush()
        found = read_journal(file.name)
    assert len(found.events) <= 3
    assert all(event == fault("x") for event in found.events)
    assert all(count > 0 for count in found.lost.values())
