"""What a running step pays for telemetry: every exporter at once, to receivers that answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

from bench import PROGRAMS, Bench, Benchmark, Row, environment, share
from measure import change, cpu_seconds

EVERY_S = "0.25"
"""Sixty times as often as users can ask for: in every block there is a push."""
BLOCKS = ("448", "200", "200")
STEP_GOAL = 0.01
WHAT = "telemetry four times a second, 1 ms compiled step"


def telemetry(bench: Bench) -> Iterator[Row]:
    """OTLP, push gateway and text file, stopped in turn: wall time of the median step, CPU time of
    the mean one."""
    if any(find_spec(name) is None for name in ("opentelemetry", "prometheus_client")):
        yield Row(WHAT, "", "", "", "not measured: pip install 'compilediag[otel,prometheus]'")
        return
    out = bench.folder / "pairs.json"
    receiver = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "receiver.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert receiver.stdout is not None
    url = f"http://127.0.0.1:{receiver.stdout.readline().strip()}"
    told = [
        url,
        str(bench.folder / "bench.prom"),
        EVERY_S,
        str(bench.folder / f"t{time.time_ns()}"),
    ]
    program = [str(PROGRAMS / "telemetry_in_turn.py"), str(out), *BLOCKS]
    try:
        cpu_seconds([sys.executable, str(PROGRAMS / "telling.py"), *told, *program], environment())
    finally:
        receiver.communicate()
    for clock, pairs in json.loads(out.read_text()).items():
        yield share(f"{WHAT}, {clock}", change(pairs), STEP_GOAL, 1e3, "ms")


BENCHMARKS: dict[str, Benchmark] = {"telemetry": telemetry}
