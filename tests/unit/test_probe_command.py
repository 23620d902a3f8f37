"""The command line of the probe, its table in pyproject.toml, and its screen."""

from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from probed_programs import Program

from compilediag.cli import main
from compilediag.commands.subcommand import read_defaults
from compilediag.commands.target import TOML_KEYS
from compilediag.errors import UsageError
from compilediag.extensions.cadence.plan import GroupSelection
from compilediag.extensions.cadence.view import render_cadence
from compilediag.receipt.file import read_receipt
from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.views.format import BARS
from compilediag.views.style import RenderOptions


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the probe or the run would have been called with."""
    monkeypatch.chdir(tmp_path)
    Path("x.py").write_text("")
    calls: list[Any] = []

    def probe(words: Any, options: RunOptions, wanted: GroupSelection, announce: Any) -> Outcome:
        calls.append((list(words), options, wanted))
        return Outcome(0, ".", None, "receipt.json")

    def run(words: Any, options: RunOptions) -> Outcome:
        calls.append((list(words), options, None))
        return Outcome(0, ".", None, "receipt.json")

    monkeypatch.setattr("compilediag.extensions.cadence.probe.probe", probe)
    monkeypatch.setattr("compilediag.runs.supervised.run", run)
    return calls


@pytest.mark.parametrize(
    "typed",
    [
        "probe x.py --lr 1",
        "measure periodic x.py --lr 1",
        "probe -- x.py --lr 1",
        "run --cadence-probe x.py --lr 1",
        "run x.py --lr 1 --cadence-probe",
        "run x.py --cadence-probe --lr 1",
        "run --cadence-probe -- x.py --lr 1",
    ],
)
def test_the_probe_by_all_its_names(typed: str, called: list[Any]) -> None:
    """Also after the target, where it is the one option of ours."""
    assert main(typed.split()) == 0
    ((words, _, wanted),) = called
    assert words == ["x.py", "--lr", "1"]
    assert wanted == GroupSelection()


def test_after_a_target_everything_is_the_targets(called: list[Any]) -> None:
    """With and without `--` before TARGET, also what is an option of ours; with it even
    --cadence-probe."""
    assert main(["run", "x.py", "--group", "a"]) == 0
    assert main(["probe", "--", "x.py", "--group", "a"]) == 0
    assert [call[0] for call in called] == [["x.py", "--group", "a"]] * 2
    assert [call[2] is None for call in called] == [True, False]
    called.clear()
    assert main(["run", "--", "x.py", "--cadence-probe"]) == 0
    assert main(["probe", "--", "x.py", "--cadence-probe"]) == 0
    assert [call[0] for call in called] == [["x.py", "--cadence-probe"]] * 2


def test_the_table_gives_defaults_and_flags_win(called: list[Any]) -> None:
    """[tool.compilediag.probe] has the probe's own steps and groups."""
    Path("pyproject.toml").write_text(
        "[tool.compilediag]\nsteps = 5\n[tool.compilediag.probe]\nsteps = 80\nkeep_caches = true\n"
        "[tool.compilediag.probe.groups]\na = '--a {n}'\n"
    )
    assert main(["probe", "x.py"]) == 0
    assert main(["probe", "--steps", "70", "--group", "a=--other {n}", "x.py"]) == 0
    assert main(["run", "x.py"]) == 0
    assert [call[1].steps for call in called] == [80, 70, 5]
    assert called[0][1].keep_caches
    templates = [call[2].templates[0].template for call in called[:2]]
    assert templates == ["--a {n}", "--other {n}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("probe = 3", "is no table"),
        ("[tool.compilediag.probe]\nstepz = 3", "unknown key 'stepz' in .*probe"),
        ("[tool.compilediag.probe]\nsteps = true", "steps in .*probe.* must be int"),
        ("[tool.compilediag.probe]\ngroups = 3", "groups in .*probe.* must be dict"),
        ("[tool.compilediag.probe.groups]\na = 50", "a in .*groups.* must be a template"),
    ],
)
def test_a_wrong_table_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    """Every key and type is checked; `run` refuses the file as well."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.compilediag]\n{text}\n")
    with pytest.raises(UsageError, match=message):
        read_defaults(tmp_path, TOML_KEYS)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["probe"], "say what to run"),
        (["probe", "no.py"], "there is no file named 'no.py'"),
        (["probe", "--steps", "-5", "x.py"], "-5"),
        (["probe", "--steps", "0", "x.py"], "0"),
        (["probe", "--group", "a=--a", "x.py"], "has no {n}"),
        (["probe", "--group", "a=-5", "x.py"], "has no {n}"),
        (["run", "--group", "a=--a {n}", "x.py"], "there is no option --group"),
        (["probe", "-"], "only once"),
    ],
)
def test_mistakes_are_one_sentence(typed, message, tmp_path, monkeypatch, capsys) -> None:
    """Exit code 2, one line on stderr, nothing started, nothing left behind."""
    monkeypatch.chdir(tmp_path)
    Path("x.py").write_text("open('ran', 'w')")
    assert main(typed) == 2
    screen = capsys.readouterr().err
    assert message in screen
    assert screen.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.py"]


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program whose groups cost something, in place of every run."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("")
    monkeypatch.setenv("COLUMNS", "100")
    program = Program({"entropy": 4, "\x1b[31mnorms": 6})
    monkeypatch.setattr(import_module("compilediag.runs.supervised.run"), "run", program.run)


def test_the_screen(probed: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Costs, variants with a picture each; no name acts on the terminal, no line is wider."""
    assert main(["probe", "--no-live", "model.py"]) == 0
    screen = capsys.readouterr().err
    assert "compilediag · variant 1: configured, as the code says" in screen
    assert "compilediag · variant 3 of 5: entropy alone" in screen
    assert "norms make torch compile again: 2 recompiles, 1.0 s" in screen
    rows = [line.split() for line in screen.splitlines()]
    assert ["entropy", "first", "hit", "0.51", "s", "0.50", "s", "5.0", "ms", "-"] in [
        row[:10] for row in rows
    ]
    assert "sync: not measured" in screen
    assert "entropy: every 7 steps alone, every 4 in the code" in screen
    assert "\x1b" not in screen
    assert max(len(line) for line in screen.splitlines()) <= 100
    assert sum(any(bar in line for bar in BARS[5:]) for line in screen.splitlines()) >= 3


