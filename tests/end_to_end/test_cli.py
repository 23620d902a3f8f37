"""The command line: exit codes, errors in a sentence, help with examples, faults of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import FINDINGS, compilediag

from compilediag import cli
from compilediag.commands import doctor
from compilediag.errors import EXIT_USAGE


@pytest.fixture(autouse=True)
def quiet_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests in this process see no colour and no width of the terminal that runs them."""
    for name in ("FORCE_COLOR", "COLUMNS", cli.COMPLETE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")


def test_show_as_a_program(tmp_path: Path) -> None:
    """`python -m compilediag show RECEIPT` prints the golden screen, in ASCII where it must."""
    done = compilediag("show", FINDINGS, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("✗ 3 recompiles in 12 steps cost 0.43 s")
    assert f"compilediag explain 1 {FINDINGS}" in " ".join(done.stdout.split())
    done = compilediag("show", FINDINGS, cwd=tmp_path, PYTHONIOENCODING="ascii", COLUMNS="60")
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= max(60, len(FINDINGS) + 40)


def test_no_color_wins_over_force_color(tmp_path: Path) -> None:
    """FORCE_COLOR colours a pipe; NO_COLOR forbids it again."""
    colored = compilediag("show", FINDINGS, cwd=tmp_path, FORCE_COLOR="1").stdout
    assert "\x1b[1;31m" in colored
    plain = compilediag("show", FINDINGS, cwd=tmp_path, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b" not in plain


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """`compilediag show --json | head -1` prints nothing on stderr."""
    command = [sys.executable, "-m", "compilediag", "show", "--json", FINDINGS]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (cli.EXIT_BROKEN_PIPE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_reported(tmp_path: Path) -> None:
    """A stdout that cannot be written is a sentence and a code, not a fault of ours."""
    command = [sys.executable, "-m", "compilediag", "show", FINDINGS]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == EXIT_USAGE
    assert done.stderr.startswith("compilediag: stdout cannot be written: No space left")
    assert done.stderr.count("\n") == 1


def test_completion_of_commands_and_options(tmp_path: Path) -> None:
    """The shell completes commands without importing them, and the options of one."""
    variables = {cli.COMPLETE_VARIABLE: "bash_complete"}
    done = compilediag(cwd=tmp_path, COMP_WORDS="compilediag sh", COMP_CWORD="1", **variables)
    assert done.stdout == "plain,show\n"
    words = {"COMP_WORDS": "compilediag show --ti", "COMP_CWORD": "2"}
    assert compilediag(cwd=tmp_path, **words, **variables).stdout == "plain,--timeline\n"
    words = {"COMP_WORDS": "compilediag gate ma", "COMP_CWORD": "2"}
    assert compilediag(cwd=tmp_path, **words, **variables).stdout == "file,ma\n"


def test_this_environment_is_usable(tmp_path: Path, monkeypatch, capsys) -> None:
    """The real checks pass where the tests run, and the JSON says the same."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["usable"] is True
    assert {check["name"]: check["state"] for check in printed["checks"]}["attaching"] == "ok"
    assert {hook["name"] for hook in printed["hooks"]} >= {"metrics_rows", "recompile_reasons"}
    assert printed["versions"]["torch"]
    assert list(tmp_path.iterdir()) == []


def test_attaching_really_attaches() -> None:
    """A real child, started as a run starts it, writes its journal."""
    assert doctor._check_attaching().state == "ok"
