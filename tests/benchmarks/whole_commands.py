"""CPU seconds of whole commands: short ones, with the start of the interpreter; a cadence probe
beside its plain runs; `analyze` of a large trace beside tlparse, which writes pages of every graph
too, into memory where it can: on a disk, most of its seconds are the system's.
"""

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import COMPILEDIAG, PROGRAMS, Bench, Benchmark, Row, environment, share
from measure import bootstrap, change, cpu_seconds, interleave

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


# --- a probe ---

PROBED = Path(__file__).parents[2] / "scenarios" / "metric_cadence" / "broken.py"
PROBE_GOAL = 0.15

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
    command = [sys.executable, str(PROBED)]
    return sum(cpu_seconds(command, shared | moved) for moved in settings())


def probe(bench: Bench) -> Iterator[Row]:
    """The probe starts the program five times, observes it, and makes six receipts."""

    def whole() -> float:
        output = str(bench.folder / f"probe-{time.time_ns()}")
        options = ("--quiet", "--no-live", "--steps", STEPS, "--output", output)
        return cpu_seconds((*COMPILEDIAG, "probe", *options, str(PROBED)), environment())

    found = change(interleave(plain_runs, whole, bench.rounds))
    yield share("cadence probe of five runs", found, PROBE_GOAL, 1, "s")


# --- a large trace ---

MB = 100
TRACES_GOAL = 0.12
TLPARSE = (str(Path(sys.executable).with_name("tlparse")), "--no-browser", "-p")
IN_MEMORY = Path("/dev/shm")


def traces(bench: Bench) -> Iterator[Row]:
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
    base, verdict = f"tlparse -p {found.base:.2f} s", found.against(TRACES_GOAL - 1)
    yield Row(f"analyze, {MB} MB", base, shares, f"≤ {TRACES_GOAL}", verdict)


BENCHMARKS: dict[str, Benchmark] = {"commands": commands, "probe": probe, "traces": traces}
