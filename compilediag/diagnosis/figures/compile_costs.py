"""Costs of compiling: seconds by phase, without those of the phases within it, and guards on each
call. An evaluation of guards is measured right after others, so that it is the least that a call
pays; torch's own figure is of one with empty caches of the processor, which no loop ever sees."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from statistics import median

from msgspec.structs import replace

from compilediag.diagnosis.figures.goodput import make_recompile_test
from compilediag.diagnosis.figures.invocations import list_invocations
from compilediag.diagnosis.figures.steps import sum_measured
from compilediag.receipt.schema.compiles import (
    CompileSeconds,
    CompileTime,
    FrameGuards,
    FrameSeconds,
    GuardsSection,
    WarmRuns,
)
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.compiles import TimedWarmCalls, get_compile_id
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import GuardsEvaluated, Location

OTHER = "other"

_NAMES = {
    "autotuning": r".*(?:autotun|benchmark|do_bench|template_precompil)",
    "kernel_builds": (
        r"compile_file|async_compile|PyCodeCache|(?:cpp|cuda|triton).*compile|CachingAutotuner|"
        r".*precompile_config|reload_kernel|aoti_|StaticAutotuner"
    ),
    "caches": (
        r"AOTAutogradCache|FxGraphCache|fx_graph_cache|inductor_codecache|CacheBase|CompiledArtifact|"
        r"TritonBundler|GraphPickler|pgo\.|.*(?:remote_cache|cache_load|cache_save|cache_lookup)"
    ),
    "code_generation": (
        r".*codegen(?!_and_compile)|.*Codegen\w*\.|CppWrapper|code_gen|generate_kernel_code"
    ),
    "lowering": r"GraphLowering|Scheduler|fx_codegen_and_compile|inductor_compile|compile_fx_inner",
    "graph_passes": (
        r"pass\.|_?recursive_(?:pre|joint|post)_grad|.*grad_passes|joint_graph_passes|fx\.|min_cut|"
        r"_recursive_joint|additional_fake_tensor_prop|insert_deferred|convert_conv_weights"
    ),
    "aot_autograd": r"aot_|create_aot_dispatcher|invoke_subgraph|AOT",
    "backend": r"backend_compile|compile_fx\b|inductor_import|OutputGraph\.call_user_compiler",
    "guards": r"build_guards|.*guard",
    "garbage_collection": r"gc$",
    "dynamo": (
        r"entire_frame_compile|entire_backward_compile|_compile\.|compile_attempt|bytecode|dynamo|"
        r"compile_inner|convert_frame|fullgraph_capture|compiler_collective"
    ),
}
"""Phases by what torch calls what it times, in 2.7 to 2.15; the first that matches counts."""

PHASES = (*reversed(_NAMES), OTHER)
"""In about the order in which a compile comes to them."""

FRAMES_WITH_SECONDS = 200
"""Frames whose compile seconds are taken apart, the most expensive first."""


def compute_compile_time(timeline: Timeline) -> CompileTime:
    """Compute the compile seconds of a run; each None where torch's rows do not show it. Backward
    compiles and failed attempts cost time too: the total is of all attempts."""
    if not timeline.can_observe("metrics_rows"):
        return CompileTime()
    if not timeline.compiles:
        return CompileTime(total=0.0, first_compile=0.0, recompile=0.0, backend=0.0)
    is_again = make_recompile_test(timeline)
    first, again = (
        sum(attempt.seconds for attempt in timeline.compiles if is_again(attempt) is recompile)
        for recompile in (False, True)
    )
    return CompileTime(
        total=first + again,
        first_compile=first,
        recompile=again,
        backend=sum_measured(attempt.backend_s for attempt in timeline.compiles),
    )


def build_seconds_section(timeline: Timeline) -> CompileSeconds | None:
    """Build the section of compile seconds; None where torch's timing of a compile was not seen."""
    whole = sum_compile_seconds(timeline.compiles)
    if whole is None:
        return None
    dearest = sum_seconds_by_frame(timeline.compiles)[:FRAMES_WITH_SECONDS]
    frames = tuple(make_record(FrameSeconds, seconds, frame=where) for where, seconds in dearest)
    return replace(whole, frames=frames)


def sum_compile_seconds(compiles: Iterable[Compile]) -> CompileSeconds | None:
    """Sum the seconds of compiles; None where torch's timing of one of them was not seen, or there
    is none. Phases add up to the total: what torch does not time is `OTHER`."""
    timed = [attempt for attempt in compiles if attempt.has_row]
    if not timed or any(attempt.phases is None for attempt in timed):
        return None
    by_phase = dict.fromkeys(PHASES, 0.0)
    for attempt in timed:
        for name, seconds in attempt.phases or ():
            by_phase[classify_phase(name)] += seconds
    total = sum(attempt.seconds for attempt in timed)
    by_phase[OTHER] += total - sum(by_phase.values())
    return CompileSeconds(
        attempts=len(timed),
        total=total,
        by_phase={name: value for name, value in by_phase.items() if abs(value) >= 1e-6},
        restarted=sum(attempt.restarted_s or 0.0 for attempt in timed),
    )


