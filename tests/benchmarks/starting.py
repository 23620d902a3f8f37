"""CPU seconds of short commands, the start of the interpreter included."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from bench import COMPILEDIAG, PROGRAMS, Bench, Benchmark, Row, environment
from measure import cpu_seconds

GOALS_MS = {"show": 80.0, "diff": 80.0, "gate": 60.0, "--help": 100.0}


def commands(bench: Bench) -> Iterator[Row]:
    """CPU of short commands, the interpreter's own start included."""
    receipt = bench.folder / "commands"
    recorded = (*COMPILEDIAG, "run", "--quiet", "--no-live", "--output", str(receipt))
    program = [str(PROGRAMS / "compiles.py"), os.devnull, "eager", "5"]
    cpu_seconds([*recorded, *program], environment())
    python = bench.median(lambda: cpu_seconds([sys.executable, "-c", "pass"])) * 1e3
    baseline = [str(receipt), "--baseline", str(bench.folder / "compilediag.lock.json")]
    update = [*COMPILEDIAG, "gate", *baseline, "--update", "--reason", "known"]
    cpu_seconds(update, environment())
    arguments = {
        "show": [str(receipt)],
        "diff": [str(receipt), str(receipt)],
        "gate": baseline,
        "--help": [],
    }
    for name, goal in GOALS_MS.items():
        command = [*COMPILEDIAG, name, *arguments[name]]
        used = bench.median(lambda command=command: cpu_seconds(command, environment())) * 1e3
        verdict = "holds" if used <= goal else "fails"
        base = f"Python alone {python:.0f} ms"
        yield Row(f"`compilediag {name}`", base, f"{used:.0f} ms CPU", f"≤ {goal:.0f} ms", verdict)


BENCHMARKS: dict[str, Benchmark] = {"commands": commands}
