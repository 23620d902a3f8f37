"""`compilediag doctor`: what makes it fail, what only warns, and how it is shown."""

import json
import subprocess
from pathlib import Path

import pytest

from compilediag import cli
from compilediag.commands import doctor
from compilediag.commands.doctor import Check, DoctorDocument, HookStatus, render_screen
from compilediag.views.style import RenderOptions

ANSWER = {
    "torch": "2.13.0+cpu",
    "git": "cf30153c4c13",
    "cuda": None,
    "devices": 0,
    "hooks": [["metrics_rows", True, "everything"], ["reset", False, "ids may be mixed up"]],
}


def child_that(monkeypatch, stdout: str = "", stderr: str = "", code: int = 0) -> None:
    """Replaces the child processes of the doctor by one that has answered."""
    done = subprocess.CompletedProcess([], code, stdout, stderr)
    monkeypatch.setattr(doctor, "_run_child", lambda *_: done)


def states(found: DoctorDocument) -> dict[str, str]:
    return {check.name: check.state for check in found.checks}


def test_missing_hook_is_a_warning_with_what_is_lost(tmp_path: Path, monkeypatch) -> None:
    """A private name that this torch lacks lowers the evidence and does not forbid the use."""
    child_that(monkeypatch, f"noise\ncompilediag-probe {json.dumps(ANSWER)}\n")
    monkeypatch.setattr(doctor, "_check_attaching", lambda: Check("attaching", "ok", "yes"))
    found = doctor.examine(tmp_path / ".compilediag")
    assert found.usable
    assert states(found)["hooks"] == "warning"
    text = render_screen(found, RenderOptions())
    assert "reset is missing; lost: ids may be mixed up" in text
    assert text.startswith("✓ compilediag can be used here")


@pytest.mark.parametrize(
    ("stdout", "stderr", "message"),
    [
        ("", "ModuleNotFoundError: No module named 'torch'\n", "torch is not installed here"),
        ("", "x\nImportError: libcudart.so.12: cannot open\n", "libcudart.so.12"),
        (f"compilediag-probe {json.dumps({**ANSWER, 'torch': '2.6.0'})}", "", "older than 2.7"),
    ],
)
def test_unusable_torch_is_a_failure_with_a_remedy(stdout, stderr, message, tmp_path, monkeypatch):
    """No torch, a broken one or an old one: code 1, with the reason and what to do."""
    child_that(monkeypatch, stdout, stderr, 1)
    found = doctor.examine(tmp_path)
    check = next(check for check in found.checks if check.name == "torch")
    assert check.state == "failed"
    assert message in check.said
    assert check.remedy
    assert not found.usable
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor"]) == 1


def test_journal_that_does_not_appear_is_a_failure(tmp_path: Path, monkeypatch) -> None:
    """A child that runs but writes no journal means that attaching is defeated."""
    child_that(monkeypatch)
    assert states(doctor.examine(tmp_path))["attaching"] == "failed"


def test_output_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in the place of the folder is reported; nothing is created."""
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    check = doctor._check_output(tmp_path / "file" / ".compilediag")
    assert check.state == "failed"
    assert check.remedy
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_missing_tools_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler and no git lower what can be done and forbid nothing."""
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(doctor.sys, "executable", "/nowhere/python")
    assert [doctor._check_compiler().state, doctor._check_tool("git", "lost").state] == [
        "warning"
    ] * 2


def test_variables_that_switch_compiling_off_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """TORCH_COMPILE_DISABLE=1 explains a run in which nothing compiles."""
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.setenv("TORCH_COMPILE_JOB_ID", "x")
    assert [check.name for check in doctor._check_env()] == [
        "TORCH_COMPILE_DISABLE",
        "stored profiles",
    ]


def test_child_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that never ends its import is reported, not waited for."""

    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 1)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    assert doctor._run_child(["-c", "pass"]) == "a child process did not end within 120 s"


def test_view_has_the_answer_first_and_the_next_command_last() -> None:
    """What failed stands in the first line, its repair below, and the last line is a command."""
    found = DoctorDocument(
        schema="compilediag.doctor",
        usable=False,
        versions={"Python": "3.11", "torch": None},
        hooks=(HookStatus("reset", True, "ids"),),
        checks=(
            Check("torch", "failed", "torch \x1b[2J broke", "mend it"),
            Check("git", "ok", "here"),
        ),
    )
    lines = render_screen(found, RenderOptions(60)).splitlines()
    assert lines[0] == "✗ compilediag cannot be used here: torch"
    assert "  torch   not installed" in lines
    assert "     fix: mend it" in lines
    assert lines[-1] == "  next: compilediag doctor again, after the repairs above"
    assert "\x1b" not in "".join(lines)
