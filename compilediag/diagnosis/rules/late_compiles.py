"""CD302: compiles in steps that should be steady, or in a stretch that the program times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.figures.goodput import CATEGORY_OF, MAIN_THREAD
from compilediag.diagnosis.figures.span_seconds import spans_of
from compilediag.diagnosis.findings import Finding, Fix, Rule, Severity
from compilediag.diagnosis.ownership import ownership_of
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import SpanEnded

STEADY = 8
"""Steps without a compile after which a program is steady."""

TIMED = frozenset({"timed", "timing", "benchmark", "bench", "measure", "measured", "measurement"})
"""Spans of these names claim to measure steady work."""

_NO_STEADY_WORK = frozenset({"eval", "checkpoint", "startup", "warmup", "compile"})
"""Categories of spans in which a compile makes no step of the training slow."""


def find_compiles_in_steady_state(timeline: Timeline) -> Iterable[Finding]:
    """CD302: each frame that was first compiled in a steady step, and each recompile there, which
    is a symptom of the finding that names its cause."""
    process = timeline.lead
    own = [item for item in timeline.compiles if item.process == process]
    busy = sorted({item.step for item in own})
    if len(busy) < 2:
        return  # no compile has a quiet step before it
    apart = [span for span in spans_of(timeline, process) if _is_apart(span)]
    timed = [span for span in spans_of(timeline, process) if _is_timed(span)]
    for item in own:
        quiet = _quiet_before(item.step, busy)
        steady = item.guarded and quiet >= STEADY and not _inside(item, [*apart, *timed])
        if steady and item.recompile is not None:
            yield _finding(timeline, [item], f"recompile after {quiet} quiet steps", "info")
        elif steady and item.kind == "first":
            title = f"{item.frame.function} was first compiled after {quiet} quiet steps"
            yield _finding(timeline, [item], title, info("CD302").severity)


def find_compiles_in_timed_spans(timeline: Timeline) -> Iterable[Finding]:
    """CD302: the compiles inside of spans whose name says that they measure."""
    process = timeline.lead
    found: dict[str, list[Compile]] = {}
    for span in spans_of(timeline, process):
        if _is_timed(span):
            inside = (item for item in timeline.compiles if item.process == process)
            found.setdefault(span.name, []).extend(i for i in inside if _inside(i, [span]))
    for name, compiles in found.items():
        if compiles:
            times = "time" if len(compiles) == 1 else "times"
            title = f"torch compiled {len(compiles)} {times} inside of the timed span `{name}`"
            yield _finding(timeline, compiles, title, info("CD302").severity, name)


def _is_timed(span: SpanEnded) -> bool:
    return span.thread == MAIN_THREAD and span.name in TIMED


def _is_apart(span: SpanEnded) -> bool:
    category = CATEGORY_OF.get(span.name, span.name)
    return span.thread == MAIN_THREAD and category in _NO_STEADY_WORK


def _inside(item: Compile, spans: Sequence[SpanEnded]) -> bool:
    middle = item.t - item.seconds / 2
    return any(span.start <= middle <= span.start + span.wall_s for span in spans)


def _quiet_before(step: int, busy: Sequence[int]) -> int:
    """Steps without a compile just before `step`; none before the first compile of all."""
    place = bisect_left(busy, step)
    return step - busy[place - 1] - 1 if place else 0


def _finding(
    timeline: Timeline,
    compiles: Sequence[Compile],
    title: str,
    severity: Severity,
    span: str | None = None,
) -> Finding:
    register, place = info("CD302"), compiles[0].frame
    return Finding(
        rule="CD302",
        slug=register.slug,
        severity=severity,
        confidence="exact",
        family=register.family,
        variable=span,
        title=title,
        location=place,
        ownership=ownership_of(place.file, timeline.user_roots),
        count=len(compiles),
        steps=tuple(sorted({item.step for item in compiles})),
        # What a recompile costs stands at the finding that names its cause.
        cost_s=None if severity == "info" else sum(item.seconds for item in compiles),
        fix=Fix(
            "call what is compiled there once during warm-up, with the inputs it will get",
            register.how,
        ),
        evidence={
            "compile_ids": [item.compile_id for item in compiles],
            "kinds": sorted({item.kind for item in compiles}),
            "span": span,
        },
    )


RULES: tuple[Rule, ...] = (find_compiles_in_steady_state, find_compiles_in_timed_spans)
