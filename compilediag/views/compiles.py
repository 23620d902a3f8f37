"""Views of compiles: frames with their room below the recompile limit, each compile with every
guard that was false, and compile seconds: phases as bars, the most expensive frames, caches,
guards, memory."""

from __future__ import annotations

import re

from compilediag.receipt.schema.caches import CacheSection
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    CompileMemorySection,
    CompileSeconds,
    GuardsSection,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName
from compilediag.views.document import Block, Paragraph, Preformatted, Table
from compilediag.views.format import NOT_MEASURED, count, more, percent, seconds
from compilediag.views.place import short_frame
from compilediag.views.style import RenderOptions
from compilediag.views.text import pad

MAX_ENTRIES = 4
MAX_CAUSES = 20
"""Of one compile; `show --json` has them all."""
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_]+")


# Invariant: `commands/show.py` finds `show_frames`, `show_timeline` and the like by their names.
def show_frames(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Build the table of the run's frames, most compiles first, and what its columns mean."""
    found = sorted(receipt.compile.frames_detail, key=lambda item: -item.compiles)
    if not found:
        nothing = "no frame was seen: torch.compile was not reached, or it was not observed"
        return [Paragraph(nothing)]
    rows: list[tuple[str, ...]] = []
    eager: list[str] = []
    for item in found:
        function = options.text(item.frame.function, 60)
        room, micros = item.headroom, item.guard_eval_us
        rows.append(
            (
                f"{function}  {options.place(item.frame.file, item.frame.line)}",
                str(item.compiles),
                "?" if item.guards is None else str(item.guards),
                NOT_MEASURED if micros is None else f"{micros:.0f} us",
                f"{room.variants} of {'?' if room.limit is None else room.limit}",
                "yes" if item.ran_eager else "no",
            )
        )
        if item.ran_eager and item.eager_reason:
            eager.append(f"{function} ran eager: {options.text(item.eager_reason)}")
    head = ("frame", "compiles", "guards", "guard check", "variants", "ran eager")
    # The files of decompiled code by compile; from `run --depyf`.
    linked = {
        item.uri.rpartition("/")[2].removesuffix(".py"): item.uri
        for item in receipt.artifacts
        if item.role == "depyf"
    }
    decompiled: list[str] = []
    for event in receipt.compile.events:
        function = event.frame.function
        identity = event.compile_id.replace("/", "-").replace("!", "a")
        uri = linked.pop(f"{identity}-{_NOT_A_WORD.sub('_', function)[:60]}", None)
        if uri is not None:
            resumed = function.startswith("torch_dynamo_resume_in_")
            what = "what runs after the break" if resumed else "what runs"
            name = f"{options.text(event.compile_id, 40)} {options.text(function, 60)}"
            decompiled.append(f"{name}, {what}: {options.text(uri)}")
    meaning = "variants: compiled versions in use, of recompile_limit; over it the frame runs eager"
    return [
        Paragraph(f"{count(len(found), 'frame')} that torch.compile attempted"),
        Table(head, rows, right=head[1:5], shrink="frame", wide_only=("guards", "guard check")),
        *(Paragraph(notes=(sentence,)) for sentence in eager),
        *([Paragraph(notes=decompiled)] if decompiled else []),
        Paragraph(notes=(meaning,)),
    ]


def show_timeline(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """List every compile in time order with its causes, the one to blame marked with `*`."""
    events = receipt.compile.events
    if not events:
        nothing = "no compile was seen: torch.compile was not reached, or it was not observed"
        return [Paragraph(nothing)]
    ranks = len({item.process for item in events}) > 1
    epochs = len({item.epoch for item in events}) > 1
    recompiles = count(receipt.compile.recompiles, "recompile")
    blocks: list[Block] = [Paragraph(f"{count(len(events), 'compile')}, of them {recompiles}")]
    for item in events:
        step = "step not seen" if item.step is None else f"step {item.step}"
        identity = options.text(item.compile_id, 40)
        identity += f" after reset {item.epoch}" if epochs and item.epoch else ""
        identity += f" of process {item.process}" if ranks else ""
        cells = (step, identity, item.kind, seconds(item.seconds))
        columns = " ".join(map(pad, cells, (9, 6, 9, 8)))
        frame = short_frame(item, options)
        lines = options.wrap(frame, f"  {columns} ", " " * 9, style="bold")
        for cause in item.causes[:MAX_CAUSES]:
            code = f"{options.text(cause.rule, 8)} " if cause.rule else ""
            change = options.change_behind("  ", cause.expected, cause.actual, 120)
            where = f"{options.dot}{options.place(cause.file, cause.line)}" if cause.file else ""
            family = options.text(cause.family.replace("_", " "), 60)
            sentence = f"{code}{family}: {options.text(cause.variable, 120)}{change}{where}"
            begin = f"       {'*' if cause.primary else ' '} "
            lines += options.wrap(sentence, begin, " " * 11)
            if cause.guard:
                guard = f"guard: {options.text(cause.guard, 300)}"
                lines += options.wrap(guard, " " * 9, " " * 11, style="dim")
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
    """Render the cache entries that did not fit, nearest first, where there was more than one: with
    each value whether any entry accepts it. A text does not show which is nearest."""
    if len(item.entries) < 2:
        return []
    evaluated = all(entry.left_out is not None for entry in item.entries)
    order = "nearest first" if evaluated else "by the first false guard of each"
    lines = [f"{indent}cache entries that did not fit, {order}:"]
    for entry in item.entries[:MAX_ENTRIES]:
        told: list[str] = []
        for guard in entry.guards:
            change = options.change_behind(" ", guard.expected, guard.actual, 60)
            known = {True: " (new)", False: " (known)", None: ""}[guard.novel]
            told.append(f"{options.text(guard.variable or guard.rule, 80)}{change}{known}")
        if entry.left_out:
            told.append(f"and {entry.left_out} that follow or are not listed")
        entry_id = pad(options.text(entry.compile_id, 40), 6)
        lines += options.wrap("; ".join(told), f"{indent}  {entry_id} ")
    hidden = len(item.entries) - MAX_ENTRIES + item.entries_left_out
    return lines + more(hidden, ": compilediag show --json", f"{indent}  ")


# --- seconds -------------------------------------------------------------------------------------

MAX_ROWS = 10
MAX_FRAMES = 20
MAX_REASONS = 5

LABELS = {
    "dynamo": "tracing (Dynamo)",
    "guards": "guards",
    "backend": "backend",
    "aot_autograd": "AOTAutograd",
    "graph_passes": "graph passes",
    "lowering": "lowering (inductor)",
    "code_generation": "code generation",
    "kernel_builds": "building kernels (C++, Triton)",
    "autotuning": "autotuning",
    "caches": "looking into caches",
    "garbage_collection": "garbage collection",
    "other": "not timed by torch",
}

CACHES = {
    "fx_graph": "compiled graphs (inductor)",
    "aot_autograd": "AOTAutograd",
    "autotune_choices": "times of variants (autotuning)",
    "pgo_local": "profile of sizes (PGO)",
    "mega": "artifacts that the program loaded",
}
"""Others have the name of torch's class."""

_REFUSALS = {"bypass": "not cached", "not_written": "not written", "miss": "not found"}


def show_compile_time(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Build the tables of compile seconds: phases, frames, outcomes of caches, guards, memory."""
    measured = show_measured_seconds(receipt, options)
    if measured:
        return measured
    nothing = (
        "the phases of compiles were not seen: this torch, or what it recorded, does not have "
        "the times of each compile's parts"
        if receipt.compile.compiles
        else "nothing was compiled"
    )
    return [Paragraph(nothing)]


def show_measured_seconds(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Build the tables of what was measured of compile seconds; empty where nothing was."""
    found, caches = receipt.compile.seconds, receipt.caches
    guards, memory = receipt.compile.guards, receipt.compile.memory
    return [
        *(_seconds(found, options) if found is not None and found.total else []),
        *([] if caches is None else _caches(caches, options)),
        *([] if guards is None else _guards(guards, options)),
        *([] if memory is None else _memory(memory, receipt, options)),
    ]


def _seconds(found: CompileSeconds, options: RenderOptions) -> list[Block]:
    phases = sorted(found.by_phase.items(), key=lambda item: -item[1])
    rows = [
        (
            LABELS.get(name, options.text(name, 40)),
            seconds(value),
            percent(value, found.total) or "",
        )
        for name, value in phases
    ]
    head = ("phase", "seconds", "share")
    blocks: list[Block] = [
        Paragraph(f"{seconds(found.total)} in {count(found.attempts, 'compile')}"),
        Table(head, rows, right=head[1:], bars=[value for _, value in phases]),
    ]
    if found.restarted > 0:
        share = percent(found.restarted, found.total) or "0 %"
        sentence = f"{seconds(found.restarted)} of it ({share}) in attempts that Dynamo began again"
        blocks.append(Paragraph(notes=(sentence,)))
    frames = [
        (
            _frame(item.frame, options),
            str(item.attempts),
            seconds(item.total),
            percent(item.total, found.total) or "",
            LABELS.get(max(item.by_phase, key=lambda name: item.by_phase[name], default=""), ""),
        )
        for item in found.frames
    ]
    head = ("frame", "compiles", "seconds", "share", "most of it")
    return [*blocks, Table(head, frames, right=head[1:4], shrink="frame", limit=MAX_FRAMES)]


def _caches(found: CacheSection, options: RenderOptions) -> list[Block]:
    """Build the table of the caches, then sentences on why something is in none."""
    head = ("cache", "lookups", "hits", "misses", "bypassed", "off or failed", "saved")
    rows = [
        (
            CACHES.get(item.cache, options.text(item.cache, 40)),
            *map(str, (item.lookups, item.hits, item.misses, item.bypasses)),
            str(item.disabled + item.failed),
            "" if item.saved_s is None else seconds(item.saved_s),
        )
        for item in found.caches
    ]
    blocks: list[Block] = [Table(head, rows, right=head[1:])]
    for item in found.refusals[:MAX_REASONS]:
        sentence = (
            f"{CACHES.get(item.cache, options.text(item.cache, 40))}, "
            f"{_REFUSALS.get(item.outcome, item.outcome)} {count(item.count, 'time')}: "
            f"{options.text(item.reason, 300)}"
        )
        blocks.append(Paragraph(notes=(sentence,)))
    return blocks


def _guards(section: GuardsSection, options: RenderOptions) -> list[Block]:
    if section.us_per_step is None or not section.step_s:
        sentence = "guards: evaluated before every call; their part of a step is not known"
    else:
        share = percent(section.us_per_step / 1e6, section.step_s) or "less than 1 %"
        sentence = (
            f"guards: at least {_us(section.us_per_step)} of each {_us(section.step_s * 1e6)} step "
            f"({share}), evaluated before every call"
        )
    head = ("frame", "guards", "in Python", "once", "runs a step", "a step")
    rows = [
        (
            _frame(item.frame, options),
            NOT_MEASURED if item.evaluated is None else f"{item.evaluated:,}",
            NOT_MEASURED if item.in_python is None else f"{item.in_python:,}",
            _us(item.eval_us),
            NOT_MEASURED if item.runs_per_step is None else f"{item.runs_per_step:g}",
            _us(item.us_per_step),
        )
        for item in section.frames
    ]
    known = [item for item in section.calls if item.before_graph_us is not None]
    notes = [
        f"{options.text(item.callable, 70)}: {_us(item.before_graph_us)} from the call to its "
        f"graph, guards included (median of {count(item.calls, 'warm call')})"
        for item in known[:MAX_ROWS]
    ]
    table = Table(head, rows, right=head[1:], shrink="frame", limit=MAX_ROWS, notes=notes)
    return [Paragraph(sentence), table]


def _memory(section: CompileMemorySection, receipt: Receipt, options: RenderOptions) -> list[Block]:
    grown = _mib(section.grown_bytes)
    sentence = f"host memory: the process grew by {grown} in {count(section.compiles, 'compile')}"
    peak = (
        "; none raised the most that it had held before"
        if section.peak_bytes is None
        else f", and held {_mib(section.peak_bytes)} at most in one of them"
    )
    functions = {
        (item.process, item.epoch, item.compile_id): item.frame.function
        for item in receipt.compile.events
    }
    head = ("compile", "grew by", "peak")
    rows: list[tuple[str, ...]] = []
    for item in section.events:
        function = functions.get((item.process, item.epoch, item.compile_id), "")
        name = f"{item.compile_id} {function}{'' if item.forward else ' backward'}"
        held = "not above earlier" if item.peak_bytes is None else _mib(item.peak_bytes)
        rows.append((options.text(name, 70), _mib(item.grown_bytes), held))
    table = Table(head, rows, right=head[1:], shrink="compile", limit=MAX_ROWS)
    return [Paragraph(sentence + peak), table]


def _frame(frame: FrameName, options: RenderOptions) -> str:
    return options.text(f"{frame.function} ({frame.file}:{frame.line})", 70)


def _us(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.0f} us"


def _mib(value: int) -> str:
    return f"{value / (1 << 20):,.0f} MiB"
