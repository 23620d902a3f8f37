"""CPU seconds of short commands, the start of the interpreter included."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence

from bench import COMPILEDIAG, PROGRAMS, Bench, Benchmark, Row, environment
from measure import bootstrap, cpu_seconds

GOALS_MS = {"show": 80.0, "diff": 80.0, "gate": 60.0, "gate --fail-on": 60.0, "--help": 100.0}


def commands(bench: Bench) -> Iterator[Row]:
    """CPU of short commands, the interpreter's own start included, all of them in turn."""
    receipt = bench.folder / "commands"
    recorded = (*COMPILEDIAG, "run", "--quiet", "--no-live", "--output", str(receipt))
    program = [str(PROGRAMS / "compiles.py"), os.devnull, "eager", "5"]
    cpu_seconds([*recorded, *program], environment())
    baseline = [str(receipt), "--baseline", str(bench.folder / "compilediag.lock.json")]
    update = [*COMPILEDIAG, "gate", *baseline, "--update", "--reason", "known"]
    cpu_seconds(update, environment())
    arguments = {
        "show": ["show", str(receipt)],
        "diff": ["diff", str(receipt), str(receipt)],
        "gate": ["gate", *baseline],
        "gate --fail-on": ["gate", str(receipt), "--fail-on", "recompiles>900"],
        "--help": ["--help"],
    }
    lines = {name: [*COMPILEDIAG, *arguments[name]] for name in GOALS_MS}
    used = _in_turn({"": [sys.executable, "-c", "pass"], **lines}, bench.rounds)
    python = statistics.median(used[""])
    for name, goal in GOALS_MS.items():
        low, high = bootstrap(used[name])
        result = f"{statistics.median(used[name]):.0f} ms CPU [{low:.0f}, {high:.0f}]"
        verdict = "holds" if high <= goal else "fails" if low > goal else "not resolved"
        base = f"Python alone {python:.0f} ms"
        yield Row(f"`compilediag {name}`", base, result, f"≤ {goal:.0f} ms", verdict)


def _in_turn(lines: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[float]]:
    """CPU milliseconds of each command, once a round; one round is dropped."""
    used: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(rounds + 1):
        for name, line in lines.items():
            used[name].append(cpu_seconds(line, environment()) * 1e3)
    return {name: values[1:] for name, values in used.items()}


BENCHMARKS: dict[str, Benchmark] = {"commands": commands}
