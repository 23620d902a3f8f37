"""What compiling costs, where something can be done about it (CD601 to CD604), and evaluating the
guards of compiled frames (CD621).

What makes compiling long is for information: a program that compiles long is not wrong. Kernels
that are built or tuned are counted apart: equal ones are built once, however often a graph has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from compilediag.diagnosis.figures.compile_costs import (
    CompileSeconds,
    by_frame,
    compile_seconds,
    compiles_by_frame,
    guard_cost,
)
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding, pick, plural, shorten
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import Location

WORTH_S = 2.0
"""Less is not worth a reader's time."""

MOST = 0.5
"""Of all compile seconds: more is what makes compiling long. Of a frame's guards: what they are
about, or their line, is what to change."""

RESTARTS, RESTARTS_WORTH_S = 0.25, 5.0
"""Of a frame's compile seconds, in attempts that were begun again. The first attempt of a process
imports parts of torch, for some seconds on a slow disk."""

MAX_REASONS = 5
_ONCE = ("kernel_builds", "autotuning")
"""Phases that equal blocks do not make longer."""


def find_repeated_blocks(timeline: Timeline) -> Iterable[Finding]:
    """CD601: a frame with equal blocks takes most compile seconds."""
    own = _own(timeline)
    whole = compile_seconds(own)
    if whole is None:
        return
    compiles_of = compiles_by_frame(own)
    for frame, found in by_frame(own):
        groups = [item.blocks for item in compiles_of[frame] if item.blocks is not None]
        if found.total <= MOST * whole.total or not groups:
            continue
        blocks = max(groups, key=lambda each: each.modules)
        growing = found.total - sum(found.by_phase.get(name, 0.0) for name in _ONCE)
        # Of each compile of a block there may be a second one: the first block gets an input that
        # needs no gradient.
        saved = growing * (1 - 2 / blocks.count)
        if saved >= WORTH_S:
            what = f"{blocks.count} equal blocks ({blocks.class_name}) in {blocks.where}"
            yield make_finding(
                timeline,
                "CD601",
                f"{what} are compiled as one graph: {found.total:.1f} s",
                f"compile each block instead of what holds them (`for block in {blocks.where}: "
                f"block.compile()`): equal blocks share one compile, up to {saved:.1f} s less",
                caveat="nothing is fused across blocks, each is a call with guards of its own, and "
                "what is between them runs eager",
                location=frame,
                variable=blocks.where,
                count=len(compiles_of[frame]),
                steps=(item.step for item in compiles_of[frame]),
                cost_s=saved,
                evidence={
                    "class": blocks.class_name,
                    "blocks": blocks.count,
                    "modules": blocks.modules,
                    **_seconds(found, whole),
                },
            )


def find_restarts(timeline: Timeline) -> Iterable[Finding]:
    """CD602: Dynamo traced a frame again and again."""
    own = _own(timeline)
    whole = compile_seconds(own)
    compiles_of = compiles_by_frame(own)
    for frame, found in by_frame(own):
        if whole is None or found.restarted < max(RESTARTS_WORTH_S, RESTARTS * found.total):
            continue
        reasons = Counter(text for item in compiles_of[frame] for text in item.restart_reasons)
        times = plural(sum(reasons.values()), "reason")
        yield make_finding(
            timeline,
            "CD602",
            f"{frame.function} was traced again from its beginning: {found.restarted:.1f} s of "
            f"{found.total:.1f} s, {times}",
            "remove what torch names as the reasons, or move what is above it into a function of "
            "its own that is compiled alone: each time torch traces all above it once more",
            location=frame,
            count=len(compiles_of[frame]),
            steps=(item.step for item in compiles_of[frame]),
            cost_s=found.restarted,
            evidence={
                "restarted_s": round(found.restarted, 3),
                "reasons": [shorten(text, 300) for text, _ in reasons.most_common(MAX_REASONS)],
                **_seconds(found, whole),
            },
        )


def find_autotuning(timeline: Timeline) -> Iterable[Finding]:
    """CD603: trying kernels takes most compile seconds."""
    yield from _most(
        timeline,
        "CD603",
        "autotuning",
        "trying kernels",
        'compile without mode="max-autotune" while the program changes, and keep the folder of '
        "TORCHINDUCTOR_CACHE_DIR between starts: what was found is kept there",
        "kernels that were not tried may be slower",
    )


def find_builds_without_cache(timeline: Timeline) -> Iterable[Finding]:
    """CD604: kernels are built, and no cache is looked into."""
    counted = sum((item.cache_hits or 0) + (item.cache_misses or 0) for item in _own(timeline))
    caches = (each for each in timeline.caches if each.process == timeline.lead)
    answers = (lookup.outcome for each in caches for lookup in each.lookups)
    if counted == 0 and not {*answers} & {"hit", "miss", "bypass"}:
        yield from _most(
            timeline,
            "CD604",
            "kernel_builds",
            "building kernels, with torch's caches off,",
            "leave torch's caches on (TORCHINDUCTOR_FORCE_DISABLE_CACHES, "
            "torch._inductor.config.force_disable_caches, fx_graph_cache): the next start then "
            "builds nothing",
            None,
        )


