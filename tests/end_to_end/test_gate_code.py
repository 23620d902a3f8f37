"""A receipt judges the code it is of: in one job, after a commit, in another clone, without git."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compilediag.cli import main
from compilediag.receipt.file import read_receipt, write_receipt

pytestmark = pytest.mark.usefixtures("forked")

PROGRAM = """\
import torch
from package import model

compiled = torch.compile(model.add, backend="eager")
for _ in range(3):
    compiled(torch.ones(3))
"""
MODEL = "def add(x):\n    return x + 1\n"


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e@e", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def run(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "compilediag", "run", "--quiet", "--no-live", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def assert_judged(capsys: Any, *words: str) -> None:
    code, printed = gate(capsys, *words)
    assert code == 0, printed


def gate(capsys: Any, *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["gate", *words])
    printed = capsys.readouterr()
    return code, " ".join((printed.out + printed.err).split())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit, its program in a folder, one run and its baseline."""
    root = tmp_path_factory.mktemp("ran") / "repository"
    work = root / "examples"
    (work / "package").mkdir(parents=True)
    (work / "conf").mkdir()
    (work / "package" / "__init__.py").touch()
    for name, text in {
        "train.py": PROGRAM,
        "package/model.py": MODEL,
        "conf/small.yaml": "width: 8\n",
        "README.md": "An example.\n",
        "test_train.py": "def test(): ...\n",
    }.items():
        (work / name).write_text(text, encoding="utf-8")
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "One")
    run(work, "train.py")
    here = Path.cwd()
    os.chdir(work)
    try:
        assert main(["gate", "--update"]) == 0
    finally:
        os.chdir(here)
    return root


