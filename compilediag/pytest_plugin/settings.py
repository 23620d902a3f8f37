"""The settings of a session: options and ini keys, read once, and what isolates its tests."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from compilediag.compare.gate.limits import Limit, parse_limits
from compilediag.errors import UsageError


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of every test of a session."""

    report: Path | None
    """Folder of the receipts, relative to where pytest was started; None where none are written."""
    baseline: Path
    """File of the baseline, relative to the folder of the configuration file."""
    limits: tuple[Limit, ...]
    update: bool
    """The baseline is written, and no test is judged by it."""
    strict: bool


def read_settings(config: pytest.Config) -> SessionSettings:
    """Read the settings of a session.

    Raises:
        pytest.UsageError: `compilediag_fail_on` does not parse.
    """
    fail_on = str(config.getini("compilediag_fail_on")).strip()
    try:
        limits = parse_limits(fail_on) if fail_on else ()
    except UsageError as error:
        raise pytest.UsageError(f"compilediag_fail_on: {error}") from None
    folder = config.inipath.parent if config.inipath is not None else config.rootpath
    report = config.getoption("compilediag_report") or config.getini("compilediag_report")
    return SessionSettings(
        report=config.invocation_params.dir / str(report) if report else None,
        baseline=folder / str(config.getini("compilediag_baseline")),
        limits=limits,
        update=bool(config.getoption("compilediag_update")),
        strict=bool(config.getini("compilediag_strict_improvement")),
    )


CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def set_cache_folder(config: pytest.Config) -> None:
    """Let a worker of pytest-xdist compile into a folder of its own, which stays between runs,
    unless the user or torch itself has already chosen one."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None or CACHE_VARIABLE in os.environ:
        return
    name = re.sub(r"[^\w.-]", "_", f"torchinductor_{os.getuid()}_{worker}")
    folder = os.path.join(tempfile.gettempdir(), name)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        ours = not os.path.islink(folder) and os.stat(folder).st_uid == os.getuid()
    except OSError:
        ours = False
    # What lies there is loaded as code: a folder somebody else has put there is not used.
    os.environ[CACHE_VARIABLE] = folder if ours else tempfile.mkdtemp(prefix=f"{name}_")
