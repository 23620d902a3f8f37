"""CPU seconds of short commands, the start of the interpreter included."""

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence

from bench import COMPILEDIAG, PROGRAMS, Bench, Benchmark, Row, environment
from measure import bootstrap, cpu_seconds

COMMANDS = ("show", "diff", "gate", "gate --fail-on", "--help")
START_UP_MS = 120.0
"""CPU time that a command which reads receipts may take to start and answer."""


def commands(bench: Bench) -> Iterator[Row]:
    """CPU of short commands, the interpreter's own start included, all of them in turn."""
    receipt = bench.folder / "commands"
    recorded = (*COMPILEDIAG, "run", "--quiet", "--no-live", "--output", str(receipt))
    cpu_seconds([*recorded, str(PROGRAMS / "compiles.py")], environment())
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
    lines = {name: [*COMPILEDIAG, *arguments[name]] for name in COMMANDS}
    used = _in_turn({"": [sys.executable, "-c", "pass"], **lines}, bench.rounds)
    python = statistics.median(used[""])
    for name in COMMANDS:
        low, high = bootstrap(used[name])
        result = f"{statistics.median(used[name]):.0f} ms CPU [{low:.0f}, {high:.0f}]"
        verdict = (
            "holds" if high <= START_UP_MS else "fails" if low > START_UP_MS else "not resolved"
        )
        base = f"Python alone {python:.0f} ms"
        yield Row(f"`compilediag {name}`", base, result, f"≤ {START_UP_MS:.0f} ms", verdict)


def _in_turn(lines: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[float]]:
    """CPU milliseconds of each command, once a round; one round is dropped."""
    used: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(rounds + 1):
        for name, line in lines.items():
            used[name].append(cpu_seconds(line, environment()) * 1e3)
    return {name: values[1:] for name, values in used.items()}


BENCHMARKS: dict[str, Benchmark] = {"commands": commands}
