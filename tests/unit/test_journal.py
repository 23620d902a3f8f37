"""The writer of journals: what reaches the file in every kind of ending."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from compilediag.readers.journal import read_journal
from compilediag_harness.base import journal as journal_module
from compilediag_harness.base.journal import LINE_LIMIT, Journal
from compilediag_harness.process import WIRE_VERSION
from compilediag_harness.wire import (
    DynamoReset,
    EntryDiff,
    FalseGuard,
    Location,
    ProcessEnded,
    ProcessStarted,
    Recompiled,
    SpanEnded,
    encode,
)


def opening() -> bytes:
    return encode(
        ProcessStarted(
            0.0, WIRE_VERSION, os.getpid(), os.getppid(), None, None, ("x.py",), "python", "/", "",
            "3.11",
        )
    )  # fmt: skip


def span(step: int) -> SpanEnded:
    return SpanEnded(float(step), step, "span", 0.0, 0.1, 0, 1)


def test_events_come_back_in_order(tmp_path: Path) -> None:
    """What is written is read back, the process's start first; the file is the owner's alone."""
    journal = Journal(str(tmp_path), opening)
    assert all(journal.write(span(step)) for step in range(3))
    journal.close()
    found = read_journal(journal.path)
    assert found.started is not None
    assert found.events[1:] == tuple(span(step) for step in range(3))
    assert (found.lost, found.torn_tail, journal.dropped) == ({}, False, 0)
    assert os.stat(journal.path).st_mode & 0o777 == 0o600
    assert journal.bytes_written == os.path.getsize(journal.path)


def test_the_descriptor_is_out_of_the_way(tmp_path: Path) -> None:
    """The program's own next descriptor has the number it would have without us."""
    expected = os.open(os.devnull, os.O_RDONLY)
    os.close(expected)
    journal = Journal(str(tmp_path), opening)
    actual = os.open(os.devnull, os.O_RDONLY)
    os.close(actual)
    journal.close()
    assert actual == expected


def test_a_program_that_closes_all_descriptors_loses_nothing(tmp_path: Path) -> None:
    """A daemon closes every descriptor it finds: the journal opens its file again."""
    journal = Journal(str(tmp_path), opening)
    os.close(journal._fd)
    assert journal.write(span(1))
    journal.close()
    assert read_journal(journal.path).events[1:] == (span(1),)


def test_threads_lose_nothing(tmp_path: Path) -> None:
    """Eight threads write at once: every record is whole, every sequence number there once."""
    journal = Journal(str(tmp_path), opening)

    def work(base: int) -> None:
        for step in range(base, base + 100):
            journal.write(span(step))

    threads = [threading.Thread(target=work, args=(100 * index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    found = read_journal(journal.path)
    assert found.lost == {}
    assert sorted(event.step for event in found.events[1:]) == list(range(800))


def test_after_a_full_disk_the_next_line_is_whole(tmp_path: Path, monkeypatch) -> None:
    """A line of which only the head was written does not take the next one with it."""
    journal = Journal(str(tmp_path), opening)
    real = os.write
    monkeypatch.setattr(journal_module.os, "write", lambda fd, data: real(fd, data[:20]))
    assert not journal.write(span(1))
    monkeypatch.undo()
    assert journal.write(span(2))
    journal.close()
    found = read_journal(journal.path)
    assert found.events[1:] == (span(2),)
    assert found.lost == {"bad_payload_hash": 1}
    assert journal.dropped == 1


def test_an_unwritable_directory_drops_everything(tmp_path: Path) -> None:
    """No file can be made: every record is counted as dropped and nothing raises."""
    journal = Journal(str(tmp_path / "missing"), opening)
    assert not journal.write(span(1))
    assert journal.dropped >= 2


def test_over_the_limit_only_essential_kinds_are_written(tmp_path: Path) -> None:
    """Above its limit a journal keeps what the counts of a receipt need; what it leaves out is
    counted by kind, and is no loss."""
    journal = Journal(str(tmp_path), opening, limit_bytes=1000)
    assert all(journal.write(span(step)) for step in range(50))
    left_out = dict(journal.left_out)
    ended = ProcessEnded(1.0, {}, 0.0, journal.dropped, None, records_left_out=left_out)
    assert journal.write(ended)
    journal.close()
    found = read_journal(journal.path)
    assert found.events[-1] == ended
    assert len(found.events) - 2 + left_out["SpanEnded"] == 50
    assert (found.lost, journal.dropped) == ({}, 0)


def test_beyond_the_reserve_an_essential_record_is_lost(tmp_path: Path, monkeypatch) -> None:
    """A count that cannot be written is a loss, and shows as one."""
    monkeypatch.setattr(journal_module, "RESERVE_BYTES", 500)
    journal = Journal(str(tmp_path), opening, limit_bytes=1000)
    written = [journal.write(DynamoReset(0.0, 0, epoch)) for epoch in range(50)]
    journal.write(ProcessEnded(1.0, {}, 0.0, journal.dropped, None))
    journal.close()
    assert written.count(False) == journal.dropped > 0
    assert read_journal(journal.path).lost == {"gap": journal.dropped}


def test_a_giant_record_is_shortened(tmp_path: Path) -> None:
    """A record that fits into no line is written with its texts cut, and is marked."""
    guard = FalseGuard("L['x']", "EQUALS_MATCH", "y" * 10_000, "1", "2")
    where = Location("model.py", 3, "forward")
    giant = Recompiled(
        0.0, 0, "0/1", 0, where, ("z" * 9000,), (EntryDiff("0/0", (guard,) * 200),), 0.1
    )
    assert len(encode(giant)) > LINE_LIMIT
    journal = Journal(str(tmp_path), opening)
    assert journal.write(giant)
    journal.close()
    event = read_journal(journal.path).events[1]
    assert isinstance(event, Recompiled)
    assert "1 MiB" in event.problem
    assert event.entries[0].guards[0].source == "L['x']"


def test_an_event_that_cannot_be_encoded_is_a_drop(tmp_path: Path) -> None:
    """A value JSON cannot spell costs its record, never an exception in the user's program."""
    loop: dict[str, object] = {}
    loop["self"] = loop
    journal = Journal(str(tmp_path), opening)
    assert not journal.write(ProcessEnded(0.0, loop, 0.0, 0, None))
    journal.close()
    assert journal.dropped == 1


@pytest.mark.parametrize("text", ["plain", 'quo"te', "back\\slash", "é\n\x00", "\udc80"])
def test_hand_written_records_equal_the_encoder(text: str, monkeypatch) -> None:
    """`process` writes its two records without the json package, byte for byte as `wire` does."""
    from compilediag_harness import process

    monkeypatch.setattr(sys, "orig_argv", ["python", text])
    fields = process.read_identity()
    line = process._encode_line("ProcessStarted", t=0.25, **fields)
    fields["argv"] = tuple(fields["argv"])
    assert line == encode(ProcessStarted(t=0.25, **fields))
    assert json.loads(line)["argv"][1] == text


def test_the_wire_version_is_the_wires() -> None:
    """The version `process` writes without importing `wire` is the one `wire` has."""
    from compilediag_harness import wire

    assert wire.WIRE_VERSION == WIRE_VERSION
