"""What the program measured itself, and what the run cost: lines below the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.against_eager import against_eager_lines, numbers_lines
from compilediag.views.cold_and_warm import cold_and_warm_lines
from compilediag.views.format import count, figure, measured, quantity, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import WitnessSection
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.receipt.schema.tracked import CostSection, MetricRecord, TrackedRecord

MAX_RUNS = 2
MAX_METRICS = 3
STEP_S = "step_s"
FIGURES = ("mean", "median", "min", "max", "last")
WIDE = 90


def measured_lines(
    receipt: Receipt, options: RenderOptions, suffix: str, *, complete: bool
) -> list[str]:
    """Whether compiling pays; the newest tracked runs in a line each, with `complete` all of them
    as tables; the cost."""
    runs = receipt.tracked
    lines: list[str] = []
    if receipt.against_eager is not None:
        lines += against_eager_lines(receipt.against_eager, options, complete=complete)
        if receipt.against_eager.numbers is not None:
            lines += numbers_lines(receipt.against_eager.numbers, options, complete=complete)
    if receipt.cold_and_warm is not None:
        lines += cold_and_warm_lines(receipt, options, complete=complete)
    for run in runs if complete else runs[-MAX_RUNS:]:
        lines += _run(run, options)
        if complete:
            lines += _metrics(run, options)
    if not complete and len(runs) > MAX_RUNS:
        hidden = f"+{len(runs) - MAX_RUNS} more tracked: compilediag show --all{suffix}"
        lines += options.wrap(hidden, "  ", "    ")
    if receipt.witness is not None:
        lines += options.wrap(_witness(receipt.witness, options), "  witness: ")
    if receipt.cost is not None:
        lines += options.wrap(_cost(receipt.cost, options), "  cost: ")
    return lines


def _witness(witness: WitnessSection, options: RenderOptions) -> str:
    """What was followed, and what that cost."""
    lines = count(witness.line_events, "line")
    text = f"{lines} followed, {count(witness.values, 'value')} watched, {seconds(witness.seconds)}"
    if witness.stopped is None:
        return text
    why = options.text(witness.stopped)
    if not witness.line_events:
        return f"nothing was followed: {why}"
    return f"{text}; not witnessed after step {witness.stopped_step}: {why}"


def _run(run: TrackedRecord, options: RenderOptions) -> list[str]:
    name = options.text(run.name, 60)
    parts = [f"tracked {name}: {count(run.steps, 'step')} in {seconds(run.wall_s)}"]
    if run.state != "finished":
        state = "not finished" if run.state == "running" else options.text(run.state, 20)
        parts[0] += f" ({state})"
    metrics = [item for item in run.metrics if item.name != STEP_S]
    parts += [_metric(item, options) for item in metrics[:MAX_METRICS]]
    if len(metrics) > MAX_METRICS:
        parts.append(f"+{count(len(metrics) - MAX_METRICS, 'metric')}")
    parts += [
        f"{options.text(name, 40)} {figure(value)}/s"
        for name, value in list(run.per_s.items())[:MAX_METRICS]
        if value is not None
    ]
    if run.peak_bytes is not None and run.peak_bytes != run.peak_at_start_bytes:
        parts.append(f"peak {quantity(run.peak_bytes, 'bytes')}")
    return options.wrap_items(parts, "  ", "    ")


def _metric(item: MetricRecord, options: RenderOptions) -> str:
    name = options.text(item.name, 40)
    lost = f", {item.not_finite} not finite" if item.not_finite else ""
    if item.mean is None or item.min is None or item.max is None:
        return f"{name} not measured{lost}"
    if item.min == item.max:
        return f"{name} {figure(item.mean)}{lost}"
    return f"{name} {figure(item.mean)} ({figure(item.min)} to {figure(item.max)}{lost})"


def _metrics(run: TrackedRecord, options: RenderOptions) -> list[str]:
    """Every metric of one run; a narrow terminal has room for the mean only."""
    shown = FIGURES if options.width >= WIDE else FIGURES[:1]
    rows = [
        (
            f"    {options.text(item.name, 40)}",
            f"{item.count:,}",
            *(_figure(item, name) for name in shown),
        )
        for item in run.metrics
    ]
    head = ("    metric", "values", *shown)
    return table(head, rows, options, right=head[1:], shrink=head[0]) if rows else []


def _figure(item: MetricRecord, name: str) -> str:
    value: float | None = getattr(item, name)
    return "-" if value is None else measured(item.name, value)


def _cost(cost: CostSection, options: RenderOptions) -> str:
    if cost.amount is None:
        return f"not known: {options.text(cost.note or 'nothing was priced', 200)}"
    sentence = f"{cost.amount:,.2f} {options.text(cost.currency, 16)}"
    if cost.recompile_amount:
        sentence += f", recompiles {cost.recompile_amount:,.2f}"
    sign = "x" if options.ascii_only else chr(0xD7)
    times = f"{cost.count} {sign} " if cost.count != 1 else ""
    of = f" of {options.text(cost.table_as_of, 40)}" if cost.table_as_of else ""
    where = f"{options.text(cost.table or 'a price table', 80)}{of}"
    name = options.text(cost.name or "", 80)
    return f"{sentence} ({times}{name} at {figure(cost.per_hour or 0.0)} an hour, {where})"