def test_show_draws_it_again(probed: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Above the verdict on the configured variant."""
    main(["probe", "--quiet", "model.py"])
    assert capsys.readouterr().err == ""
    assert main(["show"]) == 0
    screen = capsys.readouterr().out
    assert screen.index("cadence probe:") < screen.index("next: compilediag")
    assert screen.count("next: compilediag") == 1


def test_a_slower_machine_is_reported(probed: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A variant whose quiet steps were longer has longer firings as well: said, not hidden."""
    main(["probe", "--quiet", "model.py"])
    receipt = read_receipt()
    first, *others = receipt.cadence.attribution
    slow = msgspec.structs.replace(first, quiet_s=30e-3)
    section = msgspec.structs.replace(receipt.cadence, attribution=(slow, *others))
    reported = render_cadence(msgspec.structs.replace(receipt, cadence=section), RenderOptions())
    assert "its quiet steps took 30 ms, the control's 10 ms" in reported
    assert "quiet steps" not in render_cadence(receipt, RenderOptions())


def test_without_a_probe_the_view_says_how_to_make_one(probed: None) -> None:
    """A receipt of a plain run has no table."""
    main(["probe", "--quiet", "model.py"])
    plain = msgspec.structs.replace(read_receipt(), cadence=None)
    assert "measure periodic" in render_cadence(plain, RenderOptions())


def test_ascii_only(probed: None) -> None:
    """Where the terminal can show nothing else, the pictures are ASCII too."""
    main(["probe", "--quiet", "model.py"])
    assert render_cadence(read_receipt(), RenderOptions(ascii_only=True)).isascii()