@cache
def classify_phase(name: str) -> str:
    """Classify torch's name for something it times: one of `PHASES`."""
    return next((phase for phase, pattern in _NAMES.items() if re.match(pattern, name)), OTHER)


def group_compiles_by_frame(compiles: Iterable[Compile]) -> dict[Location, list[Compile]]:
    """Group compiles by function. A backward compile names none: it is its forward's."""
    attempts = list(compiles)
    functions = {attempt.key: attempt.frame for attempt in reversed(attempts) if attempt.forward}
    frames: dict[Location, list[Compile]] = {}
    for attempt in attempts:
        frames.setdefault(functions.get(attempt.key, attempt.frame), []).append(attempt)
    return frames


def sum_seconds_by_frame(compiles: Iterable[Compile]) -> list[tuple[Location, CompileSeconds]]:
    """Sum the compile seconds of each compiled function, the most expensive first."""
    frames = group_compiles_by_frame(compiles)
    timed = [(frame, sum_compile_seconds(attempts)) for frame, attempts in frames.items()]
    known = [(frame, seconds) for frame, seconds in timed if seconds is not None]
    return sorted(known, key=lambda pair: -pair[1].total)


MAX_LISTED = 200
"""Frames and callables that a receipt lists: those that cost most."""


def build_guards_section(timeline: Timeline) -> GuardsSection | None:
    """Build the section of guards as a receipt lists it; None where no guards were looked at."""
    cost = compute_guard_cost(timeline)
    if cost is None:
        return None
    figures, _ = cost
    return replace(figures, frames=figures.frames[:MAX_LISTED], calls=figures.calls[:MAX_LISTED])


def compute_guard_cost(timeline: Timeline) -> tuple[GuardsSection, GuardsEvaluated] | None:
    """Compute what guards cost in the lead process: all frames, those that cost most first (in
    microseconds a step), and the guards of the first. None where no guards were looked at."""
    process = timeline.lead
    frames = {row.id: row.frame for row in timeline.compiles if row.guarded and row.forward}
    by_frame: dict[Location, list[GuardsEvaluated]] = {}
    for entry in timeline.guard_sets:
        compiled = get_compile_id(entry)
        if entry.process == process and compiled in frames:
            by_frame.setdefault(frames[compiled], []).append(entry)
    if not by_frame:
        return None
    warm = [warm_calls for warm_calls in timeline.warm_calls if warm_calls.process == process]
    runs = _count_runs(timeline, warm)
    costs: list[tuple[FrameGuards, GuardsEvaluated]] = []
    for frame, sets in by_frame.items():
        guards = min(sets, key=lambda entry: math.inf if entry.eval_us is None else entry.eval_us)
        often, us = runs.get(frame), guards.eval_us
        record = make_record(
            FrameGuards,
            guards,
            frame=frame,
            kinds=dict(zip(guards.kinds, guards.counts, strict=False)),
            runs_per_step=often,
            us_per_step=None if often is None or us is None else us * often,
        )
        costs.append((record, guards))
    costs.sort(key=lambda pair: -(pair[0].us_per_step or 0.0))
    us_per_step = sum_measured(cost.us_per_step for cost, _ in costs)
    walls = [s.wall_s for s in timeline.steps if s.process == process and not s.compile_s]
    step_s = median(walls) if walls else None
    figures = GuardsSection(
        step_s=step_s,
        us_per_step=us_per_step,
        share=None if us_per_step is None or not step_s else us_per_step / 1e6 / step_s,
        frames=tuple(cost for cost, _ in costs),
        calls=tuple(
            WarmRuns(
                callable=f"{at.function} ({at.file}:{at.line})",
                calls=warm_calls.calls,
            )
            for warm_calls in warm
            for at in (warm_calls.function,)
        ),
    )
    return figures, costs[0][1]


def _count_runs(timeline: Timeline, warm: Iterable[TimedWarmCalls]) -> dict[Location, float]:
    """Count how often the graph of each frame runs in a step, by the calls that were looked at."""
    calls: dict[Location, float] = {}
    for own, record in list_invocations(timeline):
        if record.per_step is not None:
            calls[own.function] = calls.get(own.function, 0.0) + record.per_step.median
    runs: dict[Location, float] = {}
    for warm_calls in warm:
        for frame, count in warm_calls.runs:
            often = count / warm_calls.calls * calls.get(warm_calls.function, 0.0)
            runs[frame] = runs.get(frame, 0.0) + often
    return {frame: often for frame, often in runs.items() if often > 0.0}