def _most(
    timeline: Timeline, code: str, phase: str, what: str, fix: str, caveat: str | None
) -> Iterable[Finding]:
    own = _own(timeline)
    whole = compile_seconds(own)
    spent = whole.by_phase.get(phase, 0.0) if whole is not None else 0.0
    if whole is not None and spent >= max(WORTH_S, MOST * whole.total):
        yield make_finding(
            timeline,
            code,
            f"{what}: {spent:.1f} s of {whole.total:.1f} s of compiling",
            fix,
            caveat=caveat,
            count=whole.attempts,
            cost_s=spent,
            evidence={"phase_s": round(spent, 3), "total_s": round(whole.total, 3)},
        )


def _own(timeline: Timeline) -> Sequence[Compile]:
    """Of one process: others of the run do the same at the same time."""
    return [item for item in timeline.compiles if item.process == timeline.lead]


def _seconds(found: CompileSeconds, whole: CompileSeconds) -> dict[str, object]:
    return {"frame_s": round(found.total, 3), "total_s": round(whole.total, 3)}


# --- guards -------------------------------------------------------------------------------------

SHARE = 0.05
"""Of a step, from which on guards are worth a reader's time."""

MIN_GUARDS = 500
"""Guards evaluated in a step below which nothing is said: some ten microseconds, which are a share
of a step only where the step itself does next to nothing."""

MIN_STEPS = 3
"""Steps without a compile, of whose times the median is one."""

CONSTANTS = frozenset({"EQUALS_MATCH", "ID_MATCH", "TRUE_MATCH", "FALSE_MATCH", "NONE_MATCH"})
"""Guards on Python values that became constants of the graph."""


_COMPUTE_ONCE = (
    "compute what this line reads from many Python values once, outside the compiled code, and "
    "read the result"
)
_DICT_TAGS = (
    "set torch._dynamo.config.use_recursive_dict_tags_for_guards = True before compiling, where "
    "this torch has it: modules that did not change are skipped"
)
_UNSAFE = (
    "; or call torch.compiler.set_stance(skip_guard_eval_unsafe=True) after warm-up, if nothing "
    'will compile again; or pass torch.compile(options={"guard_filter_fn": '
    "torch.compiler.skip_guard_on_all_nn_modules_unsafe}), if no module changes after that"
)


def find_expensive_guards(timeline: Timeline) -> Iterable[Finding]:
    """CD621, once a run, at the frame whose guards cost most."""
    found = guard_cost(timeline)
    if found is None:
        return
    cost, dearest = found
    if cost.share is None or cost.share < SHARE or cost.step_s is None:
        return
    steps = [s.number for s in timeline.steps if s.process == timeline.lead and not s.compile_s]
    known = [item for item in cost.frames if item.us_per_step is not None]
    evaluated = sum((item.evaluated or 0) * (item.runs_per_step or 0.0) for item in known)
    if evaluated < MIN_GUARDS or len(steps) < MIN_STEPS:
        return
    first = known[0]
    # The line that reads the Python values that most of its guards are about.
    kinds = dict(zip(dearest.kinds, dearest.counts, strict=False))
    lines = list(zip(dearest.lines, dearest.line_counts, strict=False))
    constants = sum(count for kind, count in kinds.items() if kind in CONSTANTS)
    fewest = min([constants, *(count for _, count in lines[:1])])
    most = dearest.evaluated and lines and fewest >= MOST * dearest.evaluated
    line = lines[0][0] if most else None
    yield make_finding(
        timeline,
        "CD621",
        f"guards take {_us(cost.us_per_step or 0.0)} of each {_us(cost.step_s * 1e6)} step "
        f"({cost.share:.0%}): {first.evaluated:,} of {first.frame.function}",
        # What keeps every check first, then what drops some.
        (_DICT_TAGS if line is None else _COMPUTE_ONCE) + _UNSAFE,
        caveat="what torch calls unsafe computes with stale values, in silence, where something "
        "that is no longer checked changes after all",
        location=line or Location(first.frame.file, first.frame.line, first.frame.function),
        count=len(steps),
        steps=steps,
        cost_s=(cost.us_per_step or 0.0) / 1e6 * len(steps),
        evidence={
            **pick(cost, "us_per_step", "step_s", "share"),
            "guards_per_step": evaluated,
            "frames": [
                {
                    **pick(item.frame, "file", "line", "function"),
                    **pick(item, "eval_us", "evaluated", "runs_per_step"),
                }
                for item in known[:5]
            ],
            "kinds": kinds,
            "lines": [{**pick(at, "file", "line"), "guards": count} for at, count in lines],
            "in_python": dearest.in_python,
            "python_guards": list(dearest.python_texts),
            "before_graph_us": {
                item.function.function: item.before_graph_us
                for item in timeline.warm_calls
                if item.process == timeline.lead and item.before_graph_us is not None
            },
        },
    )


def _us(value: float) -> str:
    return f"{value / 1000:.1f} ms" if value >= 1000 else f"{value:.0f} us"


RULES: tuple[Rule, ...] = (
    find_repeated_blocks,
    find_restarts,
    find_autotuning,
    find_builds_without_cache,
)
