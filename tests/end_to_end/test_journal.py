"""The writer of journals: what reaches the file in every kind of ending."""

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

from harness_alone import HARNESS, python

from compilediag.readers.journal import read_run
from compilediag_harness.wire import ProcessEnded, SpanEnded


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
        end = attached._write_end
        attached._write_end = lambda: (os.kill(os.getpid(), signal.SIGINT), end())
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
