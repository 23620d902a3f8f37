"""The writer of journals: what reaches the file in every kind of ending."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from compilediag.readers.journal import read_journal, read_run
from compilediag_harness.base import journal as journal_module
from compilediag_harness.base.journal import LINE_LIMIT, Journal
from compilediag_harness.process import WIRE_VERSION
from compilediag_harness.wire import (
    EntryDiff,
    FalseGuard,
    Location,
    ProcessEnded,
    ProcessStarted,
    Recompiled,
    SpanEnded,
    encode,
)

HARNESS = str(Path(journal_module.__file__).parent.parent)


def opening() -> bytes:
    return encode(
        ProcessStarted(
            0.0, WIRE_VERSION, os.getpid(), os.getppid(), None, None, ("x.py",), "python", "/", "",
            "3.11",
        )
    )  # fmt: skip


def span(step: int) -> SpanEnded:
    return SpanEnded(float(step), step, "span", 0.0, 0.1, 0, 1)


def python(code: str, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": HARNESS},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


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


def test_a_forked_child_has_its_own_file(tmp_path: Path) -> None:
    """Parent and child write on after a fork: two files, each with its own start, none mixed."""
    code = """
        import os, sys
        from compilediag_harness import process
        from compilediag_harness.wire import SpanEnded
        attached = process.start(sys.argv[1])
        pid = os.fork()
        name = "parent" if pid else "child"
        attached.journal.write(SpanEnded(0.0, 0, name, 0.0, 0.1, 0, 1))
        if pid:
            os.waitpid(pid, 0)
        else:
            os._exit(0)
    """
    done = python(code, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    parent, child = read_run(str(tmp_path))
    assert parent.started
    assert child.started
    assert child.started.parent_pid == parent.started.pid
    assert [e.name for e in parent.events if isinstance(e, SpanEnded)] == ["parent"]
    assert [e.name for e in child.events if isinstance(e, SpanEnded)] == ["child"]
    assert (parent.lost, child.lost) == ({}, {})


def test_a_child_of_multiprocessing_says_its_end(tmp_path: Path) -> None:
    """It ends by `os._exit`, which runs no `atexit`: the last record is there all the same. A
    child that wrote nothing, such as a data loader's, leaves no file."""
    code = """
        import multiprocessing, sys
        from compilediag_harness import process
        from compilediag_harness.wire import SpanEnded

        def work(speak):
            if speak:
                attached.journal.write(SpanEnded(0.0, 0, "child", 0.0, 0.1, 0, 1))

        attached = process.start(sys.argv[1])
        attached.activate()
        for speak in (True, False):
            child = multiprocessing.get_context("fork").Process(target=work, args=(speak,))
            child.start()
            child.join()
    """
    done = python(code, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    _, child = read_run(str(tmp_path))
    kinds = [type(event).__name__ for event in child.events]
    assert kinds == ["ProcessStarted", "SpanEnded", "ProcessEnded"]


def test_ctrl_c_during_our_last_record_prints_nothing(tmp_path: Path) -> None:
    """A SIGINT that arrives while the process writes its end is no traceback of ours."""
    code = """
        import os, signal, sys
        from compilediag_harness import process
        attached = process.start(sys.argv[1])
        end = attached._end
        attached._end = lambda: (os.kill(os.getpid(), signal.SIGINT), end())
    """
    done = python(code, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = read_run(str(tmp_path))
    assert isinstance(found.events[-1], ProcessEnded)


def test_sigkill_leaves_a_valid_prefix(tmp_path: Path) -> None:
    """Twenty processes killed at random moments: whole lines without a gap, each time."""
    code = textwrap.dedent("""
        import sys
        from compilediag_harness import process
        from compilediag_harness.wire import SpanEnded
        attached = process.start(sys.argv[1])
        for step in range(1000000):
            attached.journal.write(SpanEnded(0.0, step, "x" * 300, 0.0, 0.1, 0, 1))
            print(step, flush=True)
    """)
    chance = random.Random(2)
    for _ in range(20):
        told = chance.randrange(1, 400)
        writer = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": HARNESS},
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        for _ in range(told):
            writer.stdout.readline()
        writer.kill()
        writer.communicate()
        (found,) = [j for j in read_run(str(tmp_path)) if j.started.pid == writer.pid]
        steps = [event.step for event in found.events[1:]]
        assert found.lost == {}
        assert steps == list(range(len(steps)))
        assert len(steps) >= told


def test_a_file_size_limit_costs_records_only(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a full disk: the program goes on, drops are counted, one warning
    lies in the run directory, nothing is printed; the reader tells the torn line and the gap."""
    code = """
        import resource, sys
        from compilediag_harness import process
        from compilediag_harness.wire import SpanEnded
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        attached = process.start(sys.argv[1])
        write = attached.journal.write
        written = [write(SpanEnded(0.0, s, "x", 0.0, 0.1, 0, 1)) for s in range(99)]
        print(written.count(False), attached.journal.dropped)
    """
    done = python(code, str(tmp_path))
    refused, dropped = map(int, done.stdout.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert refused == dropped > 0
    (found,) = read_run(str(tmp_path))
    assert found.torn_tail
    assert len(found.events) == 1 + 99 - refused
    assert len(list(tmp_path.glob("journal-*.dropped"))) == 1


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
    """Above its limit a journal keeps what the counts of a receipt need, and counts the rest."""
    journal = Journal(str(tmp_path), opening, limit_bytes=1000)
    for step in range(50):
        journal.write(span(step))
    ended = ProcessEnded(1.0, {}, 0.0, journal.dropped, None)
    assert journal.write(ended)
    journal.close()
    found = read_journal(journal.path)
    assert found.events[-1] == ended
    assert found.lost == {"gap": journal.dropped}
    assert journal.dropped > 0


def test_a_giant_record_is_shortened(tmp_path: Path) -> None:
    """A record that fits into no line is written with its texts cut, and says so."""
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
    assert event.problem is not None
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
    """`process` spells its two records without the json package, byte for byte as `wire` does."""
    from compilediag_harness import process

    monkeypatch.setattr(sys, "orig_argv", ["python", text])
    fields = process._identity()
    line = process._json_line("ProcessStarted", {"t": 0.25, **fields}).encode("ascii")
    fields["argv"] = tuple(fields["argv"])
    assert line == encode(ProcessStarted(t=0.25, **fields))
    assert json.loads(line)["argv"][1] == text


def test_the_wire_version_is_the_wires() -> None:
    """The version `process` writes without importing `wire` is the one `wire` has."""
    from compilediag_harness import wire

    assert wire.WIRE_VERSION == WIRE_VERSION
