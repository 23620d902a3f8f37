"""Locates receipts: the file that a command's argument means, and the link to the last run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from compilediag.errors import OutputUnwritable, ReceiptNotFound

RECEIPT_NAME = "receipt.json"

RUNS_FOLDER = ".compilediag"

LATEST = "latest"
"""Link to the last run's directory."""

AnyPath = str | os.PathLike[str]


def find_receipt(argument: AnyPath | None = None, cwd: AnyPath | None = None) -> str:
    """Find the receipt file meant by a command's argument: a receipt file, a run directory, a
    folder that holds `.compilediag`, or nothing for the last run below `cwd`.

    Raises:
        ReceiptNotFound: there is none.
    """
    folder = Path.cwd() if cwd is None else Path(cwd)
    if argument is None:
        return _find_latest(folder)
    path = folder / argument  # without "." parts; ".." stays, for links
    if path.name == LATEST and path.parent.name == RUNS_FOLDER:
        return _find_latest(path.parent.parent)
    if path.is_file():
        return str(path)
    if not path.is_dir():
        raise ReceiptNotFound(f"There is no receipt at {os.fspath(argument)}.")
    if (path / RECEIPT_NAME).is_file():
        return str(path / RECEIPT_NAME)
    if (path / RUNS_FOLDER / LATEST).exists() or (path / LATEST).exists():
        return _find_latest(path if (path / RUNS_FOLDER).is_dir() else path.parent)
    raise ReceiptNotFound(
        describe_unfinished(path) or f"There is no {RECEIPT_NAME} in {os.fspath(argument)}."
    )


def describe_unfinished(run: Path) -> str | None:
    """Describe the folder of a run whose journals have no receipt beside them; None for others."""
    if (run / RECEIPT_NAME).exists() or next(run.glob("journal-*"), None) is None:
        return None
    return (
        f"The run in {run} has no {RECEIPT_NAME}: it still goes on, or compilediag was killed "
        f"before it wrote one. `compilediag analyze {run}` makes one from what the run recorded."
    )


def find_newer_unfinished(receipt: AnyPath) -> str | None:
    """Describe the newest such run that began after the one with this receipt, if any."""
    run = Path(receipt).resolve().parent
    # Names begin with the time at which the run started.
    newer = sorted(folder for folder in run.parent.glob("[0-9]*Z-*") if folder.name > run.name)
    return next(filter(None, map(describe_unfinished, reversed(newer))), None)


def get_receipt_path(folder: str, rank: int | None = None) -> str:
    """Get the path of a run's receipt in its directory, or of one rank's; it need not exist."""
    return os.path.join(folder, *([] if rank is None else [f"rank-{rank}"]), RECEIPT_NAME)


def _find_latest(folder: Path) -> str:
    runs = folder / RUNS_FOLDER
    run = find_latest_run(runs)
    if run is None:
        newest = sorted(runs.glob("[0-9]*Z-*"))
        if newest and (why := describe_unfinished(newest[-1])):
            raise ReceiptNotFound(why)
        raise ReceiptNotFound(
            f"There is no run below {runs}: start one with `compilediag run SCRIPT`, "
            "or name a receipt."
        )
    receipt = os.path.join(run, RECEIPT_NAME)
    if not os.path.isfile(receipt):
        raise ReceiptNotFound(f"The last run, {run}, has no {RECEIPT_NAME}.")
    return receipt


def find_latest_run(runs: AnyPath) -> str | None:
    """Find the directory that `latest` names; None when it is not there."""
    latest = Path(runs, LATEST)
    return os.path.realpath(latest) if latest.is_dir() else None


def link_latest(run_directory: AnyPath) -> None:
    """Make `latest`, beside `run_directory`, a link to it.

    Raises:
        OutputUnwritable: it cannot be made.
    """
    run = Path(run_directory).absolute()
    latest = run.parent / LATEST
    temporary = run.parent / f".latest-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        os.symlink(run.name, temporary, target_is_directory=True)
        os.replace(temporary, latest)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise OutputUnwritable(f"{latest} cannot be made: {error.strerror or error}.") from error
