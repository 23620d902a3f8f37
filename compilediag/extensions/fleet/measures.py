"""The measures that are followed over many receipts: unit, noise, and which direction is worse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from compilediag.receipt.schema.receipt import Receipt

Kind = Literal["noisy", "count", "share"]


class Measure(NamedTuple):
    """A number that a receipt may hold."""

    name: str
    label: str
    unit: str
    kind: Kind
    """How it varies where nothing changed: by noise, not at all, or as yes and no do."""
    higher_is_better: bool = False
    min_change: float = 0.0
    """Smaller changes are not reported: a share of the level before; points of a share."""


MEASURES = (
    Measure("tokens_per_s", "throughput", "tokens/s", "noisy", True, 0.02),
    Measure("tokens_per_s_per_device", "throughput", "tokens/s a device", "noisy", True, 0.02),
    Measure("samples_per_s", "throughput", "samples/s", "noisy", True, 0.02),
    Measure("steps_per_s", "throughput", "steps/s", "noisy", True, 0.02),
    Measure("mfu", "MFU", "share", "noisy", True, 0.02),
    Measure("step_s", "step time", "s", "noisy", False, 0.02),
    Measure("step_spread", "slow steps (p90 / median)", "ratio", "noisy", False, 0.25),
    Measure("goodput", "goodput", "share", "noisy", True, 0.02),
    Measure("compile_s", "compiling", "s", "noisy", False, 0.1),
    Measure("recompiles", "recompiles", "count", "count"),
    Measure("graph_breaks", "graph breaks", "count", "count"),
    Measure("eager_fallbacks", "eager fallbacks", "count", "count"),
    Measure("recompile_limit_hits", "recompile limit hits", "count", "count"),
    Measure("host_peak_bytes", "host memory", "bytes", "noisy", False, 0.02),
    Measure("device_allocated_peak_bytes", "GPU memory allocated", "bytes", "noisy", False, 0.01),
    Measure("device_reserved_peak_bytes", "GPU memory reserved", "bytes", "noisy", False, 0.01),
    Measure("checks_passed", "runs that pass their checks", "share", "share", True, 0.05),
)
"""In the order in which they are reported."""

BY_NAME: Mapping[str, Measure] = {measure.name: measure for measure in MEASURES}

THROUGHPUTS = ("tokens_per_s", "tokens_per_s_per_device", "samples_per_s", "steps_per_s")
"""Best first: the first one that most receipts of a configuration have is its throughput."""

CHECKS = "checks_passed"


def collect_values(receipt: Receipt) -> dict[str, float]:
    """Collect every measure of the receipt by name; what was not measured is left out, and so are
    counts of a receipt whose evidence is not complete."""
    throughput, steps = receipt.throughput, receipt.steps
    values: dict[str, float | None] = {}
    if throughput is not None:
        values = {name: getattr(throughput, name) for name in (*THROUGHPUTS, "mfu")}
    if steps is not None:
        values["step_s"] = steps.median
        if steps.p90 is not None and steps.median:
            values["step_spread"] = steps.p90 / steps.median
    if receipt.memory is not None:
        values["host_peak_bytes"] = receipt.memory.host_peak_bytes
        holders = (*(receipt.memory.devices or ()), receipt.memory.allocator)
        for peak in ("allocated_peak_bytes", "reserved_peak_bytes"):  # of the fullest device
            known = [value for holder in holders if (value := getattr(holder, peak)) is not None]
            values[f"device_{peak}"] = max(known, default=None)
    values["goodput"] = receipt.goodput.fraction if receipt.goodput is not None else None
    checks = list_checks(receipt)
    values[CHECKS] = float(all(checks.values())) if checks else None
    if receipt.verdict != "blind":
        compiled = receipt.compile
        values["compile_s"] = compiled.time_s.total
        for measure in MEASURES:
            if measure.kind == "count":
                values[measure.name] = getattr(compiled, measure.name)
    return {
        measure.name: value
        for measure in MEASURES
        if (value := values.get(measure.name)) is not None and math.isfinite(value)
    }


def list_checks(receipt: Receipt) -> dict[str, bool]:
    """List every check that has an outcome: name to whether it passed."""
    outcomes = msgspec.structs.asdict(receipt.checks)
    return {name: outcome for name, outcome in outcomes.items() if outcome is not None}