@pytest.fixture
def copied(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same under another name; the working directory is the program's."""
    for name in ("GITHUB_ACTIONS", "GITHUB_SHA", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "400")
    root = tmp_path / "renamed"
    shutil.copytree(ran, root, symlinks=True)
    monkeypatch.chdir(root / "examples")
    return root


def test_the_receipt_has_what_the_run_imported(ran: Path) -> None:
    """Its script and its package, by paths from its working directory; nothing else."""
    code = read_receipt(ran / "examples").header.provenance
    assert set(code.source_sha256) == {"train.py", "package/__init__.py", "package/model.py"}
    assert (code.folder, code.imports_complete, code.source) == ("examples", True, "git")


def test_one_job_runs_and_gates(copied: Path, capsys: Any) -> None:
    """Also from the root, with a dirty tree, and in a checkout of another name."""
    assert_judged(capsys)
    os.chdir(copied)
    lock = "examples/compilediag.lock.json"
    assert_judged(capsys, "examples", "--baseline", lock)


@pytest.mark.parametrize("name", ["package/model.py", "conf/small.yaml", "train.py"])
def test_old_evidence_is_refused_before_and_after_the_commit(copied, name, capsys: Any) -> None:
    """What a pre-commit and a pre-push hook meet; a run makes it good again."""
    with open(name, "a", encoding="utf-8") as file:
        file.write("# more\n")
    for committed in (False, True):
        if committed:
            git(copied, "commit", "--quiet", "--all", "--message", "More")
        code, printed = gate(capsys)
        assert code == 2
        assert f"the receipt is of other code: {name} has changed since the run" in printed
        assert printed.endswith("next: compilediag run train.py")
        assert gate(capsys, "--update")[0] == 2
    code, printed = gate(capsys, "--any-code")
    assert (code, f"{name} has changed since the run" in printed) == (0, True)
    run(copied / "examples", "train.py")
    assert_judged(capsys)


def test_a_dirty_run_that_is_committed_as_it_was_is_judged(copied: Path, capsys: Any) -> None:
    """The digests say that the same code ran, though its commit is another."""
    Path("package/model.py").write_text(MODEL + "# more\n", encoding="utf-8")
    Path("conf/small.yaml").write_text("width: 9\n", encoding="utf-8")
    run(copied / "examples", "train.py")
    git(copied, "add", ".")
    git(copied, "commit", "--quiet", "--message", "More")
    assert_judged(capsys)
    git(copied, "checkout", "--quiet", "HEAD~1", "--", "examples/conf/small.yaml")
    assert "conf/small.yaml has changed" in gate(capsys)[1]


def test_what_the_program_does_not_read_may_change(copied: Path, capsys: Any) -> None:
    """Documents, and source that it did not import; committed or not."""
    for name in ("README.md", "test_train.py"):
        Path(name).write_text("# more\n", encoding="utf-8")
    (copied / "elsewhere.yaml").touch()
    git(copied, "add", ".")
    assert_judged(capsys)
    git(copied, "commit", "--quiet", "--message", "More")
    assert_judged(capsys)
    for name in ("test_train.py", "../elsewhere.yaml"):  # with changes when the run begins, too
        Path(name).write_text("# dirty\n", encoding="utf-8")
    run(copied / "examples", "train.py")
    for name in ("test_train.py", "../elsewhere.yaml"):
        Path(name).write_text("# dirtier\n", encoding="utf-8")
    assert_judged(capsys)


def test_an_artifact_of_another_commit_is_refused_in_a_shallow_clone(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The clone does not have the commit of the receipt, so that nothing can be looked up."""
    git(copied, "add", ".")
    git(copied, "commit", "--quiet", "--message", "Baseline")
    git(copied, "commit", "--quiet", "--allow-empty", "--message", "Two")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{copied}", "clone")
    monkeypatch.chdir(tmp_path / "clone" / "examples")
    receipt = str(copied / "examples")
    code, printed = gate(capsys, receipt)
    assert code == 2
    assert "what differs between them cannot be looked up here" in printed
    assert_judged(capsys, receipt, "--any-code")


def test_without_git_the_digests_decide(copied: Path, capsys: Any) -> None:
    """A container that ships no repository."""
    shutil.rmtree(copied / ".git")
    assert_judged(capsys)
    Path("package/model.py").write_text("", encoding="utf-8")
    assert gate(capsys)[0] == 2


def test_a_source_file_written_during_the_run_is_refused(copied: Path, capsys: Any) -> None:
    """Which of its versions ran is not known."""
    Path("train.py").write_text(
        PROGRAM + "open('package/model.py', 'a').write('# later\\n')\n", encoding="utf-8"
    )
    run(copied / "examples", "train.py")
    code, printed = gate(capsys)
    assert code == 2
    assert "package/model.py was written while the run went on" in printed


def test_a_commit_is_no_option_of_git(copied: Path, capsys: Any) -> None:
    """A receipt from elsewhere must not have git write a file."""
    made = read_receipt(copied / "examples")
    code = replace(made.header.provenance, git_commit="--output=written")
    write_receipt(replace(made, header=replace(made.header, provenance=code)), "hostile.json")
    assert gate(capsys, "hostile.json")[0] == 2
    assert not list(copied.rglob("written"))


def test_what_a_change_allows_itself_is_shown(copied: Path, capsys: Any) -> None:
    """`--base` compares the baseline with that of the base branch, whatever is fetched."""
    git(copied, "add", ".")
    git(copied, "commit", "--quiet", "--message", "Baseline")
    git(copied, "switch", "--quiet", "--create", "change")
    text = PROGRAM.replace("range(3)", "range(3, 6)").replace("ones(3)", "ones(_)")
    Path("train.py").write_text(text, encoding="utf-8")
    run(copied / "examples", "train.py")
    assert_judged(capsys, "--update", "--reason", "three sizes")
    code, printed = gate(capsys, "--base", "main")
    assert code == 0
    assert "this change itself allows 1 thing that main does not: CD105 x 0 → 1" in printed
    assert "(reason: three sizes)" in printed
    assert "this change itself" in gate(capsys, "--base", "main", "--format", "md")[1]
    assert "this change itself" not in gate(capsys)[1]
    code, printed = gate(capsys, "--base", "origin/main")
    assert code == 2
    assert "git has no 'origin/main' here" in printed
