"""Where receipts are: the file a command means, and the link to the last run."""

from __future__ import annotations

import contextlib
import os
from os.path import basename, dirname, isdir, isfile, join

from compilediag.errors import OutputUnwritable, ReceiptNotFound

RECEIPT_NAME = "receipt.json"

RUNS_FOLDER = ".compilediag"

LATEST = "latest"
"""Link to the last run's directory; a text file with its name where links cannot be made."""

AnyPath = str | os.PathLike[str]


def find_receipt(argument: AnyPath | None = None, cwd: AnyPath | None = None) -> str:
    """The receipt file meant by a command's argument: a receipt file, a run directory, a folder
    that holds `.compilediag`, or nothing for the last run below `cwd`.

    Raises:
        ReceiptNotFound: there is none.
    """
    folder = os.getcwd() if cwd is None else os.fspath(cwd)
    if argument is None:
        return _latest_in(folder)
    path = _without_dots(join(folder, argument))
    above = dirname(path)
    if basename(path) == LATEST and basename(above) == RUNS_FOLDER:
        return _latest_in(dirname(above))
    if isfile(path):
        return path
    if not isdir(path):
        raise ReceiptNotFound(f"There is no receipt at {os.fspath(argument)}.")
    inside = join(path, RECEIPT_NAME)
    if isfile(inside):
        return inside
    if os.path.exists(join(path, RUNS_FOLDER, LATEST)) or os.path.exists(join(path, LATEST)):
        return _latest_in(path if isdir(join(path, RUNS_FOLDER)) else above)
    raise ReceiptNotFound(f"There is no {RECEIPT_NAME} in {os.fspath(argument)}.")


def receipt_in(folder: str, rank: int | None = None) -> str:
    """Where the receipt of a run lies in its directory, or that of one rank."""
    return (
        join(folder, RECEIPT_NAME) if rank is None else join(folder, f"rank-{rank}", RECEIPT_NAME)
    )


def _without_dots(path: str) -> str:
    """Without "." and empty parts, so that its last part is a name; ".." stays, for links."""
    parts = [part for part in path.split(os.sep) if part not in ("", ".")]
    return (os.sep if path.startswith(os.sep) else "") + os.sep.join(parts)


def _latest_in(folder: str) -> str:
    runs = join(folder, RUNS_FOLDER)
    run = latest_run(runs)
    if run is None:
        raise ReceiptNotFound(
            f"There is no run below {runs}: start one with `compilediag run SCRIPT`, "
            "or name a receipt."
        )
    found = join(run, RECEIPT_NAME)
    if not isfile(found):
        raise ReceiptNotFound(f"The last run, {run}, has no {RECEIPT_NAME}.")
    return found


def latest_run(runs: AnyPath) -> str | None:
    """The directory `latest` names; None when nothing is there, or it names something outside."""
    latest = join(runs, LATEST)
    if isdir(latest):
        return os.path.realpath(latest)
    try:
        with open(latest, encoding="utf-8") as stream:
            name = stream.read(4096).strip()
    except (OSError, UnicodeDecodeError):
        return None
    # Only a plain name: the file is no way to lead a reader elsewhere.
    if not name or name != basename(name) or name in (".", ".."):
        return None
    return join(runs, name)


def point_latest(run_directory: AnyPath) -> None:
    """Makes `latest`, beside `run_directory`, name it: a link, or a text file with its name.

    Raises:
        OutputUnwritable: neither can be made.
    """
    run = os.fspath(run_directory)
    runs, name = os.path.split(os.path.abspath(run))
    latest = join(runs, LATEST)
    temporary = join(runs, f".latest-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        try:
            os.symlink(name, temporary, target_is_directory=True)
        except (OSError, NotImplementedError):
            with open(temporary, "w", encoding="utf-8") as stream:
                stream.write(name + "\n")
        os.replace(temporary, latest)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise OutputUnwritable(f"{latest} cannot be made: {error.strerror or error}.") from error
