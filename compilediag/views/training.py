"""What a trainer said of its own run, in one line: steps, rates, loss; and how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.text import flow, hang
from compilediag.views.words import count, seconds

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.views.style import RenderOptions

NOTE = "train_log: "
"""How reasons in `completeness` begin that are notes on a trainer's output."""

MOST_NOTES = 3
WHOLE_FROM = 100


def training(receipt: Receipt, look: RenderOptions) -> list[str]:
    """The figures of a trainer's output with the notes on them; nothing where none was read."""
    told = figures(receipt)
    if not told:
        return []
    notes = [text.removeprefix(NOTE) for text in receipt.completeness.reasons if is_note(text)]
    lines = flow([look.text(each, 80) for each in told], look.dot, look.width, "  ", "    ")
    for note in notes[:MOST_NOTES]:
        shown = hang(look.text(note), look.width, "    note: ", "          ")
        lines += [look.styled(line, "dim") for line in shown]
    return lines


def is_note(reason: str) -> bool:
    """Whether a reason of `completeness` is a note on a trainer's output, and no loss."""
    return reason.startswith(NOTE)


def figures(receipt: Receipt) -> list[str]:
    """Each figure with its unit, the trainer's name before the first."""
    told = receipt.throughput
    if told is None or told.reported_by is None:
        return []
    found: list[str] = []
    steps = receipt.steps
    if steps is not None:
        warmup = f", {steps.warmup:,} of them warm-up" if steps.warmup else ""
        found.append(f"{count(steps.count, 'step')}{warmup}")
    if told.steps_per_s:
        found.append(f"{seconds(1 / told.steps_per_s)} a step ({figure(told.steps_per_s)}/s)")
    units = (
        (told.samples_per_s, "samples/s"),
        (told.tokens_per_s, "tokens/s"),
        (told.tokens_per_s_per_device, "tokens/s a device"),
        (told.tflops_per_s_per_device, "TFLOP/s a device"),
        (None if told.mfu is None else 100 * told.mfu, "% MFU"),
    )
    found += [f"{figure(value)} {unit}" for value, unit in units if value is not None]
    if receipt.checks.losses_finite is False:
        found.append("loss was not finite")
    elif told.loss is not None:
        found.append(f"loss {figure(told.loss)}")
    return [f"{told.reported_by} says: {found[0]}", *found[1:]] if found else []


def figure(value: float) -> str:
    """A number with the figures that can be trusted."""
    return f"{value:,.0f}" if abs(value) >= WHOLE_FROM else f"{value:.3g}"
