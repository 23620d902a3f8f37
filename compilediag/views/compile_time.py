"""Where compile seconds went: phases as bars, the most expensive frames, and the caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import NOT_MEASURED, count, percent, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.caches import CacheSection
    from compilediag.receipt.schema.compiles import (
        CompileGrowth,
        CompileMemorySection,
        CompileSeconds,
        FrameGuards,
        GuardsSection,
    )
    from compilediag.receipt.schema.receipt import Receipt


MAX_ROWS = 10


MAX_FRAMES = 20
MAX_REASONS = 5
BAR_CHARS = 30

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

PHASE_HEAD = ("phase", "seconds", "share")
FRAME_HEAD = ("frame", "compiles", "seconds", "share", "most of it")
CACHE_HEAD = ("cache", "lookups", "hits", "misses", "bypassed", "off or failed", "saved")

REFUSALS = {"bypass": "not cached", "not_written": "not written", "miss": "not found"}


def render_compile_time(receipt: Receipt, options: RenderOptions) -> str:
    """The phases of all compiles, the frames, and what the caches answered."""
    found = receipt.compile.seconds
    if found is None or not found.total:
        nothing = (
            "the phases of compiles were not seen: this torch, or what it recorded, does not have "
            "the times of each compile's parts"
            if receipt.compile.compiles
            else "nothing was compiled"
        )
        return (
            "\n".join(
                [
                    *options.wrap(nothing),
                    *_caches(receipt.caches, options),
                    *cost_lines(receipt, options),
                ]
            )
            + "\n"
        )
    lines = [f"{seconds(found.total)} in {count(found.attempts, 'compile')}", ""]
    lines += _phases(found, options)
    if found.restarted > 0:
        share = percent(found.restarted, found.total) or "0 %"
        sentence = f"{seconds(found.restarted)} of it ({share}) in attempts that Dynamo began again"
        lines += ["", *options.wrap(sentence, "  ", "    ")]
    rows = frame_rows(found, options)
    right = FRAME_HEAD[1:4]
    lines += [
        "",
        *table(FRAME_HEAD, rows, options, right=right, shrink="frame", limit=MAX_FRAMES),
    ]
    lines += _caches(receipt.caches, options)
    lines += cost_lines(receipt, options)
    return "\n".join(lines) + "\n"


def _caches(found: CacheSection | None, options: RenderOptions) -> list[str]:
    """Each cache, then why something is in none."""
    if found is None:
        return []
    lines = ["", *table(CACHE_HEAD, cache_rows(found, options), options, right=CACHE_HEAD[1:])]
    for sentence in refusals(found, options):
        lines += ["", *options.wrap(sentence, "  ", "    ")]
    return lines


def cache_rows(found: CacheSection, options: RenderOptions) -> list[tuple[str, ...]]:
    """A row a cache, below `CACHE_HEAD`."""
    return [
        (
            CACHES.get(item.cache, options.text(item.cache, 40)),
            str(item.lookups),
            str(item.hits),
            str(item.misses),
            str(item.bypasses),
            str(item.disabled + item.failed),
            "" if item.saved_s is None else seconds(item.saved_s),
        )
        for item in found.caches
    ]


def refusals(found: CacheSection, options: RenderOptions) -> list[str]:
    """Why something is in no cache, in sentences."""
    return [
        f"{CACHES.get(item.cache, options.text(item.cache, 40))}, "
        f"{REFUSALS.get(item.outcome, item.outcome)} {count(item.count, 'time')}: "
        f"{options.text(item.reason, 300)}"
        for item in found.refusals[:MAX_REASONS]
    ]


def _phases(found: CompileSeconds, options: RenderOptions) -> list[str]:
    block = "#" if options.ascii_only else "█"
    most = max(found.by_phase.values())
    rows = [
        (*row, block * round(BAR_CHARS * max(0.0, value) / most))
        for row, value in phase_rows(found, options)
    ]
    return table((*PHASE_HEAD, ""), rows, options, right=PHASE_HEAD[1:])


def phase_rows(
    found: CompileSeconds, options: RenderOptions
) -> list[tuple[tuple[str, str, str], float]]:
    """A row a phase, below `PHASE_HEAD`, and its seconds; the longest first."""
    return [
        (
            (
                LABELS.get(name, options.text(name, 40)),
                seconds(value),
                percent(value, found.total) or "",
            ),
            value,
        )
        for name, value in sorted(found.by_phase.items(), key=lambda item: -item[1])
    ]


def frame_rows(found: CompileSeconds, options: RenderOptions) -> list[tuple[str, ...]]:
    """A row a frame, below `FRAME_HEAD`."""
    return [
        (
            options.text(f"{item.frame.function} ({item.frame.file}:{item.frame.line})", 70),
            str(item.attempts),
            seconds(item.total),
            percent(item.total, found.total) or "",
            LABELS.get(max(item.by_phase, key=lambda name: item.by_phase[name], default=""), ""),
        )
        for item in found.frames
    ]


def cost_lines(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Guards, then memory; empty where neither was measured."""
    guards, memory = receipt.compile.guards, receipt.compile.memory
    return [
        *([] if guards is None else _guards(guards, options)),
        *([] if memory is None else _memory(memory, receipt, options)),
    ]


