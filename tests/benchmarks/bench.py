"""What every benchmark needs: where its programs run, how often, and a row of the table."""

import json
import os
import pty
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Change, change, cpu_seconds

PROGRAMS = Path(__file__).parent / "programs"
COMPILEDIAG = (str(Path(sys.executable).with_name("compilediag")),)
"""As it is installed; `python -m compilediag` starts some milliseconds later."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    base: str
    result: str
    goal: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the programs write, and how often they run."""

    folder: Path
    rounds: int

    def in_turn(self, script: str, *size: str) -> Change:
        """A program that does both sides in one process and writes the pairs."""
        out, journal = self.folder / "pairs.json", self.folder / f"{script}-{time.time_ns()}"
        journal.mkdir()
        command = [sys.executable, str(PROGRAMS / script), str(out), *size, str(journal)]
        cpu_seconds(command, environment())
        pairs: list[tuple[float, float]] = json.loads(out.read_text())
        return change(pairs)

    def run(self, *options: str) -> tuple[str, ...]:
        """The start of a command that runs its program under compilediag."""
        return (*COMPILEDIAG, "run", *options, "--output", str(self.folder / f"r{time.time_ns()}"))

    def median(self, measure: Callable[[], float]) -> float:
        """Of `rounds` measurements, after one that is dropped."""
        measure()
        return statistics.median(measure() for _ in range(self.rounds))


Benchmark = Callable[[Bench], Iterator[Row]]


def environment() -> dict[str, str]:
    """Compiling in this process, without inductor's caches: what a first run pays. Python's own
    bytecode cache is in use, as in every second start of an installed program."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "OMP_NUM_THREADS": "1",
    }


def spawn_on_terminal(command: Sequence[str]) -> None:
    """Runs a command whose output is a terminal that somebody reads."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment() | {"TERM": "xterm-256color"},
    )
    os.close(theirs)
    reader = threading.Thread(target=drain, args=(ours,), daemon=True)
    reader.start()
    code = child.wait()
    reader.join()
    os.close(ours)
    if code != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {code}")


def drain(terminal: int) -> None:
    """Reads until the other end is closed."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # how Linux says that the other end of a terminal is closed
        return


def share(what: str, found: Change, goal: float, scale: float, unit: str) -> Row:
    """A row for a comparison: `scale` turns the base from seconds into `unit`."""
    result = f"{found.median:+.1%} [{found.low:+.1%}, {found.high:+.1%}]"
    base = f"{found.base * scale:.2f} {unit}"
    return Row(what, base, result, f"≤ {goal:.0%}", found.against(goal))
