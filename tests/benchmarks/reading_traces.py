"""`traces`: CPU seconds of `analyze` for a large trace beside those of tlparse, which must read all
of it too, and does more: it writes every graph, and a page for each.

Both write into memory where there is a file system for that: most of what tlparse takes on a disk
is the system's, and changes fourfold with the disk's state.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import COMPILEDIAG, PROGRAMS, Bench, Benchmark, Row, environment
from measure import change, cpu_seconds, interleave

MB = 100
GOAL = 0.12
TLPARSE = (str(Path(sys.executable).with_name("tlparse")), "--no-browser", "-p")
IN_MEMORY = Path("/dev/shm")


def reading(bench: Bench) -> Iterator[Row]:
    """One trace of a model, repeated: ids begin again, as after `torch._dynamo.reset()`."""
    folder = bench.folder / "traces"
    cpu_seconds(
        [sys.executable, str(PROGRAMS / "traced.py"), "large"],
        {**environment(), "TORCH_TRACE": str(folder)},
    )
    (path,) = folder.iterdir()
    recorded = path.read_bytes()
    path.write_bytes(recorded * round(MB * 1e6 / len(recorded)))
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as out:
        numbers = itertools.count()

        def taken(*words: str) -> float:
            place = ("-o", f"{out}/{next(numbers)}", str(path))
            return cpu_seconds((*words, *place), environment())

        # One process: a pool would not be waited for, and its seconds not be counted.
        ours = (*COMPILEDIAG, "analyze", "-j", "1")
        pairs = interleave(lambda: taken(*TLPARSE), lambda: taken(*ours), bench.rounds)
        found = change(pairs)
    shares = " ".join(f"{1 + part:.3f}" for part in (found.median, found.low, found.high))
    verdict = found.against(GOAL - 1)
    yield Row(f"analyze, {MB} MB", f"tlparse -p {found.base:.2f} s", shares, f"≤ {GOAL}", verdict)


BENCHMARKS: dict[str, Benchmark] = {"traces": reading}
