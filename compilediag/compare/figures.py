"""What a receipt measured, as numbers with the unit in their names, beside its counts.

Nothing is judged by them: another machine or another moment changes most of them.
"""

# No annotations as text (`from __future__`): see `tally`.
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.tracked import TrackedRecord

THROUGHPUT = (
    *("steps_per_s", "samples_per_s", "tokens_per_s", "tokens_per_s_per_device"),
    *("tflops_per_s_per_device", "mfu", "loss", "grad_norm"),
)


def figures(receipt: Receipt) -> dict[str, float]:
    """Every figure that was measured, of the whole run, by name."""
    throughput, goodput, memory, cost = (
        receipt.throughput,
        receipt.goodput,
        receipt.memory,
        receipt.cost,
    )
    found: dict[str, float | None] = {}
    if throughput is not None:
        found |= {name: getattr(throughput, name) for name in THROUGHPUT}
    if goodput is not None:
        found["goodput_fraction"] = goodput.fraction
    if memory is not None:
        found["host_peak_bytes"] = memory.host_peak_bytes
        found["allocated_peak_bytes"] = memory.allocator.allocated_peak_bytes
        found["reserved_peak_bytes"] = memory.allocator.reserved_peak_bytes
    if cost is not None:
        found[f"cost_{cost.currency}"] = cost.amount
    return {name: value for name, value in found.items() if value is not None}


def tracked_figures(run: TrackedRecord) -> dict[str, float]:
    """The figures of one tracked run: means, and rates of what was counted."""
    found: dict[str, float | None] = {item.name: item.mean for item in run.metrics}
    found |= {f"{name}_per_s": value for name, value in run.per_s.items()}
    if run.peak_bytes is not None and run.peak_bytes != run.peak_at_start_bytes:
        found["peak_bytes"] = run.peak_bytes
    return {name: value for name, value in found.items() if value is not None}


def tracked_lanes(receipt: Receipt) -> dict[str, TrackedRecord]:
    """The newest tracked run of each name that ended well."""
    return {run.name: run for run in receipt.tracked if run.state == "finished"}
