"""What a program pays for being observed: in its steps, in its compiles, and for the live view."""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from bench import (
    COMPILEDIAG,
    PROGRAMS,
    Bench,
    Benchmark,
    Row,
    environment,
    share,
    spawn_on_terminal,
)
from measure import change, cpu_seconds, interleave

BLOCKS = {"1 ms": ("1", "300", "100"), "10 ms": ("7", "220", "60")}
"""Name of a step to the number of its layers, pairs of blocks, and noted steps in a block."""
COMPILES = {"inductor": ("10", "1"), "eager": ("110", "10")}
"""Backend to pairs of blocks, and frames in a block. Eager is Dynamo alone: the dearest case."""
LIVE_BLOCKS = ("448", "40", "300")
LAYERS = ("2", "8")
"""Of the model that generates text."""
STEP_GOAL, COMPILE_GOAL = 0.01, 0.03
GENERATE_GOAL, RECOMPILE_GOAL_S = 0.10, 0.1


def collectors(bench: Bench) -> Iterator[Row]:
    """What a running step pays for being observed: blocks of steps in turn, in one process."""
    for name, (layers, pairs, steps) in BLOCKS.items():
        found = bench.in_turn("steps_in_turn.py", layers, pairs, steps)
        yield share(f"collectors, {name} compiled step", found, STEP_GOAL, 1e3, "ms")


def compiles(bench: Bench) -> Iterator[Row]:
    """What compiling pays for being observed: frames in turn, in one process; its children (the
    C++ compiler) are counted."""
    for backend, (pairs, frames) in COMPILES.items():
        found = bench.in_turn("compiles_in_turn.py", backend, pairs, frames)
        yield share(f"compile-heavy, {backend}", found, COMPILE_GOAL, 1, "s")


def generate(bench: Bench) -> Iterator[Row]:
    """What a whole run pays that recompiles in a library's code, the start and the end of
    compilediag included: fresh processes; and the longest look at one recompile, wall."""
    if find_spec("transformers") is None:
        yield Row("generate", "", "", "", "skipped: transformers is not installed")
        return
    for layers in LAYERS:
        program = [str(PROGRAMS / "generate.py"), layers]
        longest: list[float] = []

        def plain(program: list[str] = program) -> float:
            return cpu_seconds([sys.executable, *program], environment())

        def observed(program: list[str] = program, longest: list[float] = longest) -> float:
            folder = bench.folder / f"generate-{time.time_ns()}"
            command = [*COMPILEDIAG, "run", "--quiet", "--no-live", "--output", str(folder)]
            used = cpu_seconds([*command, "--", *program], environment())
            longest.append(max(looks_s(folder)))
            return used

        what = f"generate with a static cache, {layers} layers, eager"
        found = change(interleave(plain, observed, bench.rounds))
        yield share(what, found, GENERATE_GOAL, 1, "s")
        middle = statistics.median(longest)
        verdict = "holds" if middle <= RECOMPILE_GOAL_S else "fails"
        goal = f"≤ {RECOMPILE_GOAL_S:g} s"
        yield Row("... its longest look at one recompile", "", f"{middle:.3f} s", goal, verdict)


def looks_s(folder: Path) -> list[float]:
    """Seconds of ours in each recompile of a run, as its journal has them."""
    lines = [line for path in folder.glob("journal-*.jsonl") for line in path.open()]
    records = [json.loads(line[line.index("{") : line.rindex("}") + 1]) for line in lines]
    return [record["analysis_s"] for record in records if record["k"] == "Recompiled"]


def live(bench: Bench) -> Iterator[Row]:
    """What the live view costs the program: another process draws it, and is stopped in turn."""
    out = bench.folder / "pairs.json"
    program = [str(PROGRAMS / "live_in_turn.py"), str(out), *LIVE_BLOCKS]
    spawn_on_terminal([*bench.run("--live"), *program])
    yield share(
        "live view, 1 ms compiled step", change(json.loads(out.read_text())), STEP_GOAL, 1e3, "ms"
    )


BENCHMARKS: dict[str, Benchmark] = {
    "collectors": collectors,
    "compiles": compiles,
    "generate": generate,
    "live": live,
}
