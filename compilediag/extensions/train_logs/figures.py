"""A run as the output of its trainer has it, in the words of the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import count, seconds

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt

MIN_WHOLE = 100
"""Rates from this size on are shown as whole numbers."""


def figures_of(receipt: Receipt) -> list[str]:
    """Steps, rates and loss, in words."""
    figures: list[str] = []
    rates, steps = receipt.throughput, receipt.steps
    if rates is None:
        return figures
    if steps is not None:
        warmup = f", {steps.warmup:,} of them warm-up" if steps.warmup else ""
        figures.append(f"{count(steps.count, 'step')}{warmup}")
    if rates.steps_per_s:
        figures.append(f"{seconds(1 / rates.steps_per_s)} a step ({_figure(rates.steps_per_s)}/s)")
    units = (
        (rates.samples_per_s, "samples/s"),
        (rates.tokens_per_s, "tokens/s"),
        (rates.tokens_per_s_per_device, "tokens/s a device"),
        (rates.tflops_per_s_per_device, "TFLOP/s a device"),
        (None if rates.mfu is None else 100 * rates.mfu, "% MFU"),
    )
    figures += [f"{_figure(value)} {unit}" for value, unit in units if value is not None]
    if receipt.checks.losses_finite is False:
        figures.append("loss was not finite")
    elif rates.loss is not None:
        figures.append(f"loss {_figure(rates.loss)}")
    return figures


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= MIN_WHOLE else f"{value:.3g}"
