"""What an attached process does until torch is imported, and when it is: seen from outside."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from command_line import captured

from compilediag.readers.journal import read_run
from compilediag.runs.supervised.child import make_child_environment
from compilediag_harness.wire import FaultOccurred, ProcessEnded, ProcessStarted


def attached(code: str, run_dir: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Runs code as a Python child of a run whose directory is `run_dir`."""
    base = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    env = make_child_environment(base, str(run_dir))
    return captured(sys.executable, "-c", textwrap.dedent(code), env=env)


def fake_torch(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "torch.py").write_text(textwrap.dedent(text))
    return folder


def test_a_child_without_torch_imports_next_to_nothing(tmp_path: Path) -> None:
    """Neither typing nor dataclasses nor json nor the collectors are loaded: that is what keeps
    a child without torch cheap. The journal has its start and its end."""
    code = "import sys; print(*sorted(sys.modules))"
    done = attached(code, tmp_path)
    plain = captured(sys.executable, "-c", code, check=True)
    added = set(done.stdout.split()) - set(plain.stdout.split())
    allowed = {"__future__", "atexit", "binascii", "errno", "fcntl", "itertools", "_json", "time"}
    ours = {f"compilediag_harness{name}" for name in ("", ".base", ".base.journal", ".process")}
    assert added <= allowed | ours
    assert added >= ours
    (journal,) = read_run(str(tmp_path))
    assert [type(event) for event in journal.events] == [ProcessStarted, ProcessEnded]


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["--password", "swordfish"], {}),
        (["-p", "swordfish"], {}),
        (["--name", "swordfish"], {"DB_PASSWORD": "swordfish"}),
        (["postgres://me:swordfish@h/db"], {}),
        (["hf_swordfish0"], {}),
    ],
)
def test_a_child_without_torch_writes_no_secret(words, variables, tmp_path: Path) -> None:
    """Neither of its command line nor in the exception that ends it."""
    code = "import sys; raise ValueError(f'harmless: password {sys.argv[-1]!r}')"
    subprocess.run(
        [sys.executable, "-c", code, *words],
        env=make_child_environment({**os.environ, **variables}, str(tmp_path)),
        capture_output=True,
        check=False,
    )
    (journal,) = read_run(str(tmp_path))
    started, ended = journal.events
    assert isinstance(started, ProcessStarted)
    assert isinstance(ended, ProcessEnded)
    assert "harmless" in str(ended.failure)
    written = "".join(file.read_text() for file in tmp_path.iterdir())
    assert "swordfish" not in written


def test_the_collectors_are_there_before_torch_runs(tmp_path: Path) -> None:
    """The first line of torch already runs in an armed process; the finder has left."""
    folder = fake_torch(
        tmp_path / "path",
        """
        import sys
        print("compilediag_harness.attach" in sys.modules)
        print([type(f).__name__ for f in sys.meta_path if type(f).__name__ == "TorchFinder"])
        """,
    )
    done = attached("import torch", tmp_path, folder)
    assert (done.stdout, done.stderr) == ("True\n[]\n", "")


def test_a_torch_we_do_not_know_is_a_fault_of_ours_alone(tmp_path: Path) -> None:
    """A module named torch with none of torch's names: the program runs; the fault is recorded."""
    folder = fake_torch(tmp_path / "path", "answer = 42")
    done = attached("import torch; print(torch.answer)", tmp_path, folder)
    assert (done.stdout, done.stderr, done.returncode) == ("42\n", "", 0)
    (journal,) = read_run(str(tmp_path))
    assert any(isinstance(event, FaultOccurred) for event in journal.events)


def test_asking_for_an_absent_torch_changes_nothing(tmp_path: Path) -> None:
    """`find_spec` and a failing import behave as ever, and torch is seen when it appears later."""
    probe = "import sys; print('compilediag_harness.attach' in sys.modules)"
    folder = fake_torch(tmp_path / "path", probe)
    code = f"""
        import sys
        paths, sys.path[:] = list(sys.path), []
        try:
            import torch
        except ModuleNotFoundError as error:
            print(error)
        sys.path[:] = [{str(folder)!r}, *paths]
        import importlib
        importlib.invalidate_caches()
        import torch
    """
    done = attached(code, tmp_path)
    assert (done.stdout, done.stderr) == ("No module named 'torch'\nTrue\n", "")


@pytest.mark.parametrize("missing", ["no/such/folder", "a-file"])
def test_a_run_directory_that_is_gone_is_silent(missing: str, tmp_path: Path) -> None:
    """Nothing can be written: the program notices nothing."""
    (tmp_path / "a-file").touch()
    done = attached("print(1)", tmp_path / missing)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)


def test_the_exception_that_ends_the_process_is_noted(tmp_path: Path) -> None:
    """Named in one line, then its traceback; the program's own hook is called."""
    code = """
        import sys
        def hook(*what): print("hook", what[0].__name__)
        sys.excepthook = hook
        raise KeyError("key\\nwith a line")
    """
    done = attached(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "hook KeyError\n", "")
    (journal,) = read_run(str(tmp_path))
    ended = journal.events[-1]
    assert isinstance(ended, ProcessEnded)
    named, _, trace = ended.failure.partition("\n\n")
    assert named == r"KeyError: 'key\nwith a line'"
    assert trace.startswith("Traceback (most recent call last):")


def test_a_faulty_exception_is_noted_by_its_name(tmp_path: Path) -> None:
    """An exception whose text cannot be made costs its text."""
    code = """
        class Odd(Exception):
            def __str__(self): raise RuntimeError
        raise Odd
    """
    done = attached(code, tmp_path)
    assert done.returncode == 1
    (journal,) = read_run(str(tmp_path))
    ended = journal.events[-1]
    assert isinstance(ended, ProcessEnded)
    assert "Odd" in ended.failure.partition("\n")[0]


def test_a_harness_that_cannot_be_imported_is_told_to_the_parent_alone(tmp_path: Path) -> None:
    """A broken installation: a note in the run directory, nothing on the terminal."""
    root = tmp_path / "root"
    (root / "compilediag_harness/bootstrap").mkdir(parents=True)
    source = Path(make_child_environment({}, "")["PYTHONPATH"]) / "sitecustomize.py"
    (root / "compilediag_harness/bootstrap/sitecustomize.py").write_text(source.read_text())
    (root / "compilediag_harness/__init__.py").touch()
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    bootstrap = str(root / "compilediag_harness/bootstrap")
    env = {**os.environ, "PYTHONPATH": bootstrap, "COMPILEDIAG_RUN_DIR": str(run_dir)}
    done = captured(sys.executable, "-c", "print(1)", env=env)
    assert (done.stdout, done.stderr) == ("1\n", "")
    (note,) = run_dir.iterdir()
    assert note.name.startswith("attach-fault-")
    assert "ImportError" in note.read_text()
