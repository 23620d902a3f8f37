"""`analyze` beside tlparse on the same traces: a large one, small ones, and those of many ranks.

The traces are made of one that torch writes when the benchmark begins. tlparse must read all of
what is made of it, and does more than `analyze` does: it writes every graph and a page for each.

Both write into memory where there is a file system for that: on a disk, most of what tlparse takes
is the system's for writing tens of thousands of files, and changes fourfold with the disk's state.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import COMPILEDIAG, PROGRAMS, Bench, Benchmark, Row
from measure import Change, Used, change, interleave, used
from scaled_traces import write_large, write_ranks

TLPARSE = (str(Path(sys.executable).with_name("tlparse")), "--no-browser", "-p")
FAILED = re.compile(r"fail_\w+: [1-9]")
RESIDENT_MB = 64
IN_MEMORY = Path("/dev/shm")


def analyzing(bench: Bench) -> Iterator[Row]:
    """One trace, large and small: CPU seconds and memory."""
    recorded = trace_of(bench, "large")
    large = bench.folder / "large.log"
    write_large(recorded, large, bench.trace_mb * 1_000_000)
    yield from beside(bench, large, (), f"1 trace of {bench.trace_mb} MB", 20.0)
    yield resident(bench, large, f"its memory, at {bench.trace_mb} MB")
    large.unlink()
    for name, raw in (("small", trace_of(bench, "small")), ("medium", recorded)):
        path = bench.folder / f"{name}.log"
        path.write_bytes(raw)
        yield from beside(bench, path, (), f"1 trace of {len(raw) / 1e6:.1f} MB", 0.5)


def many_ranks(bench: Bench) -> Iterator[Row]:
    """A small trace of each rank."""
    folder = bench.folder / "ranks"
    folder.mkdir()
    size = write_ranks(trace_of(bench, "small"), folder, bench.ranks)
    what = f"{bench.ranks} ranks, {size / 1e6:.0f} MB"
    yield from beside(bench, folder, ("--all-ranks-html",), what, 20.0)
    yield waited_for(bench, folder, what, 20.0)
    yield resident(bench, folder, f"memory of one process, at {bench.ranks} ranks")


def beside(
    bench: Bench, traces: Path, options: tuple[str, ...], what: str, goal: float
) -> Iterator[Row]:
    """CPU seconds of both programs, in turn."""
    check(bench, traces, options)
    theirs = lambda: cpu_of(bench, (*TLPARSE, *options, str(traces)))
    # One process: a pool would not be waited for, and its seconds not be counted.
    ours = lambda: cpu_of(bench, (*COMPILEDIAG, "analyze", "-j", "1", str(traces)))
    found = change(interleave(theirs, ours, bench.rounds))
    yield Row(
        f"analyze, {what}",
        f"tlparse {' '.join(('-p', *options))} {found.base:.3g} s CPU",
        f"{found.base * (1 + found.median):.3g} s CPU, {times(found)}",
        f"≥ {goal:g} × less" if goal > 1 else f"≤ {1 / goal:g} × as much",
        found.against(1 / goal - 1),
    )


def waited_for(bench: Bench, traces: Path, what: str, goal: float) -> Row:
    """Seconds that a user waits for either, each as it works by default: ours on every core."""
    options = (*TLPARSE, "--all-ranks-html", str(traces))
    theirs = lambda: used_by(bench, options).wall_s
    ours = lambda: used_by(bench, (*COMPILEDIAG, "analyze", str(traces))).wall_s
    found = change(interleave(theirs, ours, bench.rounds))
    return Row(
        f"analyze, {what}, as a user waits for it",
        f"tlparse -p --all-ranks-html {found.base:.3g} s",
        f"{found.base * (1 + found.median):.3g} s, {times(found)}",
        f"≥ {goal:g} × less",
        found.against(1 / goal - 1),
    )


def times(found: Change) -> str:
    """How many times less ours takes, or as much, with the interval."""
    more = [1 + part for part in (found.median, found.low, found.high)]
    if found.median < 0:
        middle, high, low = (1 / part for part in more)
        return f"{middle:.3g} × less [{low:.3g}, {high:.3g}]"
    middle, low, high = more
    return f"{middle:.3g} × as much [{low:.3g}, {high:.3g}]"


def cpu_of(bench: Bench, command: tuple[str, ...]) -> float:
    """CPU seconds of a command with an output folder of its own, which is removed."""
    return used_by(bench, command).cpu_s


def used_by(bench: Bench, command: tuple[str, ...]) -> Used:
    """What it takes, in the same way."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else bench.folder) as out:
        return used([*command, "-o", f"{out}/out"])


def resident(bench: Bench, traces: Path, what: str) -> Row:
    """The most memory that `analyze` has at any time, in one process."""
    out = bench.folder / "out"
    peak = used([*COMPILEDIAG, "analyze", "-j", "1", str(traces), "-o", str(out)]).peak_bytes / 1e6
    shutil.rmtree(out)
    holds = "holds" if peak <= RESIDENT_MB else "fails"
    return Row(what, "", f"{peak:.0f} MB resident", f"≤ {RESIDENT_MB} MB", holds)


def check(bench: Bench, traces: Path, options: tuple[str, ...]) -> None:
    """tlparse reads every record of what was made, by its own account."""
    out = bench.folder / "out"
    done = subprocess.run(
        [*TLPARSE, *options, str(traces), "-o", str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    shutil.rmtree(out)
    if "Stats {" not in done.stderr + done.stdout or FAILED.search(done.stderr + done.stdout):
        raise RuntimeError(f"tlparse does not take the traces:\n{done.stderr[-2000:]}")


def trace_of(bench: Bench, size: str) -> bytes:
    """What torch writes for a program with recompiles, breaks and, if large, a model."""
    folder = bench.folder / f"recorded-{size}"
    if not folder.is_dir():
        used(
            [sys.executable, str(PROGRAMS / "traced.py"), size],
            {**os.environ, "TORCH_TRACE": str(folder)},
        )
    (path,) = folder.iterdir()
    return path.read_bytes()


BENCHMARKS: dict[str, Benchmark] = {"analyze": analyzing, "ranks": many_ranks}
