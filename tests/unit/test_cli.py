"""The command line: exit codes, errors in a sentence, help with examples, faults of ours."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import FINDINGS, raising

from compilediag import __version__, cli
from compilediag.errors import EXIT_INTERNAL, EXIT_USAGE, UsageError
from compilediag.project_urls import format_issue_address

WHOLE = Path(FINDINGS).read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def quiet_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No colour, no width of the terminal that runs the tests, an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "COLUMNS", cli.COMPLETE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shwo"], "did you mean `compilediag show`?"),
        (["train.py"], "to run a program: `compilediag run train.py`"),
        (["frobnicate"], "the commands are run, show, "),
        (["--frobnicate"], "No such option '--frobnicate'"),
        (["show", "--tmeline"], "--timeline"),
        (["show"], "`compilediag run"),
        (["show", "no/such.json"], "no/such.json"),
        (["show", "--md", "--json", FINDINGS], "give one"),
        (["show", "--htm1", "x"], "No such option '--htm1'"),
        (["explain"], "say what to explain"),
        (["explain", "CD999"], "there is no rule CD999"),
        (["explain", "frobnicate"], "explain --list"),
        (["explain", "99", FINDINGS], "findings 1 to 5"),
        (["diff", FINDINGS, "no/such.json"], "no/such.json"),
        (["diff"], "Missing argument 'A'"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: list[str], said: str, capsys: Any) -> None:
    """Wrong use gives code 2, nothing on stdout and one sentence with a way on, on stderr."""
    assert cli.main(arguments) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("compilediag: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "command", "said"),
    [
        (WHOLE[:2000], ("show",), "bad.json"),
        (WHOLE.replace('"precision": "fp32"', '"precision": "bf16"'), ("diff", FINDINGS), "bf16"),
    ],
    ids=["torn", "of another configuration"],
)
def test_a_receipt_that_cannot_be_used_is_one_sentence(text, command, said, tmp_path, capsys):
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    assert cli.main([*command, str(tmp_path / "bad.json")]) == EXIT_USAGE
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "spellings"),
    [
        (("gate", FINDINGS, "--fail-on", "frames>99"), (("--configuration", "x"), ("--lane", "x"))),
        (("stats", "DIR"), (("--configuration", "gpt-*"), ("--lane", "gpt-*"))),
        (("stats", "DIR"), (("--configuration", "none"), ("--lane", "none"))),
        (("stats", "DIR"), (("--by", "configuration"), ("--by", "lane"), ())),
        (("trend", "DIR"), (("--configuration", "gpt-*"), ("--lane", "gpt-*"))),
        (("run",), (("--trace-writes",), ("--witness",))),
        (("run",), (("--live",), ("--live-lines",))),
    ],
)
def test_a_former_spelling_does_the_same(
    command: tuple[str, ...], spellings: tuple[tuple[str, ...], ...], tmp_path: Path, capsys: Any
) -> None:
    """The same output, error and exit code, whatever that is."""
    (tmp_path / "DIR").mkdir()
    (tmp_path / "DIR" / "r.json").write_text(WHOLE, encoding="utf-8")
    name, *rest = command
    did = [(cli.main([name, *spelling, *rest]), capsys.readouterr()) for spelling in spellings]
    assert did == did[:1] * len(spellings)
    assert not re.search("no such|no option", did[0][1].err, re.IGNORECASE)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        *((name, "--configuration, --lane NAME") for name in ("gate", "stats", "trend")),
        ("stats", "--by [configuration|lane|preset]"),
        ("run", "--trace-writes, --witness"),
    ],
)
def test_help_has_both_spellings(command: str, shown: str, capsys: Any) -> None:
    """The better one first."""
    assert cli.main([command, "--help"]) == 0
    assert f"  {shown} " in capsys.readouterr().out.replace("\n", " ")


def test_hostile_arguments_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """An error message does not repeat terminal codes of its own arguments."""
    assert cli.main(["\x1b[2Jevil"]) == EXIT_USAGE
    assert cli.main(["show", "\x1b[2J\u202enope.json"]) == EXIT_USAGE
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\u202e" not in err


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_help_of_every_command_has_an_example(name: str, capsys) -> None:
    """`--help` ends with an example that can be typed."""
    assert cli.main([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: compilediag {name}" in out
    assert f"compilediag {name}" in out.partition("Example")[2]


def test_the_line_of_a_command_is_the_start_of_its_help() -> None:
    """The summaries of the group, kept apart so that nothing is imported, are those of the help."""
    for name, summary in cli.COMMANDS.items():
        assert (cli.load_command(name).help or "").partition("\n")[0] == summary


def test_the_short_form_of_output_is_the_same_everywhere() -> None:
    """Whoever typed `analyze -o DIR` types `run -o DIR` next."""
    for name in ("run", "measure periodic", "analyze", "repro"):
        spelled = [set(option.opts) for option in cli.load_command(name).params]
        assert {"-o", "--output"} in spelled, name


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [([], EXIT_USAGE, "Usage: compilediag"), (["--version"], 0, f"compilediag {__version__}\n")],
)
def test_what_the_group_prints(words: list[str], code: int, out: str, capsys: Any) -> None:
    assert cli.main(words) == code
    assert out in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("it is too blue; paint it"), 2, "compilediag: it is too blue; paint it\n"),
        (KeyboardInterrupt(), 130, "compilediag: interrupted\n"),
        (SystemExit(7), 7, ""),
        (SystemExit(None), 0, ""),
    ],
)
def test_what_a_command_raises_becomes_its_code(error, code, said, monkeypatch, capsys) -> None:
    """Errors on purpose, Ctrl-C and exits end with their codes and at most one sentence."""
    monkeypatch.setattr(cli.LazyGroup, "resolve_command", lambda *_: ("show", raising(error), []))
    assert cli.main(["show"]) == code
    assert capsys.readouterr().err == said


def test_a_fault_of_ours_is_reported_as_ours(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """An unexpected exception gives 70, says where it was and where to report it."""
    command = raising(RuntimeError("boom \x1b[2J"))
    monkeypatch.setattr(cli.LazyGroup, "resolve_command", lambda *_: ("show", command, []))
    assert cli.main(["show"]) == EXIT_INTERNAL
    err = capsys.readouterr().err
    assert "RuntimeError: boom \\x1b[2J" in err
    assert "command_line.py:" in err
    assert format_issue_address() in err
    assert "Traceback" not in err


def help_rows(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The options that the help of a command lists, each as it is shown."""
    assert cli.main(words) == 0
    listed = capsys.readouterr().out.partition(":\n")[2]
    return re.findall(r"^  (-[^ ].*?)(?:  |$)", listed, re.MULTILINE)


