"""What counts as a frame, compile, recompile, graph, break and fallback: defined here, once.

The definitions of docs/reference/receipt.md. Receipts, telemetry, ranks, tests and the live line
all count by them.
"""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.receipt.schema.compiles import Counts
from compilediag.timeline.breaks import BreakSite
from compilediag.timeline.compiles import Compile
from compilediag.timeline.frames import Frame


def is_compile(item: Compile) -> bool:
    """Whether an attempt counts as a compile."""
    return item.forward and item.guarded


def is_recompile(item: Compile) -> bool:
    """Whether an attempt counts as a recompile too."""
    return item.recompile is not None and item.recompile.produced


def counts_of(
    frames: Iterable[Frame], compiles: Iterable[Compile], breaks: Iterable[BreakSite]
) -> Counts:
    """The counts of what was compiled, by the definitions above."""
    counted = [item for item in compiles if is_compile(item)]
    attempted = tuple(frames)
    return Counts(
        frames=len(attempted),
        compiles=len(counted),
        recompiles=sum(is_recompile(item) for item in counted),
        graphs=sum(bool(item.graph_ops) for item in counted),
        graph_breaks=len({site.at for site in breaks}),
        eager_fallbacks=sum(frame.ran_eager for frame in attempted),
        recompile_limit_hits=sum(frame.limit_hit_step is not None for frame in attempted),
    )
