"""Compile by compile: step, id, frame, seconds, and every guard that was false."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import count, more, seconds
from compilediag.views.place import short_frame
from compilediag.views.style import RenderOptions
from compilediag.views.text import pad

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent, EventCause
    from compilediag.receipt.schema.receipt import Receipt

MAX_CAUSES = 20
"""Of one compile; `show --json` has them all."""


def render_timeline(receipt: Receipt, options: RenderOptions) -> str:
    """Every compile in time order with its causes, the one to blame marked with `*`."""
    events = receipt.compile.events
    if not events:
        nothing = "no compile was seen: torch.compile was not reached, or it was not observed"
        return "\n".join(options.wrap(nothing)) + "\n"
    processes = {item.process for item in events}
    epochs = {item.epoch for item in events}
    recompiles = count(receipt.compile.recompiles, "recompile")
    lines = [f"{count(len(events), 'compile')}, of them {recompiles}"]
    for item in events:
        lines += ["", *_compile(item, options, ranks=len(processes) > 1, epochs=len(epochs) > 1)]
        lines += [line for cause in item.causes[:MAX_CAUSES] for line in _cause(cause, options)]
        hidden = len(item.causes) - MAX_CAUSES
        lines += more(hidden, ": compilediag show --json", " " * 9)
    if any(len(item.causes) > 1 for item in events):
        meaning = "* the guard to blame; the others were false at the same time"
        lines += ["", *options.wrap(meaning, "  ", "    ")]
    return "\n".join(lines) + "\n"


def _compile(item: CompileEvent, options: RenderOptions, *, ranks: bool, epochs: bool) -> list[str]:
    step = "step not seen" if item.step is None else f"step {item.step}"
    identity = options.text(item.compile_id, 40)
    identity += f" after reset {item.epoch}" if epochs and item.epoch else ""
    identity += f" of process {item.process}" if ranks else ""
    cells = (step, identity, item.kind, seconds(item.seconds))
    columns = " ".join(map(pad, cells, (9, 6, 9, 8)))
    frame = short_frame(item, options)
    return options.wrap(frame, f"  {columns} ", " " * 9, style="bold")


def _cause(cause: EventCause, options: RenderOptions) -> list[str]:
    sign = "*" if cause.primary else " "
    code = f"{options.text(cause.rule, 8)} " if cause.rule else ""
    change = ""
    if cause.expected is not None and cause.actual is not None:
        change = f"  {options.change(cause.expected, cause.actual, 120)}"
    where = f"{options.dot}{options.place(cause.file, cause.line)}" if cause.file else ""
    family = options.text(cause.family.replace("_", " "), 60)
    sentence = f"{code}{family}: {options.text(cause.variable, 120)}{change}{where}"
    guard = f"guard: {options.text(cause.guard, 300)}"
    return [
        *options.wrap(sentence, f"       {sign} ", " " * 11),
        *options.wrap(guard, " " * 9, " " * 11, style="dim"),
    ]
