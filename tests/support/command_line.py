"""Runs the command line in a child process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from compilediag import cli

DATA = Path(__file__).parents[1] / "data" / "views"

FINDINGS = str(DATA / "findings.json")


def captured(*command: str, check: bool = False, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command without input, and keeps what it prints."""
    more = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **more}
    return subprocess.run(command, check=check, **more)


def compilediag(
    *arguments: str, cwd: Path, timeout: float | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command as a user would."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    env = {**inherited, "PYTHONIOENCODING": "utf-8", **environment}
    command = (sys.executable, "-m", "compilediag", *arguments)
    return captured(*command, cwd=cwd, env=env, encoding="utf-8", timeout=timeout)


def analyze(out: Path, *arguments: object) -> dict[str, Any]:
    """The receipt that `analyze` wrote."""
    assert cli.main(["analyze", *map(str, arguments), "-o", str(out)]) == 0
    return json.loads((out / "receipt.json").read_text())


def raising(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("show", callback=fail)


def enter_plain_repository(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No colour, 100 columns, no CI, an empty repository."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    Path(".git").mkdir()
