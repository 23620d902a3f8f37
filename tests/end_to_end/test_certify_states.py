"""The two states that a user names: their sources, and what is said of all else that differs."""

import hashlib
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from screens import stored

from compilediag.errors import UsageError
from compilediag.receipt.file import encode_receipt
from compilediag.receipt.locate import RUNS_FOLDER
from compilediag.runs.certify.options import CertifyOptions, parse_setting
from compilediag.runs.certify.recorded import Recording, find_recorded_run
from compilediag.runs.certify.states import States, select_states

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """A repository with one commit, which is the working directory."""

    def run_git(*arguments: str) -> str:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    folder = tmp_path / "repo"
    (folder / "package").mkdir(parents=True)
    monkeypatch.chdir(folder)
    run_git("init", "-q", ".")
    Path("train.py").write_text("x = 1\n")
    Path("package/old.py").write_text("y = 1\n")
    Path("settings.yaml").write_text("a: 1\n")
    Path(".gitignore").write_text("data.bin\n.compilediag\n")
    run_git("add", "-A")
    run_git("commit", "-qm", "one")
    return run_git


def select(**named: object) -> States:
    return select_states(CertifyOptions(target=("train.py",), **named))  # type: ignore[arg-type]


def read(sources: Mapping[str, bytes]) -> dict[str, str]:
    here = Path.cwd()
    return {str(Path(path).relative_to(here)): text.decode() for path, text in sources.items()}


def test_a_commit_is_the_old_state(git: Git) -> None:
    git("mv", "package/old.py", "package/new.py")
    Path("train.py").write_text("x = 2\n")
    states = select(base="HEAD")
    assert read(states.before) == {"train.py": "x = 1\n", "package/old.py": "y = 1\n"}
    assert read(states.after) == {"train.py": "x = 2\n", "package/new.py": "y = 1\n"}
    changes, absent = states.lay_over(states.before)
    assert [(Path(change.file).name, bool(change.sha256), change.text) for change in changes] == [
        ("old.py", False, "y = 1\n"),
        ("train.py", True, "x = 1\n"),
    ]
    assert [Path(path).name for path in absent] == ["new.py"]
    assert states.lay_over(states.after) == ((), ())
    assert states.missing == ()
    # Nothing was written.
    assert Path("train.py").read_text() == "x = 2\n"


def test_the_last_commit_is_the_old_state_where_nothing_was_recorded(git: Git) -> None:
    Path("train.py").write_text("x = 2\n")
    states = select()
    assert states.base.startswith("HEAD")
    assert read(states.before)["train.py"] == "x = 1\n"


def test_untracked_files_are_in_both_states_or_a_part_of_the_change(git: Git) -> None:
    Path("helper.py").write_text("z = 1\n")
    states = select(base="HEAD")
    assert "helper.py" in read(states.before)
    assert "helper.py" in states.notes[0]
    assert "--with-untracked" in states.notes[0]
    states = select(base="HEAD", with_untracked=True)
    assert "helper.py" not in read(states.before)
    assert "helper.py" in read(states.after)


def test_a_program_that_is_to_run_too_is_in_both_states(git: Git) -> None:
    """Whoever edits writes it beside the edit, after the run was recorded."""
    Path("check.py").write_text("c = 1\n")
    states = select(base="HEAD", with_untracked=True, also=(("check.py", "3"),))
    assert read(states.before)["check.py"] == read(states.after)["check.py"] == "c = 1\n"
    assert "check.py" not in read(select(base="HEAD", with_untracked=True).before)


def test_other_files_that_differ_are_named(git: Git) -> None:
    Path("settings.yaml").write_text("a: 2\n")
    Path("data.bin").write_text("ignored")
    Path("notes.md").write_text("text")
    git("add", "-A")
    assert select(base="HEAD").missing == (
        "settings.yaml differs, and is read as it is in both states",
    )


