"""What a call through a FixedShape costs, and what a stream of many sizes compiles with one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import PROGRAMS, Bench, Benchmark, Row, environment

GOAL_US = 50.0
CALLS, PAIRS = "300", "30"

WAYS = {
    "static": "a size each (dynamic=False)",
    "automatic": "automatic dynamic shapes (torch's default)",
    "one": "FixedShape, one size",
    "four": "FixedShape, four sizes from the planner",
}


def calling(bench: Bench) -> Iterator[Row]:
    """CPU of one call, bare and through a FixedShape, in one process in turn."""
    for rows, told in (("37", "37 rows padded to 64"), ("64", "64 rows, nothing to pad")):
        found = bench.in_turn("fixed_shape_in_turn.py", CALLS, PAIRS, rows)
        cost, low, high = (found.base * part for part in (found.median, found.low, found.high))
        yield Row(
            f"a FixedShape call over the bare compiled call: {told}",
            f"{found.base:.0f} µs",
            f"+{cost:.0f} µs [{low:.0f}, {high:.0f}]",
            f"≤ {GOAL_US:.0f} µs",
            found.against(GOAL_US / found.base),
        )


def streaming(bench: Bench) -> Iterator[Row]:
    """Compiles are counts and exact; the seconds are of one run each."""
    for way, told in WAYS.items():
        compiles, wall_s = stream(bench.folder, way)
        yield Row(
            f"40 batches, 32 sizes: {told}", f"{compiles} compiles", f"{wall_s:.1f} s", "", ""
        )


def stream(folder: Path, way: str) -> tuple[int, float]:
    """Compiles and wall seconds, with inductor's caches empty."""
    out = folder / f"stream-{way}.json"
    fresh = {**environment(), "TORCHINDUCTOR_CACHE_DIR": str(folder / f"cache-{way}")}
    command = [sys.executable, str(PROGRAMS / "stream_of_sizes.py"), way, str(out)]
    subprocess.run(command, env=fresh, check=True, capture_output=True)
    found = json.loads(out.read_text(encoding="utf-8"))
    return int(found["compiles"]), float(found["wall_s"])


def recording(bench: Bench) -> Iterator[Row]:
    """On a CUDA device: graphs, and milliseconds a batch once all are recorded; one run each."""
    import torch

    if not torch.cuda.is_available():
        yield Row("CUDA graphs of 32 sizes", "needs a CUDA device", "not run", "", "")
        return
    for way in ("static", "automatic", "four"):
        out = bench.folder / f"graphs-{way}.json"
        fresh = {**environment(), "TORCHINDUCTOR_CACHE_DIR": str(bench.folder / f"graphs-{way}")}
        command = [sys.executable, str(PROGRAMS / "graphs_of_sizes.py"), way, str(out)]
        subprocess.run(command, env=fresh, check=True, capture_output=True)
        found = json.loads(out.read_text(encoding="utf-8"))
        yield Row(
            f"CUDA graphs, 40 batches, 32 sizes: {WAYS[way]}",
            f"{found['recordings']} recordings, ready after {found['ready_s']:.1f} s",
            f"{found['batch_ms']:.3f} ms a batch",
            "",
            "",
        )


BENCHMARKS: dict[str, Benchmark] = {
    "fixed_shape": calling,
    "stream_of_sizes": streaming,
    "graphs_of_sizes": recording,
}