def test_help_of_run_has_what_is_used_every_day(capsys: pytest.CaptureFixture[str]) -> None:
    """At most fourteen options; --help-all shows the rest, and not the spelling of --json=FILE."""
    shown = help_rows(["run", "--help"], capsys)
    every = help_rows(["run", "--help-all"], capsys)
    assert len(shown) <= 14
    assert {*shown} < {*every}
    options = [each for each in cli.load_command("run").params if isinstance(each, click.Option)]
    assert len(every) == len([each for each in options if each.help]) + 2  # --help, --help-all


@pytest.mark.parametrize(("former", "now"), cli.FORMER.items())
def test_a_former_name_is_the_same_command(former: str, now: str, capsys) -> None:
    """Nothing that was documented once stops working."""
    assert cli.main([former, "--help"]) == 0
    by_former = capsys.readouterr().out
    assert cli.main([*now.split(), "--help"]) == 0
    assert capsys.readouterr().out == by_former


def test_commands_of_every_day_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of two words are listed by the first."""
    assert cli.main(["--help"]) == 0
    rows = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out, re.MULTILINE)
    assert rows[: len(cli.EVERYDAY)] == [*cli.EVERYDAY]
    assert rows[len(cli.EVERYDAY) :] == ["measure", "history", "analyze", "plan", "mcp", "doctor"]
