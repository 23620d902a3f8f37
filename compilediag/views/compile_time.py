"""Where compile seconds went: phases as bars, and the most expensive frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from compilediag.views.compile_costs import cost_lines
from compilediag.views.format import count, percent, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FrameSeconds
    from compilediag.receipt.schema.receipt import Receipt

MAX_FRAMES = 20
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


def render_compile_time(receipt: Receipt, options: RenderOptions) -> str:
    """The phases of all compiles, then the frames."""
    found = receipt.compile.seconds
    if found is None or not found.total:
        nothing = (
            "the phases of compiles were not seen: a run of `compilediag run` has them, a recorded "
            "trace has not"
            if receipt.compile.compiles
            else "nothing was compiled"
        )
        return "\n".join([*options.wrap(nothing), *cost_lines(receipt, options)]) + "\n"
    lines = [f"{seconds(found.total)} in {count(found.attempts, 'compile')}", ""]
    lines += _phases(found.by_phase, found.total, options)
    if found.restarted > 0:
        share = percent(found.restarted, found.total) or "0 %"
        sentence = f"{seconds(found.restarted)} of it ({share}) in attempts that Dynamo began again"
        lines += ["", *options.wrap(sentence, "  ", "    ")]
    lines += ["", *_frames(found.frames, found.total, options)]
    lines += cost_lines(receipt, options)
    return "\n".join(lines) + "\n"


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
