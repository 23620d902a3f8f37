"""The directory of a run: made before the target starts, never one that holds something else."""

from __future__ import annotations

import contextlib
import os
import time
from itertools import count

from compilediag.errors import OutputUnwritable, UsageError
from compilediag.receipt.locate import RECEIPT_NAME, RUNS_FOLDER

ARTIFACTS = "artifacts"


def make_run_dir(output: str | None, name: str, *, now: float, pid: int) -> str:
    """Creates the directory of one run and returns its absolute path.

    Args:
        output: what the user asked for; None for `.compilediag/<utc>-<name>-<pid>`.
        name: harmless characters only.
        now: seconds since the epoch.
        pid: makes the names of runs started in the same second differ.

    Raises:
        UsageError: the directory is in use.
        OutputUnwritable: it cannot be created or written.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    shown = output or RUNS_FOLDER
    try:
        path = _named(output) if output else _fresh(f"{stamp}-{name}-{pid}")
        _try_writing(path)
    except OSError as error:
        said = error.strerror or str(error)
        raise OutputUnwritable(
            f"the output directory {shown} cannot be written ({said}): choose another with --output"
        ) from error
    return path


def _named(output: str) -> str:
    path = os.path.abspath(output)
    os.makedirs(path, exist_ok=True)
    if os.listdir(path):
        raise UsageError(_used(output, path))
    return path


def _fresh(name: str) -> str:
    """A new folder below `.compilediag`; numbered when one process starts two runs in a second."""
    home = os.path.abspath(RUNS_FOLDER)
    _make_home(home)
    for number in count(1):
        path = os.path.join(home, name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            return path
    raise AssertionError("count() does not end")


def _used(shown: str, path: str) -> str:
    what = "not empty"
    if os.path.exists(os.path.join(path, RECEIPT_NAME)) or any(
        name.startswith("journal-") for name in os.listdir(path)
    ):
        what = "already used by a run"
    return f"the output directory {shown} is {what}: name a new one, its files stay as they are"


def _make_home(home: str) -> None:
    os.makedirs(home, exist_ok=True)
    with contextlib.suppress(FileExistsError), open(os.path.join(home, ".gitignore"), "x") as file:
        file.write("# runs of compilediag: no source code\n*\n")


def _try_writing(path: str) -> None:
    probe = os.path.join(path, ".write-test")
    with open(probe, "xb") as file:
        file.write(b"x")
    os.unlink(probe)
