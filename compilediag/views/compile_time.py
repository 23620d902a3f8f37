"""Where compile seconds went: phases as bars, the most expensive frames, and the caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.compile_costs import cost_lines
from compilediag.views.format import count, percent, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.caches import CacheSection
    from compilediag.receipt.schema.compiles import CompileSeconds
    from compilediag.receipt.schema.receipt import Receipt

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
