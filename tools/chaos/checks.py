"""What must hold after a disturbed run, however it was disturbed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from compilediag.errors import CompilediagError
from compilediag.receipt.file import read_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.child import RUN_DIR_VARIABLE

ORPHAN_S = 60.0
"""How long processes of a run may take to end after it, on a machine that is busy."""


@dataclass(frozen=True)
class Trial:
    """One disturbed run that has ended."""

    name: str
    run_dir: Path
    scratch: Path
    """TMPDIR of the run."""
    code: int
    """Exit code of the command."""
    expected_codes: tuple[int, ...]
    """What a shell would have reported without us."""
    text: str
    """The verdict screen."""
    recompiles: int | None = None
    """How many there are in an undisturbed run; None: not the same every time."""
    writable: bool = True
    """The receipt had somewhere to go."""
    found: tuple[str, ...] = ()
    """What did not hold before it ended."""
    receipt_dir: Path | None = None
    """Where the receipt is; None: in the folder of the run."""


def problems(trial: Trial) -> list[str]:
    """What does not hold, in words; empty when everything does."""
    found = [
        *trial.found,
        *_wrong_code(trial),
        *_wrong_receipt(trial),
        *_left_over(trial.run_dir),
        *_left_over(trial.scratch),
        *_alive(trial.run_dir),
    ]
    return [f"{trial.name}: {problem}" for problem in found]


def _wrong_code(trial: Trial) -> list[str]:
    if trial.code in trial.expected_codes:
        return []
    return [f"exit code {trial.code}, without us {trial.expected_codes}: {trial.text[-500:]}"]


def _wrong_receipt(trial: Trial) -> list[str]:
    try:
        receipt = read_receipt(trial.receipt_dir or trial.run_dir)
    except CompilediagError as error:
        return [f"no receipt: {error}"] if trial.writable else []
    return [*_wrong_count(receipt, trial), *_false_tick(receipt, trial)]


def _wrong_count(receipt: Receipt, trial: Trial) -> list[str]:
    seen = receipt.compile.recompiles
    if trial.recompiles is None:
        return []
    whole = receipt.status == "complete" and receipt.verdict != "blind"
    if seen > trial.recompiles or (whole and seen != trial.recompiles):
        return [f"{seen} recompiles of {trial.recompiles}, status {receipt.status}"]
    return []


def _false_tick(receipt: Receipt, trial: Trial) -> list[str]:
    """Every target recompiles, or is ended before it does. Of a run that was ended so, "clean" is
    what was seen until then: its status says that this is not all, and no screen has a tick."""
    if (receipt.verdict, receipt.status) == ("clean", "complete") or "✓" in trial.text:
        return [f"called clean: {receipt.verdict}, {receipt.status}: {trial.text[:200]}"]
    return []


def _left_over(folder: Path) -> list[str]:
    """Temporary files of ours: all end in `.tmp` or hold our name."""
    return [
        f"left behind: {path}"
        for path in folder.rglob("*")
        if path.name.endswith(".tmp") or (folder.name == "tmp" and "compilediag" in path.name)
    ]


def _alive(run_dir: Path) -> list[str]:
    """Processes of the run that outlive it."""
    until = time.monotonic() + ORPHAN_S
    while (alive := processes_of(run_dir)) and time.monotonic() < until:
        time.sleep(0.1)
    return [f"still runs: {process}" for process in alive]


def processes_of(run_dir: Path) -> list[psutil.Process]:
    """Those that were started with this run's folder in their environment."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_DIR_VARIABLE) == os.fspath(run_dir):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