def test_a_patch_is_applied_to_copies(git: Git) -> None:
    git("mv", "package/old.py", "package/new.py")
    Path("train.py").unlink()
    Path("made.py").write_text("n = 1\n")
    git("add", "-A")
    Path("../change.diff").write_text(git("diff", "--cached", "-M"))
    git("reset", "--hard", "-q")
    states = select(patch="../change.diff")
    assert read(states.after) == {"package/new.py": "y = 1\n", "made.py": "n = 1\n"}
    assert read(states.before) == {"train.py": "x = 1\n", "package/old.py": "y = 1\n"}
    assert states.base == "the files as they are"
    assert not Path("made.py").exists()


def test_a_patch_needs_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("x = 1\n")
    Path("p.diff").write_text("--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n")
    assert read(select(patch="p.diff").after) == {"train.py": "x = 2\n"}
    Path("train.py").write_text("x = 3\n")
    with pytest.raises(UsageError, match=r"p\.diff does not apply: .*train\.py"):
        select(patch="p.diff")
    Path("other.diff").write_text("nothing")
    with pytest.raises(UsageError, match=r"does not apply"):
        select(patch="other.diff")


def test_another_folder_is_laid_over_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, texts in {"old": ("x = 1\n", "a"), "new": ("x = 2\n", "b")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(texts[0])
        (tmp_path / name / "table.csv").write_text(texts[1])
    (tmp_path / "old" / "gone.py").write_text("g = 1\n")
    (tmp_path / "new" / "made.py").write_text("m = 1\n")
    monkeypatch.chdir(tmp_path / "new")
    states = select(against="../old")
    assert read(states.before) == {"train.py": "x = 1\n", "gone.py": "g = 1\n"}
    assert read(states.after) == {"train.py": "x = 2\n", "made.py": "m = 1\n"}
    assert states.missing[0].startswith("table.csv differs")


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({}, "nothing to compare with.*run --record train.py"),
        ({"base": "main"}, "in no git repository"),
        ({"against": "nowhere"}, "there is no such folder"),
        ({"patch": "nowhere.diff"}, "there is no such file"),
        ({"base": "main", "against": "."}, "leave one of them out"),
    ],
)
def test_a_state_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: dict[str, object], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        select(**named)


def test_a_commit_that_does_not_exist(git: Git) -> None:
    for wrong in ("no-such-branch", "--output=x"):
        with pytest.raises(UsageError, match="git has no"):
            select(base=wrong)


def test_settings() -> None:
    change = parse_setting("torch._dynamo.config.recompile_limit=16")
    assert (change.module, change.name, change.value) == (
        "torch._dynamo.config",
        "recompile_limit",
        16,
    )
    for wrong in ("recompile_limit=16", "torch._dynamo.config.recompile_limit", "torch.x=[1]"):
        with pytest.raises(UsageError, match="--config"):
            parse_setting(wrong)


def test_the_base_is_the_newest_recorded_run_that_ended_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later one that failed may be a try of the edit; without another it is the base."""
    monkeypatch.chdir(tmp_path)
    for name, status in {"1-a": "failed", "2-b": "complete", "3-c": "failed"}.items():
        folder = tmp_path / RUNS_FOLDER / name
        folder.mkdir(parents=True)
        receipt = msgspec.structs.replace(stored("clean"), status=status)
        (folder / "receipt.json").write_bytes(encode_receipt(receipt))
        recording = Recording(
            command=hashlib.sha256(b"train.py").hexdigest(),
            folder=str(tmp_path),
            started_unix=1.0,
            ended_unix=2.0,
            seed=0,
            hash_seed="0",
            variables={},
            steps=None,
        )
        (folder / "recording.json").write_bytes(msgspec.json.encode(recording))
    found = find_recorded_run(["train.py"])
    assert found is not None
    assert found.name == "2-b"
    (tmp_path / RUNS_FOLDER / "2-b" / "recording.json").unlink()
    found = find_recorded_run(["train.py"])
    assert found is not None
    assert found.name == "3-c"
