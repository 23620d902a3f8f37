"""Many receipts: the commands over them, and what trends find."""

import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

from bench import COMPILEDIAG, Bench, Benchmark, Row, environment
from measure import cpu_seconds

from compilediag.extensions.fleet.noisy_steps import StepRule, find_steps

GOLDEN = Path(__file__).parents[1] / "data" / "receipt-1.0.json"
SERIES, NOISE, OUTLIERS = 500, 0.02, 0.05


def trends(bench: Bench) -> Iterator[Row]:
    """The commands over a thousand receipts."""
    folder = str(_receipts(bench.folder / "trends", 1000, 1))
    for name in ("stats", "trend"):
        command = [*COMPILEDIAG, name, folder]
        used = bench.median(lambda line=command: cpu_seconds(line, environment())) * 1e3
        yield Row(f"`compilediag {name}`, 1,000 receipts", "", f"{used:.0f} ms CPU", "", "")


def power(bench: Bench) -> Iterator[Row]:
    """How often a slowdown of the newest runs of 100 is found, and how often none is."""
    draw = random.Random(2026)
    about = f"noise {NOISE:.0%}, {OUTLIERS:.0%} outliers of +50 %"
    for number in (20, 50, 100, 300):
        found = sum(bool(_steps(draw, [1.0] * number)) for _ in range(SERIES))
        yield Row(f"trend, {number} runs, no change", about, f"{found / SERIES:.1%}", "≤ 1 %", "")
    for number in (20, 30, 100):
        alike = sum(bool(_steps(draw, [1.0] * number, 0.6)) for _ in range(SERIES))
        what = f"trend, {number} runs, no change, neighbours alike (0.6)"
        yield Row(what, about, f"{alike / SERIES:.1%}", "", "")
    for slower in (0.03, 0.05, 0.10):
        for newest_runs in (5, 8, 10, 15, 30):
            found = covered = 0
            begins = 100 - newest_runs
            for _ in range(SERIES):
                told = _steps(draw, [1.0] * begins + [1 + slower] * newest_runs)
                found += bool(told)
                covered += any(item.earliest <= begins <= item.latest for item in told)
            result = f"{found / SERIES:.0%} found; range right in {covered / max(found, 1):.0%}"
            yield Row(
                f"trend, newest {newest_runs} of 100 runs {slower:.0%} slower", "", result, "", ""
            )
    both = {
        "30 runs, 20 that are 6% slower, 30 as before": [1.0] * 30 + [1.06] * 20 + [1.0] * 30,
        "40 runs, 10 that are 10% slower, 50 as before": [1.0] * 40 + [1.1] * 10 + [1.0] * 50,
        "30 runs, 30 that are 4% slower, 30 by 8%": [1.0] * 30 + [1.04] * 30 + [1.08] * 30,
    }
    for what, levels in both.items():
        found = sum(len(_steps(draw, levels)) == 2 for _ in range(SERIES))
        yield Row(f"trend, {what}", "", f"{found / SERIES:.0%} both found", "", "")


def _steps(draw: random.Random, levels: list[float], alike: float = 0.0):
    values: list[float] = []
    state = draw.gauss(0, 1)
    for level in levels:
        state = alike * state + math.sqrt(1 - alike**2) * draw.gauss(0, 1)
        value = 100 * (1 + NOISE * state) * (1.5 if draw.random() < OUTLIERS else 1)
        values.append(value * level)
    ties = [draw.getrandbits(32) for _ in values]
    return find_steps(values, ties, StepRule(chance=0.01, min_change=0.02))


def _receipts(folder: Path, number: int, lanes: int) -> Path:
    """Receipts as they are written, with noise in their step times."""
    folder.mkdir()
    raw = json.loads(GOLDEN.read_text())
    draw = random.Random(7)
    for place in range(number):
        raw["receipt_id"] = f"R{place:025d}"
        raw["header"]["lane"]["name"] = f"lane{place % lanes}"
        moment = time.gmtime(1_760_000_000 + 600 * place)
        raw["header"]["created_at_utc"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
        raw["steps"]["median"] = 0.1 * (1 + NOISE * draw.gauss(0, 1))
        (folder / f"r{place:06d}.json").write_text(json.dumps(raw))
    return folder


BENCHMARKS: dict[str, Benchmark] = {"trends": trends, "trend_power": power}
