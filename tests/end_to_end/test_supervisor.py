"""`run` as its user meets it: the target behaves as without us, and there is always a receipt."""

import os
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from command_line import captured

from compilediag.errors import EXIT_INTERNAL, EXIT_USAGE, OutputUnwritable, UsageError
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised import Outcome, RunOptions, run
from compilediag.runs.supervised import run as supervisor_run
from compilediag.runs.supervised.child import ExitInfo, start_target

QUIET = RunOptions(live=False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Every test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(text: str, name: str = "x.py") -> str:
    Path(name).write_text(textwrap.dedent(text), encoding="utf-8")
    return name


def receipt_of(outcome: Outcome) -> Receipt:
    assert outcome.receipt is not None, outcome.notes
    return outcome.receipt


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "compilediag", *words]


def plain_and_supervised(*words: str, stdin: bytes = b"", environ=None):
    """The same target twice: `python WORDS` and `compilediag run --quiet WORDS`."""
    environ = {**os.environ, **(environ or {})}
    return [
        subprocess.run([*start, *words], input=stdin, capture_output=True, env=environ, check=False)
        for start in ([sys.executable], command("run", "--quiet"))
    ]


# --- endings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "exit_code", "status", "reason"),
    [
        ("pass", 0, "complete", None),
        ("raise ValueError('no')", 1, "failed", "ValueError: no"),
        ("import sys; sys.exit(3)", 3, "failed", "exit code 3; no Python exception was seen"),
        ("import sys; sys.exit('told')", 1, "failed", "exit code 1; no Python exception was seen"),
        ("import os; os._exit(9)", 9, "failed", "exit code 9; no Python exception was seen"),
        ("import os; os.kill(os.getpid(), 11)", 139, "killed", "killed by SIGSEGV (signal 11)"),
        ("import os; os.kill(os.getpid(), 15)", 143, "killed", "killed by SIGTERM (signal 15)"),
        # Nobody of us sent it: the receipt says so, and what the system kills for.
        ("import os; os.kill(os.getpid(), 9)", 137, "killed", "killed by SIGKILL (signal 9), not"),
        ("import os; os.abort()", 134, "killed", "killed by SIGABRT (signal 6)"),
        ("raise KeyboardInterrupt", 130, "interrupted", "SIGINT (signal 2)"),
        ("def f(:", 1, "failed", "SyntaxError"),
    ],
)
def test_every_ending_keeps_its_exit_code_and_has_a_receipt(code, exit_code, status, reason):
    """Return, exception, exit, `os._exit` and signals: the code of a shell, status, reason."""
    outcome = run([script(code)], QUIET)
    assert outcome.exit_code == exit_code
    receipt = receipt_of(outcome)
    assert receipt.status == status
    failure = receipt.failure
    if reason is None:
        assert failure is None
    else:
        assert reason in str(failure.reason)
    assert Path(outcome.run_dir, "receipt.json").is_file()


def test_the_traceback_is_kept() -> None:
    """The exception of the target is in the receipt with its traceback, at most 8 KiB."""
    outcome = run([script("def f():\n    raise ValueError('x' * 20000)\nf()")], QUIET)
    failure = receipt_of(outcome).failure
    assert len(failure.log_tail.encode()) <= 8192
    assert failure.reason.startswith("ValueError: xxx")


