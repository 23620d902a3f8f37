"""Starts a program twice with the same caches, which are empty before the first start."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from compilediag.compare.cold_and_warm import (
    conclude,
    not_concluded,
    with_starts,
)
from compilediag.errors import EXIT_INTERNAL, EXIT_OK, EXIT_USAGE, OutputUnwritable, UsageError
from compilediag.receipt.locate import RECEIPT_NAME
from compilediag.runs.run_directory import save_receipt
from compilediag.runs.supervised.child import Outcome, with_receipt
from compilediag.runs.supervised.options import RunOptions
from compilediag.runs.supervised.run import Program, caches, fault_note, program_in_own_folder

COLD = "cold"
"""Folder of the first start, below the directory of the second."""

_REMOTE = ("REMOTE_CACHE", "REMOTE_PGO")
"""In the names of variables that switch on caches of other machines, which are not empty."""

Announce = Callable[[str], None]


def run_twice(
    words: Sequence[str],
    options: RunOptions,
    announce: Announce = lambda text: None,
    environ: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs TARGET twice, and says what the second start still compiles.

    The receipt is that of the second start; the first one's is in the folder `cold` beside it.
    Where the first start fails, it is the run, and there is no second. The exit code is that of the
    newest start; 2 where that is 0 and nothing could be concluded.

    Args:
        words: TARGET and everything after it.
        options: how to run it.
        announce: called before each start with what it is.
        environ: the environment of the target, before ours is added; this process's by default.

    Raises:
        UsageError: nothing was started.
        OutputUnwritable: there is no room for the run or for its caches.
    """
    program = program_in_own_folder(words, options, environ)
    try:
        with (
            caches(keep=False) as new,
            tempfile.TemporaryDirectory(
                prefix="compilediag-cold-", ignore_cleanup_errors=True
            ) as place,
        ):
            remote = [name for name in program.variables if any(part in name for part in _REMOTE)]
            variables = {**program.variables, **dict.fromkeys(remote, "0"), **new}
            program = replace(program, variables=variables)
            cold_folder = os.path.join(place, COLD)
            return _both(program, announce, cold_folder, new["TORCHINDUCTOR_CACHE_DIR"])
    except UsageError:
        shutil.rmtree(program.folder, ignore_errors=True)  # ours and new: nothing was started
        raise
    except OSError as error:
        raise OutputUnwritable(
            f"a temporary folder for the caches cannot be made ({error.strerror or error}): set "
            "TMPDIR to a folder with room"
        ) from error


def _both(program: Program, announce: Announce, cold_folder: str, cache_folder: str) -> Outcome:
    announce("start 1 of 2: empty caches")
    cold = program.run(cold_folder, keep_caches=True, label="start 1, cold", telemetry=None)
    if cold.exit_code or cold.receipt is None or cold.receipt.status != "complete":
        return _only_cold(program, cold)
    emptied = not any(files for _, _, files in os.walk(cache_folder))
    announce("start 2 of 2: the caches that start 1 left")
    warm = program.run(program.folder, keep_caches=True, label="start 2, warm")
    shutil.move(cold.run_dir, os.path.join(warm.run_dir, COLD))
    return _compared(program, cold, warm, cache_folder, emptied=emptied)


def _only_cold(program: Program, cold: Outcome) -> Outcome:
    """The run is the first start, at the place of both."""
    why = "the first start failed" if cold.exit_code else "the first start is not whole"
    note = f"{why}: there was no second, and nothing is compared"
    if cold.moved:
        return replace(cold, notes=(*cold.notes, note))
    shutil.copytree(cold.run_dir, program.folder, dirs_exist_ok=True)
    path = os.path.join(program.folder, RECEIPT_NAME) if cold.receipt_path is not None else None
    if cold.receipt is not None and path is not None:
        save_receipt(cold.receipt, program.folder, latest=program.options.output is None)
    code = cold.exit_code or EXIT_USAGE
    return replace(
        cold, exit_code=code, run_dir=program.folder, receipt_path=path, notes=(*cold.notes, note)
    )


def _compared(
    program: Program, cold: Outcome, warm: Outcome, cache_folder: str, *, emptied: bool
) -> Outcome:
    if warm.receipt is None or warm.timeline is None or cold.timeline is None:
        return warm
    if warm.receipt.status != "complete" or warm.exit_code:
        found = not_concluded(
            f"the second start ended as {warm.receipt.status} with exit code {warm.exit_code}"
        )
    else:
        found = conclude(cold.timeline, warm.timeline, cache_folder)
    if emptied and found.section.verdict != "not_concluded":
        note = (
            "nothing was left in the cache folder after the first start: it was deleted, or "
            "nothing could be written"
        )
        section = found.section
        section = msgspec.structs.replace(section, notes=(*section.notes, note))
        found = found._replace(section=section)
    code = warm.exit_code or (EXIT_USAGE if found.section.verdict == "not_concluded" else EXIT_OK)
    try:
        receipt = with_starts(warm.receipt, warm.timeline, found, program.secrets)
    except Exception as error:
        return replace(warm, exit_code=code or EXIT_INTERNAL, notes=(fault_note(error),))
    latest = program.options.output is None and not warm.moved
    return with_receipt(replace(warm, exit_code=code), receipt, latest=latest)
