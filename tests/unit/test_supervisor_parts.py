"""The parts of the supervisor that need no child: target, timetable, environment, ending."""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from ended_runs import ended, journal

from compilediag.errors import UsageError
from compilediag.readers.journal import ProcessJournal
from compilediag.runs.run_directory import make_run_dir
from compilediag.runs.supervised.assemble import (
    describe_attachment,
    infer_exit_status,
    select_recorded_variables,
)
from compilediag.runs.supervised.child import BOOTSTRAP, make_child_environment
from compilediag.runs.supervised.run import provide_caches
from compilediag.runs.supervised.signals import KillSchedule, SignalInbox
from compilediag.runs.supervised.target import Target, parse_target
from compilediag_harness.base.process_options import ProcessOptions
from compilediag_harness.wire import VaryingEnded

SCRIPT = Target("script", ("python", "x.py"), "x", script="x.py")
VARIED = ProcessJournal("10", (VaryingEnded(1.0, 1.0, (), interrupted=True),))
LIMITED = ProcessJournal("10", (VaryingEnded(1.0, 1.0, (), timed_out=True),))
"""Of a program that was over when Ctrl-C came."""
PROGRAM = Target("program", ("torchrun", "x.py"), "torchrun")


# --- target ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kind", "command", "name"),
    [
        (("x.py", "-m"), "script", (sys.executable, "x.py", "-m"), "x"),
        (("-m", "a.b", "--c"), "module", (sys.executable, "-m", "a.b", "--c"), "a.b"),
        (("-c", "1", "2"), "code", (sys.executable, "-c", "1", "2"), "code"),
        (("-",), "stdin", (sys.executable, "-"), "stdin"),
        (("bash", "-c", "ls"), "program", ("bash", "-c", "ls"), "bash"),
        (("train",), "script", (sys.executable, "train"), "train"),
        (("job.sh", "a"), "program", ("./job.sh", "a"), "job.sh"),
    ],
)
def test_targets(words, kind, command, name, tmp_path: Path, monkeypatch) -> None:
    """Each way to name a target gives the command that `python` or the shell would run."""
    monkeypatch.chdir(tmp_path)
    Path("x.py").touch()
    Path("train").write_text("print(1)\n")
    Path("job.sh").write_text("#!/bin/sh\n")
    Path("job.sh").chmod(0o755)
    target = parse_target(words)
    assert (target.kind, target.command, target.name) == (kind, command, name)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python a.py --lr 1", "a"),
        ("python3.11 jobs/a.py", "a"),
        ("/usr/bin/python3 a.py", "a"),
        ("python -u -X dev -W error a.py", "a"),
        ("python -Xdev -u a.py b.py", "a"),
        ("python -m pkg.train --lr 1", "pkg.train"),
        ("python -um pkg.train", "pkg.train"),
        ("python -c pass", "code"),
        ("python -", "stdin"),
        ("python", "python"),
        ("python -m torch.distributed.run --nproc-per-node 2 a.py", "a"),
        ("-m torch.distributed.run --nproc-per-node 2 a.py", "a"),
        ("env OMP_NUM_THREADS=1 python -u a.py", "a"),
        ("nice -n 5 numactl -m 0 python3 a.py", "a"),
        ("timeout 60 torchrun --nproc-per-node 2 a.py --config other.py", "a"),
        ("torchrun --nproc-per-node 2 -m pkg.train", "pkg.train"),
        ("torchrun --standalone train", "train"),
        ("torchrun --no-python ./prog", "torchrun"),
        ("accelerate launch --num_processes 2 a.py", "a"),
        ("deepspeed --module pkg.train", "pkg.train"),
        ("uv run a.py", "a"),
        ("uv run --with torch python -m pkg.train", "pkg.train"),
        ("uv run torchrun a.py", "a"),
        ("conda run -n env python a.py", "a"),
        ("bash job.sh a.py", "job.sh"),
        ("bash -lc 'cd /tmp && python -u a.py; echo done'", "a"),
        ("bash -c 'echo \"'", "bash"),
        ("make a.py", "make"),
    ],
)
def test_a_lane_is_named_after_the_script(line, name, tmp_path: Path, monkeypatch) -> None:
    """However it is launched; after the program where the command line does not show the script."""
    monkeypatch.chdir(tmp_path)
    Path("train").write_text("print(1)\n")
    monkeypatch.setattr("shutil.which", lambda program: f"/bin/{program}")
    assert parse_target(shlex.split(line)).name == name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no.py",), "there is no file named 'no.py'"),
        (("./no",), "there is no file named './no'"),
        (("no-such-program-at-all",), "there is no file or program named"),
        (("folder",), "folder without __main__.py"),
        (("data.json",), "neither a Python program nor an executable file"),
        (("notes",), "neither a Python program nor an executable file"),
        (("-m",), "-m needs a module name"),
        (("-c",), "-c needs code"),
        (("--stepz", "x.py"), "there is no option --stepz"),
    ],
)
def test_what_cannot_be_started_is_said(words, message, tmp_path: Path, monkeypatch) -> None:
    """One sentence a mistake, and the usage exit code."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("data.json").write_text("{}")
    Path("notes").write_text("this is no program")
    with pytest.raises(UsageError, match=message) as caught:
        parse_target(words)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-E", "x.py"), "-E"),
        (("-uI", "x.py"), "-I"),
        (("-X", "dev", "-S", "x.py"), "-S"),
        (("-Xdev", "-W", "error", "-BE", "x.py"), "-E"),
        (("x.py", "-E"), None),
        (("-m", "mod", "-E"), None),
        (("-c", "1", "-I"), None),
        (("-W", "-E", "x.py"), None),
    ],
)
def test_options_that_keep_us_out(arguments, expected) -> None:
    """The interpreter's own options are kept apart from values and from the program's arguments."""
    assert parse_target((sys.executable, *arguments)).defeats == expected


def test_a_name_is_harmless_in_a_path(tmp_path: Path, monkeypatch) -> None:
    """A hostile file name gives no path of its own."""
    monkeypatch.chdir(tmp_path)
    name = "..\x1b[31m $(rm) \n.py"
    Path(name).touch()
    assert parse_target((name,)).name == "31m-rm"


# --- the timetable ---------------------------------------------------------------------------


def test_a_second_ctrl_c_escalates_by_the_clock() -> None:
    """TERM and KILL in thirds of the grace, both to who looks late; more Ctrl-C change nothing. A
    time limit is TERM at once, KILL after the grace."""
    plan = KillSchedule(grace_s=4.5)
    assert (plan.pop_due(0.0), plan.next_at) == ([], None)
    plan.force(100.0)
    assert plan.pop_due(102.9) == []
    assert plan.next_at == 103.0
    plan.force(102.0)
    assert plan.pop_due(103.0) == [signal.SIGTERM]
    assert plan.pop_due(104.4) == []
    assert plan.pop_due(104.5) == [signal.SIGKILL]
    assert (plan.pop_due(999.0), plan.next_at) == ([], None)
    assert plan.sent == [signal.SIGTERM, signal.SIGKILL]
    late, limited = KillSchedule(grace_s=3.0), KillSchedule(grace_s=2.0)
    late.force(0.0)
    assert late.pop_due(3.5) == [signal.SIGTERM, signal.SIGKILL]
    limited.end_on_timeout(10.0)
    assert [limited.pop_due(at) for at in (10.0, 12.0)] == [[signal.SIGTERM], [signal.SIGKILL]]


def test_signals_are_messages_and_handlers_come_back() -> None:
    """Inside, a signal is noted; outside, everything is as before; ignored ones stay ignored."""
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalInbox() as inbox:
            os.kill(os.getpid(), signal.SIGTERM)
            assert inbox.wait_for_signals(None) == [signal.SIGTERM]
            assert inbox.wait_for_signals(0.0) == []
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert signal.getsignal(signal.SIGTERM) == before


# --- the environment -------------------------------------------------------------------------


def test_the_environment_of_the_child() -> None:
    """Ours first, the user's entries after it in their order, nothing else changed: an unset or
    empty PYTHONPATH does not put the current folder on the path, and a trace that the user asked
    torch for stays where it is."""
    base = {"PYTHONPATH": "/a::/b", "TORCH_LOGS": "graph_breaks", "X": "1"}
    child = make_child_environment(base, "/run", ProcessOptions(steps=5), trace_dir="/run/t")
    assert child["PYTHONPATH"] == f"{BOOTSTRAP}:/a::/b"
    assert child["COMPILEDIAG_RUN_DIR"] == "/run"
    assert child["COMPILEDIAG_OPTIONS"] == '{"steps": 5}'
    assert child["TORCH_TRACE"] == "/run/t"
    assert (child["TORCH_LOGS"], child["X"]) == ("graph_breaks", "1")
    for paths in ({}, {"PYTHONPATH": ""}):
        own = make_child_environment({**paths, "TORCH_TRACE": "/mine"}, "/run", trace_dir="/run/t")
        assert (own["PYTHONPATH"], own["TORCH_TRACE"]) == (BOOTSTRAP, "/mine")


def test_a_run_in_a_run_attaches_once() -> None:
    """The inner run's directory and one entry of ours."""
    outer = make_child_environment({"PYTHONPATH": "/a"}, "/outer", ProcessOptions(steps=3))
    inner = make_child_environment(outer, "/inner")
    assert inner["PYTHONPATH"] == f"{BOOTSTRAP}:/a"
    assert inner["COMPILEDIAG_RUN_DIR"] == "/inner"
    assert "COMPILEDIAG_OPTIONS" not in inner


