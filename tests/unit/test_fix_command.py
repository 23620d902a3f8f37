"""The command line of `fix`: what it says of input that it cannot use."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.cli import main
from compilediag.commands import fix as command
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import link_latest
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.fix import sources
from tests.unit.test_fix_campaign import BEFORE

CampaignCalls = list[Any]


@pytest.fixture
def latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")
    save(tmp_path, of("train.py", "--lr", "1"))
    return tmp_path


def of(*words: str) -> Receipt:
    header = BEFORE.header
    run = msgspec.structs.replace(header.run, argv_redacted=words)
    digest = hashlib.sha256(b"pass\n").hexdigest()
    provenance = msgspec.structs.replace(header.provenance, source_sha256={"train.py": digest})
    return msgspec.structs.replace(
        BEFORE, header=msgspec.structs.replace(header, run=run, provenance=provenance)
    )


def save(folder: Path, receipt: Receipt) -> None:
    run = folder / ".compilediag" / "20260101T000000Z-train-1"
    write_receipt(receipt, run / "receipt.json")
    link_latest(run)


@pytest.fixture
def campaigns(monkeypatch: pytest.MonkeyPatch) -> CampaignCalls:
    """The campaigns that were begun; none of them runs anything."""
    begun: CampaignCalls = []

    def run_campaign(campaign: Any) -> tuple[()]:
        begun.append(campaign)
        return ()

    monkeypatch.setattr(command, "run_campaign", run_campaign)
    monkeypatch.setattr(command, "find_recorded_run", lambda words: "recorded")
    return begun


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("fix", "add --yes if nobody can be asked"),
        ("fix train.py", "add --yes if nobody can be asked"),
        ("fix 7 --yes", "has findings 1 to 2, and no 7"),
        ("fix --budget soon", "--budget must be a time such as 90s, 10m or 1h, not 'soon'"),
        ("fix --budget 0s", "--budget must be a time"),
        ("fix --env no/such/folder", "names no file in an existing folder"),
        ("fix --yes --patch .", "--patch . names no file in an existing folder"),
        ("run --fix train.py", "there is no option --fix"),
        ("run --apply train.py", "there is no option --apply"),
        (
            "run --past-limit --record train.py",
            "--record compares runs under torch's limit: leave --past-limit out",
        ),
        ("fix --timeout 0", "x>0"),
        ("fix --dry-run train.py", "do not name a program"),
        ("fix --steps 0", "x>=1"),
    ],
)
@pytest.mark.usefixtures("latest")
def test_one_sentence_for_what_cannot_be_used(typed: str, sentence: str, capsys) -> None:
    assert main(typed.split()) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda folder: shutil.rmtree(folder / ".compilediag"), "no run to repeat here"),
        (lambda folder: (folder / "train.py").unlink(), "train.py is gone"),
        (
            lambda folder: (folder / "train.py").write_text("other\n"),
            "train.py has changed since the latest run",
        ),
    ],
)
def test_a_run_that_cannot_be_repeated(change, sentence, latest, capsys) -> None:
    change(latest)
    assert main(["fix", "--yes"]) == 2
    assert sentence in capsys.readouterr().err


def test_the_latest_run_and_one_finding(latest: Path, campaigns: CampaignCalls) -> None:
    assert main(["fix", "2", "--yes", "--budget", "2m"]) == 0
    (begun,) = campaigns
    assert begun.whole.pair.program.words == ("train.py", "--lr", "1")
    assert [each.id for each in begun.wanted] == ["F2"]
    assert (begun.budget_s, begun.whole.pair.program.folder.startswith(str(latest))) == (
        120.0,
        True,
    )


@pytest.mark.usefixtures("latest")
def test_a_run_that_was_not_recorded_is_made_once_more_and_recorded(monkeypatch) -> None:
    """So that the certificate, and later that of an edit by hand, need no execution of it."""
    seen: list[tuple[str, ...]] = []

    def record_run(words: tuple[str, ...], *_: Any) -> Any:
        seen.append(words)
        raise command.UsageError("stop")

    monkeypatch.setattr(command, "record_run", record_run)
    assert main(["fix", "2", "--yes"]) == 2
    assert seen == [("train.py", "--lr", "1")]


def test_a_file_named_by_a_number_is_a_program(latest: Path, monkeypatch) -> None:
    (latest / "2").write_text("pass\n")
    seen: list[tuple[str, ...]] = []

    def record_run(words: tuple[str, ...], *_: Any) -> Any:
        seen.append(words)
        raise command.UsageError("stop")

    monkeypatch.setattr(command, "record_run", record_run)
    assert main(["fix", "--yes", "2"]) == 2
    assert seen == [("2",)]


@pytest.mark.usefixtures("latest")
def test_dry_run_lists_and_runs_nothing(campaigns: CampaignCalls, capsys) -> None:
    assert main(["fix", "--dry-run"]) == 0
    assert "export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['bad']\"" in capsys.readouterr().out
    assert campaigns == []


@pytest.mark.usefixtures("campaigns")
def test_side_effects_are_said_also_where_nobody_is_asked(latest: Path, capsys) -> None:
    assert main(["fix", "--yes"]) == 0
    assert "what it writes or sends, it writes or sends each time" in capsys.readouterr().err
    assert main(["fix", "--yes", "--quiet"]) == 0
    assert "it writes" not in capsys.readouterr().err
    save(latest, msgspec.structs.replace(of("train.py"), findings=()))
    assert main(["fix"]) == 0
    assert "no finding of at least `warning`: nothing to fix" in capsys.readouterr().out


@pytest.mark.usefixtures("latest")
def test_options_of_pyproject(latest: Path, campaigns: CampaignCalls, capsys) -> None:
    """Of its own table, then of `run`; what is typed comes first; a wrong key is named."""
    settings = latest / "pyproject.toml"
    settings.write_text(
        "[tool.compilediag]\nsteps = 50\ntimeout = 9\n"
        "[tool.compilediag.fix]\nsteps = 20\nbudget = '10m'\n"
        "[tool.compilediag.gate]\nrequire_proved_fix = true\n"
    )
    assert main(["fix", "--yes"]) == 0
    assert main(["fix", "--yes", "--steps", "3", "--budget", "1h"]) == 0
    first, second = campaigns
    chosen = [(each.whole.pair.program.options.steps, each.budget_s) for each in campaigns]
    assert chosen == [(20, 600.0), (3, 3600.0)]
    assert (
        first.whole.pair.program.options.timeout_s,
        second.whole.pair.program.options.timeout_s,
    ) == (9, 9)
    settings.write_text("[tool.compilediag.fix]\nstep = 20\n")
    assert main(["fix", "--yes"]) == 2
    assert "unknown key 'step' in [tool.compilediag.fix]" in capsys.readouterr().err


def test_uncommitted_changes_are_said_before_anything_runs(latest, campaigns, monkeypatch, capsys):
    """Without git, too; --force runs."""
    monkeypatch.setattr(command, "list_editable_files", lambda listed: [str(latest / "train.py")])
    for status, sentence in ((None, "is in no git repository"), (" M train.py", "not committed")):
        monkeypatch.setattr(sources, "run_git", lambda *words, status=status: status)
        assert main(["fix", "--yes", "--apply"]) == 2
        assert sentence in capsys.readouterr().err
    assert campaigns == []
    assert main(["fix", "--yes", "--apply", "--force"]) == 0
