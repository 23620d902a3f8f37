"""What a whole cadence probe costs against the plain runs it is made of."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import COMPILEDIAG, Bench, Benchmark, Row, environment, share
from measure import change, cpu_seconds, interleave

PROGRAM = Path(__file__).parents[2] / "scenarios" / "metric_cadence" / "broken.py"
GOAL = 0.15

STEPS = "60"
MOVED = "7+6"
"""Every period and offset of the probe; any would do, since both sides fire equally often."""

VARIABLES = ("COMPILEDIAG_CADENCE_ACTIVATIONS", "COMPILEDIAG_CADENCE_ATTENTION_ENTROPY")


def settings() -> list[dict[str, str]]:
    """What moves the groups in each variant: configured, control, alone, alone, collision."""
    first, second = VARIABLES
    return [
        {},
        {first: "off", second: "off"},
        {first: MOVED, second: "off"},
        {first: "off", second: MOVED},
        {first: MOVED, second: MOVED},
    ]


def plain_runs() -> float:
    """CPU seconds of the same five runs, one after the other, without compilediag around them."""
    shared = environment() | {"COMPILEDIAG_OPTIONS": f'{{"steps": {STEPS}}}'}
    command = [sys.executable, str(PROGRAM)]
    return sum(cpu_seconds(command, shared | moved) for moved in settings())


def probe(bench: Bench) -> Iterator[Row]:
    """The probe starts the program five times, observes it, and makes six receipts."""

    def whole() -> float:
        output = str(bench.folder / f"probe-{time.time_ns()}")
        options = ("--quiet", "--no-live", "--steps", STEPS, "--output", output)
        return cpu_seconds((*COMPILEDIAG, "probe", *options, str(PROGRAM)), environment())

    found = change(interleave(plain_runs, whole, bench.rounds))
    yield share("cadence probe of five runs", found, GOAL, 1, "s")


BENCHMARKS: dict[str, Benchmark] = {"probe": probe}
