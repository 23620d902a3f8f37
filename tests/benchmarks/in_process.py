"""What our own code costs alone, in this process: a span, a plan, a receipt that is read.

Without a program around it what remains of the noise is that of a CPU.
"""

import copy
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import Bench, Benchmark, Row

from compilediag.receipt.file import convert_receipt, decode_receipt, encode_receipt
from compilediag_harness.shapes.buckets import plan

SPAN_GOAL_US, PLAN_GOAL_S, READ_GOAL_S = 1.0, 0.5, 0.2e-3
SPANS = 20_000
FEW = 400
"""Spans that end before they are placed."""
SIZES, BUCKETS = 5_000, 16
EXAMPLE = Path(__file__).parent.parent / "data" / "receipt-example.json"
RECEIPT_BYTES = 28 * 1024


def seconds(action: Callable[[], object], times: int = 1) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began) / times


def spans(bench: Bench) -> Iterator[Row]:
    """A span with a handle that is used again: what its line pays, and all of it, with the step
    and phase it belongs to, its encoding and writing."""
    import torch

    from compilediag_harness.base.journal import Journal
    from compilediag_harness.base.session import Session
    from compilediag_harness.steps import steps
    from compilediag_harness.user_api.spans import assign_ended_spans, span
    from compilediag_harness.wire import ProcessStarted, encode

    folder = bench.folder / "spans"
    folder.mkdir()
    opening = encode(ProcessStarted(0.0, 1, 0, 0, None, None, (), "", "", "", ""))
    session = Session(Journal(str(folder), lambda: opening).write)
    steps.install(session, torch)
    handle = span("metrics")

    def enter() -> None:
        with handle:
            pass

    def lines() -> float:
        used = 0.0
        for _ in range(SPANS // FEW):
            used += seconds(enter, FEW)
            assign_ended_spans()
        return used / (SPANS // FEW) * 1e6

    try:
        used = bench.median(lines)
        verdict = "holds" if used <= SPAN_GOAL_US else "fails"
        yield Row("span, its handle", "", f"{used:.1f} µs CPU", f"≤ {SPAN_GOAL_US:.0f} µs", verdict)
        whole = bench.median(lambda: seconds(enter, SPANS)) * 1e6
        yield Row("span, placed, encoded and written", "", f"{whole:.1f} µs CPU", "", "")
    finally:
        steps.uninstall(session)


def planning(bench: Bench) -> Iterator[Row]:
    """Choosing buckets, for more sizes than a run has, with costs that rise and fall."""
    draw = random.Random(2026)
    counts = {size: draw.randint(1, 50) for size in range(1, SIZES + 1)}
    measured = {size: 0.3 + size * draw.uniform(0.001, 0.003) for size in counts}
    for costs, told in ((None, "rows"), (measured, "measured, not rising evenly")):
        work = lambda costs=costs: plan(counts, BUCKETS, cost=costs)
        used = bench.median(lambda work=work: seconds(work))
        yield Row(
            f"plan of {SIZES:,} sizes, k={BUCKETS}, cost: {told}",
            f"waste {plan(counts, BUCKETS, cost=costs).waste:.1%}",
            f"{used * 1e3:.0f} ms CPU",
            f"≤ {PLAN_GOAL_S * 1e3:.0f} ms",
            "holds" if used <= PLAN_GOAL_S else "fails",
        )


def reading(bench: Bench) -> Iterator[Row]:
    """From the bytes of the file to a checked receipt: the example of the design with more compiles
    and findings, until it has its size."""
    raw: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    events, findings = raw["compile"]["events"], raw["findings"]
    while (
        len(content := encode_receipt(convert_receipt(copy.deepcopy(raw), "example")))
        < RECEIPT_BYTES
    ):
        event = copy.deepcopy(events[1 + len(events) % 3])
        events.append({**event, "compile_id": f"0/{len(events)}"})
        if len(events) % 4 == 0:
            findings.append(copy.deepcopy(findings[0]))
    decoded = bench.median(lambda: seconds(lambda: json.loads(content), 500))
    used = bench.median(lambda: seconds(lambda: decode_receipt(content, "receipt.json"), 500))
    yield Row(
        f"a receipt of {len(content) / 1024:.0f} KiB, decoded and validated",
        f"json.loads alone {decoded * 1e3:.2f} ms",
        f"{used * 1e3:.3f} ms CPU",
        f"≤ {READ_GOAL_S * 1e3:.1f} ms",
        "holds" if used <= READ_GOAL_S else "fails",
    )


BENCHMARKS: dict[str, Benchmark] = {"spans": spans, "plan": planning, "receipt": reading}
