"""Seconds of spans, of functions that are not compiled on purpose, and of hooks, each by the phase
of the step it ran in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compilediag.diagnosis.figures.goodput import CATEGORY_OF, MAIN_THREAD, PRODUCTIVE
from compilediag.receipt.schema.running import Timing
from compilediag.timeline.timeline import DisabledCalls, Hook, Timeline
from compilediag_harness.wire import SpanEnded

MAX_ROWS = 256
"""Rows kept: those that took longest, then those that could not be timed."""

OTHER_THREAD = "other thread"

_RUN_BY_AUTOGRAD = frozenset(
    {"backward_hook", "backward_pre_hook", "tensor_hook", "accumulate_grad_hook"}
)


def timings_of(timeline: Timeline) -> tuple[Timing, ...]:
    """The rows of the lead process, the longest first."""
    process = timeline.lead
    calls = [item for item in timeline.disabled_calls if item.process == process]
    hooks = [item for item in timeline.hooks if item.process == process]
    of_hooks = {hook.function for hook in hooks if hook.disabled}
    rows = [
        *_spans(timeline, process),
        *(_calls(item) for item in calls if item.function not in of_hooks),
        *(row for hook in hooks for row in _hook(hook, calls)),
    ]
    rows.sort(key=lambda row: -(row.total_s or 0.0))
    return tuple(rows[:MAX_ROWS])


def _spans(timeline: Timeline, process: int) -> Iterator[Timing]:
    walls: dict[tuple[str, str | None], list[float]] = {}
    for span in spans_of(timeline, process):
        phase = span.phase if span.thread == MAIN_THREAD else OTHER_THREAD
        walls.setdefault((span.name, phase), []).append(span.wall_s)
    for (name, phase), taken in walls.items():
        total_s = sum(taken)
        yield Timing(
            kind="span",
            name=name,
            phase=phase,
            count=len(taken),
            total_s=total_s,
            mean_s=total_s / len(taken),
            max_s=max(taken),
        )


def _calls(
    item: DisabledCalls,
    kind: str = "disabled_function",
    target: str | None = None,
) -> Timing:
    return Timing(
        kind=kind,
        name=item.function.function,
        phase=item.phase,
        count=item.count,
        total_s=item.total_s,
        mean_s=item.total_s / item.count if item.count else None,
        max_s=item.longest_s,
        target=target,
        file=item.function.file or None,
        line=item.function.line or None,
    )


def _hook(hook: Hook, calls: list[DisabledCalls]) -> Iterator[Timing]:
    """Each phase a disabled hook was called in; one row without figures for another."""
    if hook.disabled:
        own = [item for item in calls if item.function == hook.function]
        yield from (_calls(item, hook.kind, hook.target) for item in own)
        if own:
            return
        note = "no call of it was seen"
    elif hook.kind in _RUN_BY_AUTOGRAD:
        note = "called by autograd: not timed"
    else:
        note = "inside compiled code: not timed"
    yield Timing(
        kind=hook.kind,
        name=hook.function.function,
        target=hook.target,
        note=note,
        file=hook.function.file or None,
        line=hook.function.line or None,
    )


# --- spans by step --------------------------------------------------------------------------------


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
    """For each step with spans of the main thread: category to seconds; of nested spans the inner
    has its time. A span belongs to the step
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
