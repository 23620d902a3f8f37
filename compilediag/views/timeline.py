"""Compile by compile: step, id, frame, seconds, and every guard that was false."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.style import RenderOptions
from compilediag.views.text import hang, pad
from compilediag.views.words import count, seconds

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent, EventCause
    from compilediag.receipt.schema.receipt import Receipt

MOST_CAUSES = 20
"""Of one compile; `show --json` has them all."""


def render_timeline(receipt: Receipt, look: RenderOptions) -> str:
    """Every compile in time order with its causes, the one to blame marked with `*`."""
    events = receipt.compile.events
    if not events:
        nothing = "no compile was seen: torch.compile was not reached, or it was not observed"
        return "\n".join(hang(nothing, look.width, "", "")) + "\n"
    processes = {item.process for item in events}
    epochs = {item.epoch for item in events}
    recompiles = count(receipt.compile.recompiles, "recompile")
    lines = [f"{count(len(events), 'compile')}, of them {recompiles}"]
    for item in events:
        lines += ["", *_compile(item, look, ranks=len(processes) > 1, epochs=len(epochs) > 1)]
        lines += [line for cause in item.causes[:MOST_CAUSES] for line in _cause(cause, look)]
        if len(item.causes) > MOST_CAUSES:
            lines.append(
                f"         +{len(item.causes) - MOST_CAUSES} more: compilediag show --json"
            )
    if any(len(item.causes) > 1 for item in events):
        meaning = "* the guard to blame; the others were false at the same time"
        lines += ["", *hang(meaning, look.width, "  ", "    ")]
    return "\n".join(lines) + "\n"


def _compile(item: CompileEvent, look: RenderOptions, *, ranks: bool, epochs: bool) -> list[str]:
    step = "step not seen" if item.step is None else f"step {item.step}"
    identity = look.text(item.compile_id, 40)
    identity += f" after reset {item.epoch}" if epochs and item.epoch else ""
    identity += f" of process {item.process}" if ranks else ""
    frame = f"{look.text(item.frame.function, 60)}, {look.path(item.frame.file, 60)}"
    told = f"{pad(step, 9)} {pad(identity, 6)} {pad(item.kind, 9)} {pad(seconds(item.seconds), 8)}"
    lines = hang(f"{frame}:{item.frame.line}", look.width, f"  {told} ", "         ")
    return [look.styled(line, "bold") for line in lines]


def _cause(cause: EventCause, look: RenderOptions) -> list[str]:
    sign = "*" if cause.primary else " "
    code = f"{look.text(cause.rule, 8)} " if cause.rule else ""
    change = ""
    if cause.expected is not None and cause.actual is not None:
        was, now = look.text(cause.expected, 120), look.text(cause.actual, 120)
        change = f"  {was} {look.arrow} {now}"
    place = f"{look.dot}{look.path(cause.file, 60)}:{cause.line}" if cause.file else ""
    family = look.text(cause.family.replace("_", " "), 60)
    told = f"{code}{family}: {look.text(cause.variable, 120)}"
    lines = hang(f"{told}{change}{place}", look.width, f"       {sign} ", " " * 11)
    guard = hang(f"guard: {look.text(cause.guard, 300)}", look.width, " " * 9, " " * 11)
    return lines + [look.styled(line, "dim") for line in guard]
