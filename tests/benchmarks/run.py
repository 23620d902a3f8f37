"""What compilediag costs, as one Markdown table; `make bench` runs it on the current environment.

Comparisons are interleaved (A B, B A, ...), each measurement is a fresh process, and the number is
CPU seconds. A result is "not resolved" where the noise is wider than the goal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Change, change, cpu_seconds, interleave

PROGRAMS = Path(__file__).parent / "programs"
COMPILEDIAG = (sys.executable, "-m", "compilediag")
WIDTHS = {"1 ms": ("448", "4000"), "10 ms": ("1472", "600")}
"""Name of a step to the width of its layers and how many steps are measured."""
COLLECTOR_GOAL, COMPILE_GOAL = 0.01, 0.03
COMMAND_GOALS_MS = {"show": 80.0, "diff": 80.0, "--help": 100.0}
RECORD_GOAL_US = 10.0
RECORDS = 20_000


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

    def inside(self, prefix: Sequence[str], *program: str, live: bool = False) -> float:
        """What a program measured of itself, started by `prefix`, on a terminal when `live`."""
        out = self.folder / "measured.json"
        script, *arguments = program
        command = [*prefix, str(PROGRAMS / script), str(out), *arguments]
        spawn_on_terminal(command) if live else cpu_seconds(command, environment())
        return float(json.loads(out.read_text()))

    def run(self, *options: str) -> tuple[str, ...]:
        """The start of a command that runs its program under compilediag."""
        return (*COMPILEDIAG, "run", *options, "--output", str(self.folder / f"r{time.time_ns()}"))

    def compare(self, a: Callable[[], float], b: Callable[[], float]) -> Change:
        """B against A, interleaved."""
        return change(interleave(a, b, self.rounds))

    def median(self, measure: Callable[[], float]) -> float:
        """Of `rounds` measurements, after one that is dropped."""
        measure()
        return statistics.median(measure() for _ in range(self.rounds))


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


# --- the benchmarks --------------------------------------------------------------------------


def collectors(bench: Bench) -> Iterator[Row]:
    """What a running step pays for being observed."""
    for name, size in WIDTHS.items():
        plain = lambda size=size: bench.inside([sys.executable], "steps.py", *size)
        seen = lambda size=size: bench.inside(bench.run("--quiet", "--no-live"), "steps.py", *size)
        found = bench.compare(plain, seen)
        yield share(f"collectors, {name} compiled step", found, COLLECTOR_GOAL, 1e3, "ms")


def compiles(bench: Bench) -> Iterator[Row]:
    """What a process that mostly compiles pays, in total CPU seconds."""
    cases = {"inductor": ("inductor", "6"), "eager backend, Dynamo only": ("eager", "60")}
    for name, size in cases.items():
        plain = lambda size=size: bench.inside([sys.executable], "compiles.py", *size)
        seen = lambda size=size: bench.inside(
            bench.run("--quiet", "--no-live"), "compiles.py", *size
        )
        yield share(f"compile-heavy, {name}", bench.compare(plain, seen), COMPILE_GOAL, 1, "s")


def live(bench: Bench) -> Iterator[Row]:
    """What the live view costs the target: it is drawn by another process."""
    size = WIDTHS["1 ms"]
    dark = lambda: bench.inside(bench.run("--no-live"), "steps.py", *size, live=True)
    lit = lambda: bench.inside(bench.run(), "steps.py", *size, live=True)
    yield share(
        "live view, 1 ms compiled step", bench.compare(dark, lit), COLLECTOR_GOAL, 1e3, "ms"
    )


def commands(bench: Bench) -> Iterator[Row]:
    """CPU of short commands, the interpreter's own start included."""
    receipt = bench.folder / "commands"
    recorded = (*COMPILEDIAG, "run", "--quiet", "--no-live", "--output", str(receipt))
    program = [str(PROGRAMS / "compiles.py"), os.devnull, "eager", "5"]
    cpu_seconds([*recorded, *program], environment())
    python = bench.median(lambda: cpu_seconds([sys.executable, "-c", "pass"])) * 1e3
    arguments = {"show": [str(receipt)], "diff": [str(receipt), str(receipt)], "--help": []}
    for name, goal in COMMAND_GOALS_MS.items():
        command = [*COMPILEDIAG, name, *arguments[name]]
        used = bench.median(lambda command=command: cpu_seconds(command, environment())) * 1e3
        verdict = "holds" if used <= goal else "fails"
        base = f"Python alone {python:.0f} ms"
        yield Row(f"`compilediag {name}`", base, f"{used:.0f} ms CPU", f"≤ {goal:.0f} ms", verdict)


def journal(bench: Bench) -> Iterator[Row]:
    """One record, encoded and written: CPU time of the call, system time included."""
    from compilediag_harness.journal import Journal
    from compilediag_harness.wire import Compiled, Location, encode

    folder = bench.folder / "journal"
    folder.mkdir()
    event = Compiled(
        t=1.25,
        step=3,
        compile_id="0/1",
        epoch=0,
        frame=Location("train.py", 31, "forward"),
        forward=True,
        guarded=True,
        seconds=0.43,
        backend_s=0.3,
        graph_ops=70,
        guards=58,
        cache_size=1,
        recompile_reason="0/0: flag == False",
        fail_type=None,
        fail_reason=None,
    )
    sink = Journal(str(folder), lambda: encode(event))

    def block() -> float:
        began = time.process_time()
        for _ in range(RECORDS):
            sink.write(event)
        return (time.process_time() - began) / RECORDS * 1e6

    used = bench.median(block)
    written = sum(1 for file in folder.iterdir() for _ in file.open("rb"))
    if written < RECORDS * (bench.rounds + 1):
        raise RuntimeError(f"the journal holds {written} records: what was measured is not writing")
    verdict = "holds" if used <= RECORD_GOAL_US else "fails"
    yield Row("journal record", "", f"{used:.1f} µs CPU", f"≤ {RECORD_GOAL_US:.0f} µs", verdict)


BENCHMARKS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "journal": journal,
    "commands": commands,
    "collectors": collectors,
    "compiles": compiles,
    "live": live,
}


# --- the table -------------------------------------------------------------------------------


def share(what: str, found: Change, goal: float, scale: float, unit: str) -> Row:
    """A row for a comparison: `scale` turns the base from seconds into `unit`."""
    result = f"{found.median:+.1%} [{found.low:+.1%}, {found.high:+.1%}]"
    base = f"{found.base * scale:.2f} {unit}"
    return Row(what, base, result, f"≤ {goal:.0%}", found.against(goal))


def machine() -> str:
    """What the figures depend on, in one line."""
    from importlib.metadata import version

    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return (
        f"{platform.machine()}, {cores} cores, load {load:.1f} at the start, "
        f"Python {platform.python_version()}, torch {version('torch')}"
    )


def main() -> None:
    """Runs what was asked for and prints the table as it grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=9, help="at least 7 (default 9)")
    options = parser.parse_args()
    if options.rounds < 7:
        parser.error("fewer than 7 rounds say nothing")
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    print(f"{machine()}, {options.rounds} rounds\n")
    print("| what | without | cost [95 % interval] | goal | verdict |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="compilediag-bench-") as folder:
        for name in options.names or BENCHMARKS:
            for row in BENCHMARKS[name](Bench(Path(folder), options.rounds)):
                cells = (row.what, row.base, row.result, row.goal, row.verdict)
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
