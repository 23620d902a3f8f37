"""What was compiled: frame by frame with its room below the limit, and compile by compile with
every guard that was false."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compilediag.views.document import Block, Paragraph, Preformatted, Table
from compilediag.views.format import NOT_MEASURED, count, more, seconds
from compilediag.views.place import short_frame
from compilediag.views.style import RenderOptions
from compilediag.views.text import pad

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import (
        CompileEvent,
        EventCause,
        FrameDetail,
        MissedGuard,
    )
    from compilediag.receipt.schema.receipt import Receipt

MAX_ENTRIES = 4
MAX_CAUSES = 20
"""Of one compile; `show --json` has them all."""
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_]+")


def show_frames(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """The frames of the run as a table, most compiles first, and what its columns mean."""
    found = receipt.compile.frames_detail
    if not found:
        nothing = "no frame was seen: torch.compile was not reached, or it was not observed"
        return [Paragraph(nothing)]
    ordered = sorted(found, key=lambda item: -item.compiles)
    eager = [
        f"{options.text(item.frame.function, 60)} ran eager: {options.text(item.eager_reason)}"
        for item in ordered
        if item.ran_eager and item.eager_reason
    ]
    decompiled = _decompiled(receipt, options)
    meaning = "variants: compiled versions in use, of recompile_limit; over it the frame runs eager"
    return [
        Paragraph(f"{count(len(found), 'frame')} that torch.compile attempted"),
        Table(
            ("frame", "compiles", "guards", "guard check", "variants", "ran eager"),
            [_frame_row(item, options) for item in ordered],
            right=("compiles", "guards", "guard check", "variants"),
            shrink="frame",
            wide_only=("guards", "guard check"),
        ),
        *(Paragraph(notes=(sentence,)) for sentence in eager),
        *([Paragraph(notes=decompiled)] if decompiled else []),
        Paragraph(notes=(meaning,)),
    ]


def _decompiled(receipt: Receipt, options: RenderOptions) -> list[str]:
    """The files of decompiled code by compile; from `run --depyf`."""
    linked = {
        item.uri.rpartition("/")[2].removesuffix(".py"): item.uri
        for item in receipt.artifacts
        if item.role == "depyf"
    }
    sentences: list[str] = []
    for event in receipt.compile.events:
        function = event.frame.function
        identity = event.compile_id.replace("/", "-").replace("!", "a")
        uri = linked.pop(f"{identity}-{_NOT_A_WORD.sub('_', function)[:60]}", None)
        if uri is not None:
            resumed = function.startswith("torch_dynamo_resume_in_")
            what = "what runs after the break" if resumed else "what runs"
            name = f"{options.text(event.compile_id, 40)} {options.text(function, 60)}"
            sentences.append(f"{name}, {what}: {options.text(uri)}")
    return sentences


def _frame_row(item: FrameDetail, options: RenderOptions) -> tuple[str, ...]:
    where = options.place(item.frame.file, item.frame.line)
    room = item.headroom
    limit = "?" if room.limit is None else str(room.limit)
    micros = item.guard_eval_us
    return (
        f"{options.text(item.frame.function, 60)}  {where}",
        str(item.compiles),
        "?" if item.guards is None else str(item.guards),
        NOT_MEASURED if micros is None else f"{micros:.0f} us",
        f"{room.variants} of {limit}",
        "yes" if item.ran_eager else "no",
    )


def show_timeline(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Every compile in time order with its causes, the one to blame marked with `*`."""
    events = receipt.compile.events
    if not events:
        nothing = "no compile was seen: torch.compile was not reached, or it was not observed"
        return [Paragraph(nothing)]
    ranks = len({item.process for item in events}) > 1
    epochs = len({item.epoch for item in events}) > 1
    recompiles = count(receipt.compile.recompiles, "recompile")
    blocks: list[Block] = [Paragraph(f"{count(len(events), 'compile')}, of them {recompiles}")]
    for item in events:
        lines = _compile(item, options, ranks=ranks, epochs=epochs)
        lines += [line for cause in item.causes[:MAX_CAUSES] for line in _cause(cause, options)]
        lines += more(len(item.causes) - MAX_CAUSES, ": compilediag show --json", " " * 9)
        blocks.append(Preformatted([*lines, *missed_entries(item, options, " " * 9)]))
    if any(len(item.causes) > 1 for item in events):
        meaning = "* the guard to blame; the others were false at the same time"
        blocks.append(Paragraph(notes=(meaning,)))
    if any(len(item.entries) > 1 for item in events):
        meaning = (
            "new: no cache entry accepts the value; known: one does, it was compiled for before"
        )
        blocks.append(Paragraph(notes=(meaning,)))
    return blocks


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