# --- the output directory --------------------------------------------------------------------


def test_runs_of_one_second_do_not_meet(tmp_path: Path, monkeypatch) -> None:
    """Two runs with the same name, second and process have two folders."""
    monkeypatch.chdir(tmp_path)
    first = make_run_dir(None, "x", now=0.0, pid=7)
    second = make_run_dir(None, "x", now=0.0, pid=7)
    assert os.path.basename(first) == "19700101T000000Z-x-7"
    assert os.path.basename(second) == "19700101T000000Z-x-7-2"


# --- the ending ------------------------------------------------------------------------------


def test_the_first_worker_to_fail_is_the_reason() -> None:
    """A launcher's exception follows from a worker's: the earliest end is the reason."""
    journals = [
        journal(10, "ChildFailedError: rank 1\n\ntrace 0", t=9.0),
        journal(11, "RuntimeError: lost peer\n\ntrace 1", t=6.0, start="02"),
        journal(12, "ValueError: root\n\ntrace 2", t=5.0, start="02"),
    ]
    ending = infer_exit_status(ended(1), PROGRAM, journals)
    assert (ending.status, ending.reason, ending.log_tail) == (
        "failed",
        "ValueError: root",
        "trace 2",
    )


def test_a_fork_goes_on_with_the_clock_of_its_parent() -> None:
    """Forked at 40 s and ended at 43, it is earlier than a process that began then and ended at 6:
    its clock does not begin at 0."""
    journals = [
        journal(11, "RuntimeError: follows\n\ntrace 1", t=6.0, start="40"),
        journal(12, "ValueError: root\n\ntrace 2", t=43.0, start="40", began=40.0),
    ]
    assert infer_exit_status(ended(1), PROGRAM, journals).reason == "ValueError: root"