def _guards(section: GuardsSection, options: RenderOptions) -> list[str]:
    if section.us_per_step is None or not section.step_s:
        sentence = "guards: evaluated before every call; their part of a step is not known"
    else:
        share = percent(section.us_per_step / 1e6, section.step_s) or "less than 1 %"
        sentence = (
            f"guards: at least {_us(section.us_per_step)} of each {_us(section.step_s * 1e6)} step "
            f"({share}), evaluated before every call"
        )
    head = ("frame", "guards", "in Python", "once", "runs a step", "a step")
    lines = ["", *options.wrap(sentence), ""]
    rows = [_row(item, options) for item in section.frames]
    lines += table(head, rows, options, right=head[1:], shrink="frame", limit=MAX_ROWS)
    known = [item for item in section.calls if item.before_graph_us is not None]
    for item in known[:MAX_ROWS]:
        told = (
            f"{options.text(item.callable, 70)}: {_us(item.before_graph_us)} from the call to its "
            f"graph, guards included (median of {count(item.calls, 'warm call')})"
        )
        lines += options.wrap(told, "  ", "    ")
    return lines


def _row(item: FrameGuards, options: RenderOptions) -> tuple[str, ...]:
    return (
        options.text(f"{item.frame.function} ({item.frame.file}:{item.frame.line})", 70),
        NOT_MEASURED if item.evaluated is None else f"{item.evaluated:,}",
        NOT_MEASURED if item.in_python is None else f"{item.in_python:,}",
        _us(item.eval_us),
        NOT_MEASURED if item.runs_per_step is None else f"{item.runs_per_step:g}",
        _us(item.us_per_step),
    )


def _memory(section: CompileMemorySection, receipt: Receipt, options: RenderOptions) -> list[str]:
    grown = _mib(section.grown_bytes)
    sentence = f"host memory: the process grew by {grown} in {count(section.compiles, 'compile')}"
    peak = (
        "; none raised the most that it had held before"
        if section.peak_bytes is None
        else f", and held {_mib(section.peak_bytes)} at most in one of them"
    )
    frames = {
        (item.process, item.epoch, item.compile_id): item.frame.function
        for item in receipt.compile.events
    }
    head = ("compile", "grew by", "peak")
    rows = [_memory_row(item, frames, options) for item in section.events]
    return [
        "",
        *options.wrap(sentence + peak),
        "",
        *table(head, rows, options, right=head[1:], shrink="compile", limit=MAX_ROWS),
    ]


def _memory_row(
    item: CompileGrowth, frames: dict[tuple[int, int, str], str], options: RenderOptions
) -> tuple[str, ...]:
    function = frames.get((item.process, item.epoch, item.compile_id), "")
    name = f"{item.compile_id} {function}{'' if item.forward else ' backward'}"
    peak = "not above earlier" if item.peak_bytes is None else _mib(item.peak_bytes)
    return (options.text(name, 70), _mib(item.grown_bytes), peak)


def _us(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.0f} us"


def _mib(value: int) -> str:
    return f"{value / (1 << 20):,.0f} MiB"
