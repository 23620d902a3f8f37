"""Runs the command line in a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

DATA = Path(__file__).parents[1] / "data" / "views"

FINDINGS = str(DATA / "findings.json")


def compilediag(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as a user would."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    return subprocess.run(
        [sys.executable, "-m", "compilediag", *arguments],
        cwd=cwd,
        env={**inherited, "PYTHONIOENCODING": "utf-8", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def raising(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("show", callback=fail)