@pytest.mark.parametrize(
    ("how", "journals", "status", "reason"),
    [
        (ended(-11), [], "killed", "killed by SIGSEGV (signal 11)"),
        (ended(137), [], "failed", "exit code 137, which a shell uses for SIGKILL (signal 9)"),
        (ended(0, interrupts=1), [], "interrupted", "Ctrl-C"),
        (ended(0, interrupts=1), [VARIED], "complete", None),
        (ended(0, timed_out=True), [LIMITED], "complete", None),
        (ended(-2), [], "interrupted", "SIGINT (signal 2)"),
        (ended(0), [journal(10, "ValueError: handled\n\n")], "complete", None),
        (
            ended(1),
            [journal(11, "OSError: helper\n\n", t=0.1), journal(10, "ValueError: own\n\ntrace")],
            "failed",
            "ValueError: own",
        ),
    ],
)
def test_endings_of_a_script(how, journals, status, reason) -> None:
    """Signals by name; a shell's spelling of one is explained. An exception was handled where the
    exit code is 0, and the script's own comes before that of a helper that failed earlier."""
    ending = infer_exit_status(how, SCRIPT, journals)
    assert (ending.status, ending.reason) == (status, reason)
    assert ending.log_tail == ("trace" if reason == "ValueError: own" else None)
    lost = infer_exit_status(how, SCRIPT, journals, lost=True)
    assert lost.status == ("partial" if status == "complete" else status)


def test_only_listed_variables_are_recorded() -> None:
    """What changes torch is kept; everything else, tokens above all, is not."""
    reported = select_recorded_variables(
        {"TORCH_LOGS": "x", "RANK": "0", "HF_TOKEN": "t", "HOME": "/h", "PATH": "/b"}
    )
    assert reported == {"TORCH_LOGS": "x", "RANK": "0"}


def test_a_torch_logs_word_is_explained() -> None:
    """torch's page of words becomes one sentence with the wrong one."""
    raised = (
        "ValueError: Invalid log settings: recompile, must be a comma separated list of fully "
        "qualified module names\n\ntrace"
    )
    ending = infer_exit_status(ended(1), SCRIPT, [journal(10, raised)])
    assert ending.reason.startswith("torch refused TORCH_LOGS because of 'recompile'")


def test_notes_name_old_torch_and_faults() -> None:
    """One sentence each."""
    notes = describe_attachment(SCRIPT, [journal(1, None)], ["2.6.0+cpu", "2.13.0"], ["E: x"])
    assert notes == [
        "compilediag could not attach to a process: E: x",
        "torch 2.6.0+cpu is older than 2.7: what was counted may be wrong; use a newer torch",
    ]


def test_caches_are_read_and_not_written_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what they hold all but profiles of sizes, which decide what is compiled, and locks."""
    there = tmp_path / "there"
    for name in ("fxgraph/ab/entry", "ab/cabc.py", "ab/c.cpp", "dynamo/profile", "locks/x.lock"):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_text(name)
    before = {path for path in there.rglob("*") if path.is_file()}
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(there)}
    with provide_caches("linked", environ) as own:
        here = Path(own["TORCHINDUCTOR_CACHE_DIR"])
        found = {str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()}
        assert found == {"fxgraph/ab/entry", "ab/cabc.py"}
        (here / "ab" / "new.py").write_text("compiled")
        (here / "ab" / "cabc.py").unlink()
    assert {path for path in there.rglob("*") if path.is_file()} == before
    assert not here.exists()
    with provide_caches("empty", environ) as own:
        assert not Path(own["TORCHINDUCTOR_CACHE_DIR"]).exists()
    with provide_caches("kept", environ) as own:
        assert own == {}
