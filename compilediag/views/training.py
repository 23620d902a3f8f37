"""What a trainer said of its own run, in one line: steps, rates, loss; and how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import count, seconds
from compilediag.views.text import hanging_indent, wrap_items

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.views.style import RenderOptions

NOTE = "train_log: "
"""How reasons in `completeness` begin that are notes on a trainer's output."""

MOST_NOTES = 3
WHOLE_FROM = 100


def training(receipt: Receipt, options: RenderOptions) -> list[str]:
    """The figures of a trainer's output with the notes on them; nothing where none was read."""
    parts = figures(receipt)
    if not parts:
        return []
    notes = [text.removeprefix(NOTE) for text in receipt.completeness.reasons if is_note(text)]
    lines = wrap_items(
        [options.text(each, 80) for each in parts], options.dot, options.width, "  ", "    "
    )
    for note in notes[:MOST_NOTES]:
        shown = hanging_indent(options.text(note), options.width, "    note: ", "          ")
        lines += [options.styled(line, "dim") for line in shown]
    return lines


def is_note(reason: str) -> bool:
    """Whether a reason of `completeness` is a note on a trainer's output, and no loss."""
    return reason.startswith(NOTE)


def figures(receipt: Receipt) -> list[str]:
    """Each figure with its unit, the trainer's name before the first."""
    rates = receipt.throughput
    if rates is None or rates.reported_by is None:
        return []
    found: list[str] = []
    steps = receipt.steps
    if steps is not None:
        warmup = f", {steps.warmup:,} of them warm-up" if steps.warmup else ""
        found.append(f"{count(steps.count, 'step')}{warmup}")
    if rates.steps_per_s:
        found.append(f"{seconds(1 / rates.steps_per_s)} a step ({figure(rates.steps_per_s)}/s)")
    units = (
        (rates.samples_per_s, "samples/s"),
        (rates.tokens_per_s, "tokens/s"),
        (rates.tokens_per_s_per_device, "tokens/s a device"),
        (rates.tflops_per_s_per_device, "TFLOP/s a device"),
        (None if rates.mfu is None else 100 * rates.mfu, "% MFU"),
    )
    found += [f"{figure(value)} {unit}" for value, unit in units if value is not None]
    if receipt.checks.losses_finite is False:
        found.append("loss was not finite")
    elif rates.loss is not None:
        found.append(f"loss {figure(rates.loss)}")
    return [f"{rates.reported_by} says: {found[0]}", *found[1:]] if found else []


def figure(value: float) -> str:
    """A number with the figures that can be trusted."""
    return f"{value:,.0f}" if abs(value) >= WHOLE_FROM else f"{value:.3g}"
