"""CPU seconds of reading a receipt, and of a step that a program tracks itself."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import Bench, Benchmark, Row

from compilediag.receipt.file import receipt_from, to_json
from compilediag.receipt.versions import receipt_of
from compilediag_harness.base.session import Session
from compilediag_harness.extensions.tracker import tracked_run
from compilediag_harness.extensions.tracker.tracker import tracker

EXAMPLE = Path(__file__).parent.parent / "data" / "receipt-example.json"
RECEIPT_BYTES = 28 * 1024
READ_GOAL_S = 0.2e-3
STEP_GOAL_S = 10e-6
TIMES, STEPS = 500, 50_000


def reading(bench: Bench) -> Iterator[Row]:
    """From the bytes of the file to a checked receipt."""
    content = large_receipt()
    decoded = bench.median(lambda: seconds(lambda: json.loads(content), TIMES))
    used = bench.median(lambda: seconds(lambda: receipt_from(content, "receipt.json"), TIMES))
    yield Row(
        f"a receipt of {len(content) / 1024:.0f} KiB, decoded and validated",
        f"json.loads alone {decoded * 1e3:.2f} ms",
        f"{used * 1e3:.3f} ms CPU",
        f"≤ {READ_GOAL_S * 1e3:.1f} ms",
        "holds" if used <= READ_GOAL_S else "fails",
    )


def large_receipt() -> bytes:
    """The example of the design with more compiles and findings, until it has its size."""
    raw: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    events, findings = raw["compile"]["events"], raw["findings"]
    while len(content := to_json(receipt_of(copy.deepcopy(raw), "example"))) < RECEIPT_BYTES:
        event = copy.deepcopy(events[1 + len(events) % 3])
        events.append({**event, "compile_id": f"0/{len(events)}"})
        if len(events) % 4 == 0:
            findings.append(copy.deepcopy(findings[0]))
    return content


def tracking(bench: Bench) -> Iterator[Row]:
    """`record_step` with three metrics and one count; the end of the run is shared among steps."""
    alone = bench.median(tracked_step)
    session = Session(lambda event: None)
    tracked_run.sinks.install(session)
    told = bench.median(tracked_step)
    tracked_run.sinks.uninstall(session)
    for what, used in (("nobody listening", alone), ("a session listening", told)):
        yield Row(
            f"tracked step, 3 metrics and a count, {what}",
            "",
            f"{used * 1e6:.1f} µs CPU",
            f"≤ {STEP_GOAL_S * 1e6:.0f} µs",
            "holds" if used <= STEP_GOAL_S else "fails",
        )


def tracked_step() -> float:
    """CPU seconds of one step of a run."""
    lane = tracker().start_run()
    metrics = {"loss": 0.5, "accuracy": 0.25, "grad_norm": 1.5}
    began = time.process_time()
    for step in range(STEPS):
        lane.record_step(step, metrics, tokens=4096)
    lane.finish_run()
    return (time.process_time() - began) / STEPS


def seconds(action: Callable[[], object], times: int) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began) / times


BENCHMARKS: dict[str, Benchmark] = {"receipt": reading, "tracker": tracking}
