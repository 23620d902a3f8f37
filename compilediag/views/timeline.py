"""Compile by compile: step, id, frame, seconds, and every guard that was false."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import count, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.text import hanging_indent, pad

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent, EventCause
    from compilediag.receipt.schema.receipt import Receipt

MOST_CAUSES = 20
"""Of one compile; `show --json` has them all."""


def render_timeline(receipt: Receipt, options: RenderOptions) -> str:
    """Every compile in time order with its causes, the one to blame marked with `*`."""
    events = receipt.compile.events
    if not events:
        nothing = "no compile was seen: torch.compile was not reached, or it was not observed"
        return "\n".join(hanging_indent(nothing, options.width, "", "")) + "\n"
    processes = {item.process for item in events}
    epochs = {item.epoch for item in events}
    recompiles = count(receipt.compile.recompiles, "recompile")
    lines = [f"{count(len(events), 'compile')}, of them {recompiles}"]
    for item in events:
        lines += ["", *_compile(item, options, ranks=len(processes) > 1, epochs=len(epochs) > 1)]
        lines += [line for cause in item.causes[:MOST_CAUSES] for line in _cause(cause, options)]
        if len(item.causes) > MOST_CAUSES:
            lines.append(
                f"         +{len(item.causes) - MOST_CAUSES} more: compilediag show --json"
            )
    if any(len(item.causes) > 1 for item in events):
        meaning = "* the guard to blame; the others were false at the same time"
        lines += ["", *hanging_indent(meaning, options.width, "  ", "    ")]
    return "\n".join(lines) + "\n"


def _compile(item: CompileEvent, options: RenderOptions, *, ranks: bool, epochs: bool) -> list[str]:
    step = "step not seen" if item.step is None else f"step {item.step}"
    identity = options.text(item.compile_id, 40)
    identity += f" after reset {item.epoch}" if epochs and item.epoch else ""
    identity += f" of process {item.process}" if ranks else ""
    frame = f"{options.text(item.frame.function, 60)}, {options.path(item.frame.file, 60)}"
    sentence = (
        f"{pad(step, 9)} {pad(identity, 6)} {pad(item.kind, 9)} {pad(seconds(item.seconds), 8)}"
    )
    lines = hanging_indent(
        f"{frame}:{item.frame.line}", options.width, f"  {sentence} ", "         "
    )
    return [options.styled(line, "bold") for line in lines]


def _cause(cause: EventCause, options: RenderOptions) -> list[str]:
    sign = "*" if cause.primary else " "
    code = f"{options.text(cause.rule, 8)} " if cause.rule else ""
    change = ""
    if cause.expected is not None and cause.actual is not None:
        was, now = options.text(cause.expected, 120), options.text(cause.actual, 120)
        change = f"  {was} {options.arrow} {now}"
    place = f"{options.dot}{options.path(cause.file, 60)}:{cause.line}" if cause.file else ""
    family = options.text(cause.family.replace("_", " "), 60)
    sentence = f"{code}{family}: {options.text(cause.variable, 120)}"
    lines = hanging_indent(f"{sentence}{change}{place}", options.width, f"       {sign} ", " " * 11)
    guard = hanging_indent(
        f"guard: {options.text(cause.guard, 300)}", options.width, " " * 9, " " * 11
    )
    return lines + [options.styled(line, "dim") for line in guard]
