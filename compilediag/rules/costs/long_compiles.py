"""CD601 to CD604: what makes compiling long, where something can be done about it.

They are for information: a program that compiles long is not wrong. Kernels that are built or tuned
are counted apart, since equal ones are built once, however often a graph has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from compilediag.diagnosis.figures.compile_costs import (
    CompileSeconds,
    by_frame,
    compile_seconds,
    compiles_by_frame,
)
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding, plural, shorten
from compilediag.timeline.timeline import Compile, Timeline

WORTH_S = 2.0
"""Less is not worth a reader's time."""

MOST = 0.5
"""Of all compile seconds: more is what makes compiling long."""

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


RULES: tuple[Rule, ...] = (
    find_repeated_blocks,
    find_restarts,
    find_autotuning,
    find_builds_without_cache,
)
