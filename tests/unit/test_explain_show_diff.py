"""`show`, `explain` and `diff` as commands: which view is drawn, from which receipt."""

import json
import shutil
from pathlib import Path

import pytest
from screens import VIEWS

from compilediag import cli
from compilediag.commands import explain
from compilediag.diagnosis.codes import REGISTER

FINDINGS = str(VIEWS / "findings.json")
CLEAN = str(VIEWS / "clean.json")
PAGE = (explain.read_page("CD103") or "").strip()


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No colour, 100 columns, an empty folder."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


def out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(list(arguments)) == 0
    return capsys.readouterr().out


def test_show_takes_the_latest_run_and_its_folder(tmp_path: Path, capsys) -> None:
    """Without an argument the latest run is shown; with one, the run of that folder."""
    run = tmp_path / ".compilediag" / "20261120-x-1"
    run.mkdir(parents=True)
    shutil.copy(CLEAN, run / "receipt.json")
    (tmp_path / ".compilediag" / "latest").symlink_to(run.name)
    assert out(capsys, "show").startswith("✓ clean")
    shown = out(capsys, "show", ".compilediag/20261120-x-1")
    assert "next: compilediag gate --update .compilediag/20261120-x-1" in shown


def test_show_draws_several_views_below_each_other(capsys) -> None:
    """Each as it is alone."""
    frames, steps = (out(capsys, "show", view, FINDINGS) for view in ("--frames", "--steps"))
    assert out(capsys, "show", "--steps", "--frames", FINDINGS) == f"{frames}\n{steps}"


def test_explain_takes_several_in_one_call(capsys) -> None:
    """Numbers, ids and codes, each as it is alone; the receipt comes last."""
    first, second, page = (out(capsys, "explain", word, FINDINGS) for word in ("1", "F2", "CD103"))
    assert out(capsys, "explain", "1", "F2", "CD103", FINDINGS) == f"{first}\n{second}\n{page}"
    assert cli.main(["explain", "1", "2", "--json", FINDINGS]) == 2
    assert "one document" in capsys.readouterr().err


def test_explain_fits_a_screen_unless_all_is_wanted(capsys) -> None:
    """What was seen, what to change, whether it is proved, and how an edit is checked."""
    for number in ("1", "2", "3"):
        text = out(capsys, "explain", number, FINDINGS)
        assert text.count("\n") <= 40
        assert "  your edit   compilediag certify -- " in text
        assert len(out(capsys, "explain", number, "--all", FINDINGS)) > len(text)


@pytest.mark.parametrize("spelled", ["CD103", "cd103", "lazy-buffer", "lazy_buffer"])
def test_explain_a_rule(spelled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A code in any case and a slug lead to the page, printed as it is written."""
    assert out(capsys, "explain", spelled).strip() == PAGE


def test_explain_draws_the_page_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """With colour the Markdown is drawn: no heading signs are left."""
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = out(capsys, "explain", "CD103")
    assert "\x1b[" in text
    assert "\n# " not in text


def test_explain_lists_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Each code of the register stands on the list."""
    text = out(capsys, "explain", "--list")
    assert all(f"  {code}  " in text for code in REGISTER)


def test_diff_in_words_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same comparison for people and for programs."""
    assert out(capsys, "diff", FINDINGS, CLEAN).startswith("findings → clean")
    facts = json.loads(out(capsys, "diff", "--json", FINDINGS, CLEAN))
    assert facts["changed"] is True
    counts = {item["name"]: item for item in facts["comparison"]["counts"]}
    assert (counts["recompiles"]["before"], counts["recompiles"]["after"]) == (3, 0)
    assert json.loads(out(capsys, "diff", "--json", CLEAN, CLEAN))["changed"] is False
