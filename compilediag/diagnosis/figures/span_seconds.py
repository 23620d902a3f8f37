"""Seconds of spans by step and category, nested spans counted once: the inner has its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compilediag.diagnosis.figures.goodput import CATEGORY_OF, MAIN_THREAD, PRODUCTIVE
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import SpanEnded


def spans_of(timeline: Timeline, process: int) -> Iterator[SpanEnded]:
    """The spans of one process; none where they cannot be separated from another's."""
    owners = timeline.span_processes
    if owners:
        yield from (
            span for span, owner in zip(timeline.spans, owners, strict=True) if owner == process
        )
    elif len({item.index for item in timeline.processes}) <= 1:
        yield from timeline.spans


def by_step(timeline: Timeline, process: int) -> dict[int, dict[str, float]]:
    """For each step with spans of the main thread: category to seconds. A span belongs to the step
    it ended in; what is the work itself ("forward") is no category."""
    grouped: dict[int, list[SpanEnded]] = {}
    for span in spans_of(timeline, process):
        if span.thread == MAIN_THREAD and span.name not in PRODUCTIVE:
            grouped.setdefault(span.step, []).append(span)
    return {step: _by_category(spans) for step, spans in grouped.items()}


def _by_category(spans: Iterable[SpanEnded]) -> dict[str, float]:
    """Adds up what each span has beyond the spans inside it."""
    seconds: dict[str, float] = {}
    inner: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda item: (item.start + item.wall_s, -item.start)):
        taken = 0.0
        while inner and inner[-1][0] >= span.start:
            taken += inner.pop()[1]
        inner.append((span.start, span.wall_s))
        category = CATEGORY_OF.get(span.name, span.name)
        seconds[category] = seconds.get(category, 0.0) + max(0.0, span.wall_s - taken)
    return seconds