@pytest.fixture
def limit_from_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit begins when the target has made the file "ready", however slow the day."""
    module = sys.modules[supervisor_run.__module__]
    original = module.supervise

    def supervise(child: Any, inbox: Any, witness: Any, *, started: float, **more: Any) -> ExitInfo:
        while not Path("ready").exists() and child.poll() is None:
            time.sleep(0.01)
        return original(child, inbox, witness, started=time.monotonic(), **more)

    monkeypatch.setattr(module, "supervise", supervise)


@pytest.mark.parametrize(
    ("action", "code", "signals"),
    [("SIG_IGN", 137, "SIGTERM and SIGKILL"), ("SIG_DFL", 143, "SIGTERM")],
)
def test_a_time_limit_ends_the_whole_tree(action, code, signals: str, limit_from_ready) -> None:
    """A child that ignores everything but SIGKILL does not outlive the run, whether or not the
    target ends by SIGTERM; the reason names the limit."""
    inner = """
        import os, signal
        [signal.signal(s, signal.SIG_IGN) for s in (2, 15)]
        open("pid", "w").write(str(os.getpid()))
        open("ready", "w")
        signal.pause()
    """
    outer = f"""
        import signal, subprocess
        signal.signal(15, signal.{action})
        subprocess.Popen([{sys.executable!r}, "inner.py"]).wait()
    """
    script(inner, "inner.py")
    outcome = run([script(outer)], RunOptions(live=False, timeout_s=0.1, grace_s=0.1))
    assert (outcome.exit_code, receipt_of(outcome).status) == (code, "killed")
    failure = receipt_of(outcome).failure
    assert failure.reason == f"the time limit of 0.1 s was reached; ended with {signals}"
    pid = int(Path("pid").read_text())
    assert not Path(f"/proc/{pid}").exists() or "zombie" in Path(f"/proc/{pid}/status").read_text()


# --- the same as without us ------------------------------------------------------------------


def test_output_is_byte_for_byte_that_of_a_plain_run() -> None:
    """stdout, stderr, a traceback, the import path and the hooks: equal to `python x.py`."""
    code = """
        import os, sys
        print(sys.argv, sys.path, sys.excepthook is sys.__excepthook__, flush=True)
        print([name for name in sys.modules if name == "sitecustomize"])
        print(os.open(os.devnull, os.O_RDONLY))
        os.write(1, bytes(range(256)))
        sys.stderr.write("to stderr\\n")
        def f(x): return 1 / x
        f(0)
    """
    plain, ours = plain_and_supervised(script(code), "-a", "--", "b c")
    assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)
    assert ours.returncode == plain.returncode
    assert b"ZeroDivisionError" in ours.stderr


@pytest.mark.parametrize("words", [("x.py",), ("-m", "x"), ("-c", "raise KeyboardInterrupt")])
def test_an_interrupted_program_ends_as_python_ends_it(words: tuple[str, ...]) -> None:
    """Python ends itself by SIGINT then: the same with our work at its exit."""
    script("raise KeyboardInterrupt")
    plain = subprocess.run([sys.executable, *words], capture_output=True, check=False)
    expected = 128 - plain.returncode if plain.returncode < 0 else plain.returncode
    assert run(words, QUIET).exit_code == expected


def test_stdin_passes_through() -> None:
    """What is piped into `run` is the target's input, byte for byte."""
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    plain, ours = plain_and_supervised(script(code), stdin=b"abc\x00\xff")
    assert ours.stdout == plain.stdout == b"\xff\x00cba"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("-m", "pack.mod", "-x"), "module"),
        (("-c", "import sys; print(sys.argv, sys.path[0])", "-m", "y"), "code"),
        (("folder", "z"), "folder"),
        (("app.zip",), "zip"),
    ],
)
def test_python_is_started_as_python_starts_it(words: tuple[str, ...], kind: str) -> None:
    """`-m`, `-c`, a folder and a zip file with `__main__`: the same arguments and import path."""
    show = "import sys; print(__name__, sys.argv, sys.path[0])"
    Path("pack").mkdir()
    Path("pack/mod.py").write_text(show)
    Path("folder").mkdir()
    Path("folder/__main__.py").write_text(show)
    with zipfile.ZipFile("app.zip", "w") as archive:
        archive.writestr("__main__.py", show)
    plain, ours = plain_and_supervised(*words)
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, 0)
    assert ours.stdout != b""


def test_a_program_that_starts_python_is_attached_inside() -> None:
    """`bash -c "python …"`: the exit code is bash's, the journal is Python's."""
    code = script("raise SystemExit(4)")
    outcome = run(["bash", "-c", f"'{sys.executable}' {code}; exit $?"], QUIET)
    assert outcome.exit_code == 4
    assert len(list(Path(outcome.run_dir).glob("journal-*.jsonl"))) == 1
    assert outcome.notes == ()


