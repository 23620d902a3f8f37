"""Views of compiles: frames with their room below the recompile limit, each compile with every
guard that was false, and compile seconds: phases as bars, the most expensive frames, caches,
guards, memory."""

from __future__ import annotations

import re

from compilediag.receipt.schema.caches import CacheSection
from compilediag.receipt.schema.compiles import CompileEvent, CompileSeconds, GuardsSection
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName
from compilediag.views.document import Block, Paragraph, Preformatted, Table
from compilediag.views.format import (
    NOT_MEASURED,
    format_more,
    format_percent,
    format_seconds,
    pluralize,
)
from compilediag.views.graphs import render_restart
from compilediag.views.place import format_frame
from compilediag.views.style import RenderOptions
from compilediag.views.text import pad
from compilediag.views.varied import build_varied
from compilediag_harness.base.resumed_frames import find_resumed_function

MAX_ENTRIES = 4
MAX_CAUSES = 20
"""Of one compile; `show --json` has them all."""
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_]+")


# Invariant: `commands/show.py` finds `show_frames`, `show_timeline` and the like by their names.
def show_frames(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Build the table of the run's frames, most compiles first, and what its columns mean."""
    details = sorted(receipt.compile.frames_detail, key=lambda detail: -detail.compiles)
    if not details:
        nothing = "no frame was seen: torch.compile was not reached, or it was not observed"
        return [Paragraph(nothing)]
    rows: list[tuple[str, ...]] = []
    eager: list[str] = []
    for detail in details:
        function = options.clean(detail.frame.function, 60)
        room, micros = detail.headroom, detail.guard_eval_us
        rows.append(
            (
                f"{function}  {options.format_place(detail.frame.file, detail.frame.line)}",
                str(detail.compiles),
                "?" if detail.guards is None else str(detail.guards),
                NOT_MEASURED if micros is None else f"{micros:.0f} us",
                f"{room.variants} of {'?' if room.limit is None else room.limit}",
                "yes" if detail.ran_eager else "no",
            )
        )
        if detail.ran_eager and detail.eager_reason:
            eager.append(f"{function} ran eager: {options.clean(detail.eager_reason)}")
    head = ("frame", "compiles", "guards", "guard check", "variants", "ran eager")
    # The files of decompiled code by compile; from `run --depyf`.
    linked = {
        artifact.uri.rpartition("/")[2].removesuffix(".py"): artifact.uri
        for artifact in receipt.artifacts
        if artifact.role == "depyf"
    }
    decompiled: list[str] = []
    for event in receipt.compile.events:
        function = event.frame.function
        identity = event.compile_id.replace("/", "-").replace("!", "a")
        uri = linked.pop(f"{identity}-{_NOT_A_WORD.sub('_', function)[:60]}", None)
        if uri is not None:
            resumed = find_resumed_function(function) is not None
            what = "what runs after the break" if resumed else "what runs"
            name = f"{options.clean(event.compile_id, 40)} {options.clean(function, 60)}"
            decompiled.append(f"{name}, {what}: {options.clean(uri)}")
    meaning = "variants: compiled versions in use, of recompile_limit; over it the frame runs eager"
    return [
        Paragraph(f"{pluralize(len(details), 'frame')} that torch.compile attempted"),
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
    ranks = len({event.process for event in events}) > 1
    epochs = len({event.epoch for event in events}) > 1
    recompiles = pluralize(receipt.compile.recompiles, "recompile")
    blocks: list[Block] = [Paragraph(f"{pluralize(len(events), 'compile')}, of them {recompiles}")]
    for event in events:
        step = "step not seen" if event.step is None else f"step {event.step}"
        identity = options.clean(event.compile_id, 40)
        identity += f" after reset {event.epoch}" if epochs and event.epoch else ""
        identity += f" of process {event.process}" if ranks else ""
        cells = (step, identity, event.kind, format_seconds(event.seconds))
        columns = " ".join(map(pad, cells, (9, 6, 9, 8)))
        frame = format_frame(event, options)
        lines = options.wrap(frame, f"  {columns} ", " " * 9, style="bold")
        lines += render_restart(event, options, " " * 9)
        for cause in event.causes[:MAX_CAUSES]:
            code = f"{options.clean(cause.rule, 8)} " if cause.rule else ""
            change = options.format_change_after("  ", cause.expected, cause.actual, 120)
            where = (
                f"{options.dot}{options.format_place(cause.file, cause.line)}" if cause.file else ""
            )
            family = options.clean(cause.family.replace("_", " "), 60)
            sentence = f"{code}{family}: {options.clean(cause.variable, 120)}{change}{where}"
            begin = f"       {'*' if cause.primary else ' '} "
            lines += options.wrap(sentence, begin, " " * 11)
            if cause.guard:
                guard = f"guard: {options.clean(cause.guard, 300)}"
                lines += options.wrap(guard, " " * 9, " " * 11, style="dim")
        lines += format_more(len(event.causes) - MAX_CAUSES, ": compilediag show --json", " " * 9)
        blocks.append(Preformatted([*lines, *render_missed_entries(event, options, " " * 9)]))
    blocks += build_varied(receipt, options, complete=True)
    if any(len(event.causes) > 1 for event in events):
        note = "* the guard to blame; the others were false at the same time"
        blocks.append(Paragraph(notes=(note,)))
    if any(len(event.entries) > 1 for event in events):
        note = "new: no cache entry accepts the value; known: one does, it was compiled for before"
        blocks.append(Paragraph(notes=(note,)))
    return blocks


def render_missed_entries(event: CompileEvent, options: RenderOptions, indent: str) -> list[str]:
    """Render the cache entries that did not fit, nearest first, where there was more than one: with
    each value whether any entry accepts it. A text does not show which is nearest."""
    if len(event.entries) < 2:
        return []
    evaluated = all(entry.left_out is not None for entry in event.entries)
    order = "nearest first" if evaluated else "by the first false guard of each"
    lines = [f"{indent}cache entries that did not fit, {order}:"]
    for entry in event.entries[:MAX_ENTRIES]:
        parts: list[str] = []
        for guard in entry.guards:
            change = options.format_change_after(" ", guard.expected, guard.actual, 60)
            known = {True: " (new)", False: " (known)", None: ""}[guard.novel]
            parts.append(f"{options.clean(guard.variable or guard.rule, 80)}{change}{known}")
        if entry.left_out:
            parts.append(f"and {entry.left_out} that follow or are not listed")
        entry_id = pad(options.clean(entry.compile_id, 40), 6)
        lines += options.wrap("; ".join(parts), f"{indent}  {entry_id} ")
    hidden = len(event.entries) - MAX_ENTRIES + event.entries_left_out
    return lines + format_more(hidden, ": compilediag show --json", f"{indent}  ")


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
    "pgo_local": "profile of sizes (PGO)",
}
"""Others have the name of torch's class."""

_REFUSALS = {"bypass": "not cached", "not_written": "not written", "miss": "not found"}


def show_compile_time(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Build the tables of compile seconds: phases, frames, outcomes of caches, guards."""
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
    times, caches = receipt.compile.seconds, receipt.caches
    guards = receipt.compile.guards
    return [
        *(_build_phase_tables(times, options) if times is not None and times.total else []),
        *([] if caches is None else _build_cache_tables(caches, options)),
        *([] if guards is None else _build_guard_tables(guards, options)),
    ]


def _build_phase_tables(times: CompileSeconds, options: RenderOptions) -> list[Block]:
    phases = sorted(times.by_phase.items(), key=lambda phase: -phase[1])
    rows = [
        (
            LABELS.get(name, options.clean(name, 40)),
            format_seconds(value),
            format_percent(value, times.total) or "",
        )
        for name, value in phases
    ]
    head = ("phase", "seconds", "share")
    blocks: list[Block] = [
        Paragraph(f"{format_seconds(times.total)} in {pluralize(times.attempts, 'compile')}"),
        Table(head, rows, right=head[1:], bars=[value for _, value in phases]),
    ]
    if times.restarted > 0:
        share = format_percent(times.restarted, times.total) or "0 %"
        sentence = (
            f"{format_seconds(times.restarted)} of it ({share}) in attempts that Dynamo began again"
        )
        blocks.append(Paragraph(notes=(sentence,)))
    frames = [
        (
            _format_frame(row.frame, options),
            str(row.attempts),
            format_seconds(row.total),
            format_percent(row.total, times.total) or "",
            LABELS.get(max(row.by_phase, key=lambda name: row.by_phase[name], default=""), ""),
        )
        for row in times.frames
    ]
    head = ("frame", "compiles", "seconds", "share", "most of it")
    return [*blocks, Table(head, frames, right=head[1:4], shrink="frame", limit=MAX_FRAMES)]


def _build_cache_tables(section: CacheSection, options: RenderOptions) -> list[Block]:
    """Build the table of the caches, then sentences on why something is in none."""
    head = ("cache", "lookups", "hits", "misses", "bypassed", "off or failed", "saved")
    rows = [
        (
            CACHES.get(use.cache, options.clean(use.cache, 40)),
            *map(str, (use.lookups, use.hits, use.misses, use.bypasses)),
            str(use.disabled + use.failed),
            "" if use.saved_s is None else format_seconds(use.saved_s),
        )
        for use in section.caches
    ]
    blocks: list[Block] = [Table(head, rows, right=head[1:])]
    for refusal in section.refusals[:MAX_REASONS]:
        sentence = (
            f"{CACHES.get(refusal.cache, options.clean(refusal.cache, 40))}, "
            f"{_REFUSALS.get(refusal.outcome, refusal.outcome)} "
            f"{pluralize(refusal.count, 'time')}: {options.clean(refusal.reason, 300)}"
        )
        blocks.append(Paragraph(notes=(sentence,)))
    return blocks


def _build_guard_tables(section: GuardsSection, options: RenderOptions) -> list[Block]:
    if section.us_per_step is None or not section.step_s:
        sentence = "guards: evaluated before every call; their part of a step is not known"
    else:
        share = format_percent(section.us_per_step / 1e6, section.step_s) or "less than 1 %"
        sentence = (
            f"guards: at least {_format_us(section.us_per_step)} of each "
            f"{_format_us(section.step_s * 1e6)} step ({share}), evaluated before every call"
        )
    head = ("frame", "guards", "in Python", "once", "runs a step", "a step")
    rows = [
        (
            _format_frame(row.frame, options),
            NOT_MEASURED if row.evaluated is None else f"{row.evaluated:,}",
            NOT_MEASURED if row.in_python is None else f"{row.in_python:,}",
            _format_us(row.eval_us),
            NOT_MEASURED if row.runs_per_step is None else f"{row.runs_per_step:g}",
            _format_us(row.us_per_step),
        )
        for row in section.frames
    ]
    table = Table(head, rows, right=head[1:], shrink="frame", limit=MAX_ROWS)
    return [Paragraph(sentence), table]


def _format_frame(frame: FrameName, options: RenderOptions) -> str:
    return options.clean(f"{frame.function} ({frame.file}:{frame.line})", 70)


def _format_us(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.0f} us"
