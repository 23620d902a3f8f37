"""CD302: compiles in steps that should be steady, or in a stretch that the program times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from compilediag.diagnosis.figures.goodput import CATEGORY_OF, MAIN_THREAD
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding, plural
from compilediag.timeline.timeline import Compile, Timeline, spans_of
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
    apart = [span for span in spans_of(timeline, process) if _is_apart(span) or _is_timed(span)]
    for item in own:
        quiet = _quiet_before(item.step, busy)
        if not item.guarded or quiet < STEADY or _inside(item, apart):
            continue
        if item.recompile is not None:
            title = f"recompile after {quiet} quiet steps"
            yield _finding(timeline, [item], title, is_symptom=True)
        elif item.kind == "first":
            title = f"{item.frame.function} was first compiled after {quiet} quiet steps"
            yield _finding(timeline, [item], title)


def find_compiles_in_timed_spans(timeline: Timeline) -> Iterable[Finding]:
    """CD302: the compiles inside spans whose name claims that they measure."""
    process = timeline.lead
    own = [item for item in timeline.compiles if item.process == process]
    found: dict[str, list[Compile]] = {}
    for span in spans_of(timeline, process):
        if _is_timed(span):
            found.setdefault(span.name, []).extend(item for item in own if _inside(item, [span]))
    for name, compiles in found.items():
        if compiles:
            times = plural(len(compiles), "time")
            title = f"torch compiled {times} inside the timed span `{name}`"
            yield _finding(timeline, compiles, title, name)


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
    index = bisect_left(busy, step)
    return step - busy[index - 1] - 1 if index else 0


def _finding(
    timeline: Timeline,
    compiles: Sequence[Compile],
    title: str,
    span: str | None = None,
    *,
    is_symptom: bool = False,
) -> Finding:
    return make_finding(
        timeline,
        "CD302",
        title,
        "call what is compiled there once during warm-up, with the inputs it will get",
        variable=span,
        location=compiles[0].frame,
        severity="info" if is_symptom else None,
        count=len(compiles),
        steps=(item.step for item in compiles),
        # The cost of a recompile stands at the finding that names its cause.
        cost_s=None if is_symptom else sum(item.seconds for item in compiles),
        evidence={
            "compile_ids": [item.compile_id for item in compiles],
            "kinds": sorted({item.kind for item in compiles}),
            "span": span,
        },
    )


RULES: tuple[Rule, ...] = (find_compiles_in_steady_state, find_compiles_in_timed_spans)
