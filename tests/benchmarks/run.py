"""What compilediag costs, as one Markdown table; `make bench` runs it on the current environment.

Comparisons are interleaved (A B, B A, ...) and the number is CPU seconds. Both sides run in one
process where they can, in fresh processes where not. A result is "not resolved" where the noise is
wider than the goal. Each module of benchmarks lists its own in BENCHMARKS.
"""

import argparse
import os
import platform
import tempfile
from pathlib import Path

import fixing
import in_process
import observing
import reading_logs
import trending
import whole_commands
from bench import Bench, Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    **observing.BENCHMARKS,
    **in_process.BENCHMARKS,
    **whole_commands.BENCHMARKS,
    **fixing.BENCHMARKS,
    **trending.BENCHMARKS,
    **reading_logs.BENCHMARKS,
}


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
        bench = Bench(Path(folder), options.rounds)
        for name in options.names or BENCHMARKS:
            for row in BENCHMARKS[name](bench):
                cells = (row.what, row.base, row.result, row.goal, row.verdict)
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
