"""Compile by compile: step, id, frame, seconds, and every guard that was false."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import count, more, seconds
from compilediag.views.place import short_frame
from compilediag.views.style import RenderOptions
from compilediag.views.text import pad

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent, EventCause, MissedGuard
    from compilediag.receipt.schema.receipt import Receipt

MAX_ENTRIES = 4
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
        lines += missed_entries(item, options, " " * 9)
    if any(len(item.causes) > 1 for item in events):
        meaning = "* the guard to blame; the others were false at the same time"
        lines += ["", *options.wrap(meaning, "  ", "    ")]
    if any(len(item.entries) > 1 for item in events):
        meaning = (
            "new: no cache entry accepts the value; known: one does, it was compiled for before"
        )
        lines += ["", *options.wrap(meaning, "  ", "    ")]
    return "\n".join(lines) + "\n"


def missed_entries(item: CompileEvent, options: RenderOptions, indent: str) -> list[str]:
    """The cache entries that did not fit, nearest first, where there was more than one: with each
    value whether any entry accepts it. A text does not show which is nearest."""
    if len(item.entries) < 2:
        return []
    evaluated = all(entry.left_out is not None for entry in item.entries)
    order = "nearest first" if evaluated else "by the first false guard of each"
    lines = [f"{indent}cache entries that did not fit, {order}:"]
    for entry in item.entries[:MAX_ENTRIES]:
        guards = [_guard(guard, options) for guard in entry.guards]
        rest = f"and {entry.left_out} that follow or are not listed" if entry.left_out else ""
        told = "; ".join([*guards, rest] if rest else guards)
        lines += options.wrap(told, f"{indent}  {pad(options.text(entry.compile_id, 40), 6)} ")
    hidden = len(item.entries) - MAX_ENTRIES + item.entries_left_out
    return lines + more(hidden, ": compilediag show --json", f"{indent}  ")


def _guard(guard: MissedGuard, options: RenderOptions) -> str:
    change = ""
    if guard.expected is not None and guard.actual is not None:
        change = f" {options.change(guard.expected, guard.actual, 60)}"
    known = {True: " (new)", False: " (known)", None: ""}[guard.novel]
    return f"{options.text(guard.variable or guard.rule, 80)}{change}{known}"


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
    lines = options.wrap(sentence, f"       {sign} ", " " * 11)
    if not cause.guard:
        return lines
    guard = f"guard: {options.text(cause.guard, 300)}"
    return [*lines, *options.wrap(guard, " " * 9, " " * 11, style="dim")]
