"""`traces`: CPU seconds of `analyze` for a large trace beside those of tlparse, which writes pages
of every graph too; into memory where it can: on a disk, most of tlparse's seconds are the system's.
"""

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
    path.write_bytes((once := path.read_bytes()) * round(MB * 1e6 / len(once)))
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as out:
        numbers = itertools.count()

        def taken(*words: str) -> float:
            place = ("-o", f"{out}/{next(numbers)}", str(path))
            return cpu_seconds((*words, *place), environment())

        ours = (*COMPILEDIAG, "analyze", "-j", "1")  # a pool's seconds would not be counted
        found = change(interleave(lambda: taken(*TLPARSE), lambda: taken(*ours), bench.rounds))
    shares = " ".join(f"{1 + part:.3f}" for part in (found.median, found.low, found.high))
    base, verdict = f"tlparse -p {found.base:.2f} s", found.against(GOAL - 1)
    yield Row(f"analyze, {MB} MB", base, shares, f"≤ {GOAL}", verdict)


BENCHMARKS: dict[str, Benchmark] = {"traces": reading}