def test_a_shadowed_sitecustomize_runs_and_keeps_its_name(folder: Path) -> None:
    """The user's sitecustomize runs in ours' place: same module, same effects."""
    own = folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.own_site = __file__")
    code = script("import sys, sitecustomize; print(sys.own_site, sitecustomize.__file__)")
    plain, ours = plain_and_supervised(code, environ={"PYTHONPATH": str(own)})
    assert ours.stdout == plain.stdout != b""
    assert ours.stderr == plain.stderr


def test_a_failing_sitecustomize_is_reported_as_python_does(folder: Path, capfd) -> None:
    """Its error is on stderr in Python's own words, and the program runs."""
    own = folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise RuntimeError('broken site')")
    environ = {**os.environ, "PYTHONPATH": str(own)}
    plain = captured(sys.executable, script("print(1)"), env=environ, check=True)
    assert "broken site" in plain.stderr
    run(["x.py"], QUIET, environ)
    assert tuple(capfd.readouterr()) == (plain.stdout, plain.stderr)


def test_modules_of_the_user_are_not_shadowed() -> None:
    """`harness`, `journal`, `process` are names of the user's files, also beside our own."""
    for name in ("harness", "journal", "process", "wire", "bootstrap"):
        Path(f"{name}.py").write_text(f"where = {name!r}")
    code = """
        import bootstrap, harness, journal, process, wire
        print(bootstrap.where, harness.where, journal.where, process.where, wire.where)
    """
    done = subprocess.run(command("run", "--quiet", script(code)), capture_output=True, check=False)
    assert done.stdout == b"bootstrap harness journal process wire\n"


def test_a_child_without_compilediag_installed_is_attached() -> None:
    """The harness comes with the run, not from the child's own packages (`-s -S` apart)."""
    code = f"""
        import subprocess, sys
        names = "['compilediag_harness' in sys.modules, 'compilediag' in sys.modules]"
        subprocess.run([{sys.executable!r}, "-c", "import sys; print(" + names + ")"])
    """
    done = subprocess.run(command("run", "--quiet", script(code)), capture_output=True, check=False)
    assert done.stdout == b"[True, False]\n"


@pytest.mark.parametrize("flag", ["-E", "-I", "-S"])
def test_options_that_keep_us_out_are_named(flag: str) -> None:
    """`python -E x.py`: it runs, the verdict is blind, and a sentence says why."""
    outcome = run([sys.executable, flag, script("print(1)")], QUIET)
    assert outcome.exit_code == 0
    assert receipt_of(outcome).verdict == "blind"
    (note,) = outcome.notes
    assert f"`python {flag}` ignores the environment" in note


def test_a_hidden_option_that_keeps_us_out_is_noticed() -> None:
    """Inside a shell command nobody sees the option, but nobody attached either."""
    outcome = run(["bash", "-c", f"'{sys.executable}' -I -c 'print(1)'"], QUIET)
    assert receipt_of(outcome).verdict == "blind"
    assert "started it with -E, -I" in outcome.notes[0]


# --- what goes wrong -------------------------------------------------------------------------


def test_torch_that_is_missing_is_said_in_a_sentence(folder: Path) -> None:
    """The exit code is Python's; the reason names the interpreter to install it in."""
    code = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    outcome = run([script(code)], QUIET)
    assert outcome.exit_code == 1
    failure = receipt_of(outcome).failure
    assert str(failure.reason).startswith("torch is not installed for ")


def test_a_used_output_directory_is_refused() -> None:
    """A second run into the same directory: one sentence, nothing started, the files intact."""
    options = RunOptions(output="out", live=False)
    first = run([script("open('count', 'a').write('x')")], options)
    before = Path("out/receipt.json").read_bytes()
    with pytest.raises(UsageError, match="out is already used by a run"):
        run(["x.py"], options)
    assert Path("out/receipt.json").read_bytes() == before
    assert Path("count").read_text() == "x"
    assert first.receipt_path is not None


