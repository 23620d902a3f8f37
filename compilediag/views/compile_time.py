"""Where compile seconds went: phases as bars, the most expensive frames, and the caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from compilediag.views.format import count, percent, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.caches import CacheSection
    from compilediag.receipt.schema.compiles import FrameSeconds
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

REFUSALS = {"bypass": "not cached", "not_written": "not written", "miss": "not found"}


def render_compile_time(receipt: Receipt, options: RenderOptions) -> str:
    """The phases of all compiles, the frames, and what the caches answered."""
    found = receipt.compile.seconds
    if found is None or not found.total:
        nothing = (
            "the phases of compiles were not seen: a run of `compilediag run` has them, a recorded "
            "trace has not"
            if receipt.compile.compiles
            else "nothing was compiled"
        )
        return "\n".join([*options.wrap(nothing), *_caches(receipt.caches, options)]) + "\n"
    lines = [f"{seconds(found.total)} in {count(found.attempts, 'compile')}", ""]
    lines += _phases(found.by_phase, found.total, options)
    if found.restarted > 0:
        share = percent(found.restarted, found.total) or "0 %"
        sentence = f"{seconds(found.restarted)} of it ({share}) in attempts that Dynamo began again"
        lines += ["", *options.wrap(sentence, "  ", "    ")]
    lines += ["", *_frames(found.frames, found.total, options)]
    lines += _caches(receipt.caches, options)
    return "\n".join(lines) + "\n"


def _caches(found: CacheSection | None, options: RenderOptions) -> list[str]:
    """Each cache, then why something is in none."""
    if found is None:
        return []
    rows = [
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
    head = ("cache", "lookups", "hits", "misses", "bypassed", "off or failed", "saved")
    lines = ["", *table(head, rows, options, right=head[1:])]
    for item in found.refusals[:MAX_REASONS]:
        what = REFUSALS.get(item.outcome, item.outcome)
        where = CACHES.get(item.cache, options.text(item.cache, 40))
        sentence = f"{where}, {what} {count(item.count, 'time')}: {options.text(item.reason, 300)}"
        lines += ["", *options.wrap(sentence, "  ", "    ")]
    return lines


def _phases(by_phase: Mapping[str, float], total: float, options: RenderOptions) -> list[str]:
    block = "#" if options.ascii_only else "█"
    most = max(by_phase.values())
    rows = [
        (
            LABELS.get(name, options.text(name, 40)),
            seconds(value),
            percent(value, total) or "",
            block * round(BAR_CHARS * max(0.0, value) / most),
        )
        for name, value in sorted(by_phase.items(), key=lambda item: -item[1])
    ]
    return table(("phase", "seconds", "share", ""), rows, options, right=("seconds", "share"))


def _frames(frames: tuple[FrameSeconds, ...], total: float, options: RenderOptions) -> list[str]:
    rows = [
        (
            options.text(f"{item.frame.function} ({item.frame.file}:{item.frame.line})", 70),
            str(item.attempts),
            seconds(item.total),
            percent(item.total, total) or "",
            LABELS.get(max(item.by_phase, key=lambda name: item.by_phase[name], default=""), ""),
        )
        for item in frames
    ]
    head = ("frame", "compiles", "seconds", "share", "most of it")
    return table(head, rows, options, right=head[1:4], shrink="frame", limit=MAX_FRAMES)
