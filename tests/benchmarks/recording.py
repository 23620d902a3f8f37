"""CPU seconds of reading a receipt."""

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

EXAMPLE = Path(__file__).parent.parent / "data" / "receipt-example.json"
RECEIPT_BYTES = 28 * 1024
READ_GOAL_S = 0.2e-3
TIMES = 500


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


def seconds(action: Callable[[], object], times: int) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began) / times


BENCHMARKS: dict[str, Benchmark] = {"receipt": reading}