def test_a_directory_with_files_of_the_user_is_refused() -> None:
    """`--output .` does not mix our files with the user's."""
    script("pass")
    with pytest.raises(UsageError, match="not empty"):
        run(["x.py"], RunOptions(output=".", live=False))


def test_an_empty_output_directory_is_used() -> None:
    """A directory made beforehand is fine; `latest` stays away from it."""
    Path("out").mkdir()
    outcome = run([script("pass")], RunOptions(output="out", live=False))
    assert outcome.run_dir == os.path.abspath("out")
    assert not Path(".compilediag").exists()


@pytest.mark.parametrize("output", ["x.py/below", "/proc/compilediag"])
def test_an_unwritable_output_directory_stops_before_the_target(output: str) -> None:
    """Also for root: below a file, and where the kernel makes the files."""
    with pytest.raises(OutputUnwritable, match="cannot be written") as caught:
        run([script("open('ran', 'w')")], RunOptions(output=output, live=False))
    assert caught.value.exit_code == EXIT_USAGE
    assert not Path("ran").exists()


def test_a_receipt_that_cannot_be_written_is_said(monkeypatch) -> None:
    """The target's exit code stays, the sentence names the file."""
    code = script(
        """
        import os, pathlib
        folder = os.environ["COMPILEDIAG_RUN_DIR"]
        os.mkdir(os.path.join(folder, "receipt.json"))
        raise SystemExit(6)
        """
    )
    outcome = run([code], QUIET)
    assert outcome.exit_code == 6
    assert outcome.receipt_path is None
    assert "receipt.json" in outcome.notes[0]
    assert "The target's run is not affected." in outcome.notes[0]


@pytest.mark.parametrize(("code", "exit_code"), [(0, EXIT_INTERNAL), (6, 6)])
def test_a_fault_of_ours_never_hides_the_targets_code(code: int, exit_code: int, monkeypatch):
    """70 only where the target itself succeeded; the sentence says whose fault it is."""

    def broken(*_):
        raise RuntimeError("bug")

    module = sys.modules[supervisor_run.__module__]
    monkeypatch.setattr(module, "assemble", broken)
    outcome = run([script(f"raise SystemExit({code})")], QUIET)
    assert outcome.exit_code == exit_code
    assert outcome.receipt is None
    assert "a fault of compilediag itself, not of the target: RuntimeError: bug" in outcome.notes[0]


# --- the record ------------------------------------------------------------------------------


def test_latest_names_the_newest_run() -> None:
    """`show` without argument finds it."""
    run([script("pass")], QUIET)
    second = run(["x.py"], QUIET)
    assert os.path.realpath(".compilediag/latest") == os.path.realpath(second.run_dir)
    assert Path(".compilediag/.gitignore").read_text().splitlines()[-1] == "*"


def test_provenance_names_the_commit_and_the_script() -> None:
    """In a repository: commit, branch, a changed file, and the digest of what ran."""
    import hashlib

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], check=True)

    script("pass")
    git("init", "-q", "-b", "trunk")
    git("add", "x.py")
    git("commit", "-q", "-m", "First")
    script("print(2)")
    provenance = receipt_of(run(["x.py"], QUIET)).header.provenance
    assert provenance.git_branch == "trunk"
    assert provenance.git_dirty is True
    assert provenance.git_message_short == "First"
    digest = hashlib.sha256(Path("x.py").read_bytes()).hexdigest()
    assert dict(provenance.source_sha256) == {"x.py": digest}


def test_without_a_repository_the_environment_may_tell(monkeypatch) -> None:
    """A container without .git: the variables say what ran; else null."""
    from compilediag.runs.checkout import read_provenance

    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(Path.cwd().parent))
    assert read_provenance(".", {}, {}).git_commit is None
    told = read_provenance(".", {}, {"COMPILEDIAG_GIT_COMMIT": "abc"})
    assert (told.git_commit, told.source) == ("abc", "environment")


def test_a_program_the_system_refuses_is_a_usage_error(tmp_path: Path) -> None:
    """A script without an interpreter line: the system's words, nothing started."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x00\x01")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match="cannot be started: Exec format error"):
        start_target([str(broken)], os.environ)
