"""The guards and the memory of compiles in a receipt, from a Timeline."""

from __future__ import annotations

from compilediag.diagnosis.figures.guard_cost import guard_cost
from compilediag.receipt.schema.compile_costs import (
    CompileMemory,
    CompileMemorySection,
    FrameGuards,
    GuardedFrame,
    GuardsSection,
    WarmCalls,
)
from compilediag.timeline.timeline import Timeline

KEPT = 200
"""Frames, callables and compiles that are listed: those that cost most."""


def guards_section(timeline: Timeline) -> GuardsSection | None:
    """None where no guards were looked at."""
    cost = guard_cost(timeline)
    if cost is None:
        return None
    return GuardsSection(
        step_s=cost.step_s,
        us_per_step=cost.us_per_step,
        share=cost.share,
        frames=tuple(
            FrameGuards(
                frame=GuardedFrame(
                    function=item.frame.function,
                    file=item.frame.file,
                    line=item.frame.line,
                ),
                evaluated=item.guards.evaluated,
                in_python=item.guards.in_python,
                eval_us=item.guards.eval_us,
                runs_per_step=item.runs_per_step,
                us_per_step=item.us_per_step,
                kinds=dict(item.guards.kinds),
            )
            for item in cost.frames[:KEPT]
        ),
        calls=tuple(
            WarmCalls(
                callable=f"{item.function.function} ({item.function.file}:{item.function.line})",
                calls=item.calls,
                before_graph_us=item.before_graph_us,
            )
            for item in cost.warm[:KEPT]
        ),
    )


def memory_section(timeline: Timeline) -> CompileMemorySection | None:
    """None where the memory around no compile was read."""
    own = [item for item in timeline.compile_memory if item.id.process == timeline.lead]
    if not own:
        return None
    # The process's highest so far when a compile raised it: of several the highest is the last.
    peaks = [item.peak for item in own if item.peak is not None]
    listed = sorted(own, key=lambda item: -item.grown)[:KEPT]
    return CompileMemorySection(
        compiles=len(own),
        grown_bytes=sum(item.grown for item in own),
        peak_bytes=max(peaks, default=None),
        events=tuple(
            CompileMemory(
                compile_id=item.id.compile_id,
                epoch=item.id.epoch,
                process=item.id.process,
                forward=item.forward,
                grown_bytes=item.grown,
                peak_bytes=item.peak,
            )
            for item in listed
        ),
    )
