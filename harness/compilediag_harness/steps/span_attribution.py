"""Which step a span belongs to, and which phase of it: those in progress when it has ended."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from compilediag_harness.base import step_phases as phases
from compilediag_harness.steps.step_detection import StepSource
from compilediag_harness.steps.step_sampling import StepSampling
from compilediag_harness.user_api.spans import Row


def attribute(
    sources: Sequence[StepSource], unsampled: StepSampling | None, rows: Sequence[Row], ending: bool
) -> Sequence[str | None]:
    """Adds spans to the step in progress of every session. Returns the phases they began in, None
    for those of a thread whose steps this one may not touch unless a session is `ending`.
    `unsampled` is set while steps are not sampled."""
    here = threading.get_ident()
    own_steps = len(sources) == 1 and sources[0].clock.thread == here
    if own_steps and all(row[4] == here for row in rows):
        return _add(sources[0], unsampled, rows)  # the usual case, in the user's step
    closed = set[int]() if ending else {source.clock.thread for source in sources} - {here}
    names: list[str | None] = [None if row[4] in closed else "" for row in rows]
    for source in sources:
        thread = source.clock.thread
        indices = [index for index, row in enumerate(rows) if row[4] == thread]
        if indices and thread not in closed:
            added = _add(source, unsampled, [rows[index] for index in indices])
            for index, name in zip(indices, added, strict=True):
                names[index] = name
    return names


def _add(source: StepSource, unsampled: StepSampling | None, rows: Sequence[Row]) -> Sequence[str]:
    """Adds spans of the thread that ends the steps; the phases they began in."""
    if unsampled is not None:
        unsampled.fold()
    measured = source.clock.phases
    spans = [(row[2].phase, row[0] / 1e9, row[1] / 1e9) for row in rows]
    if measured.nested or source.optimizing_since is not None or measured.some_ended:
        names: Sequence[str] = [
            measured.holding(began, ended) or phase_at(source, began) for _, began, ended in spans
        ]
    else:  # no phase but spans since the step began: all began in the same
        names = (phase_at(source, 0.0),) * len(spans)
    measured.add_spans(spans)
    return names


def phase_at(source: StepSource, began: float) -> str:
    """The name of the phase that something which began at `began` is in."""
    clock, optimizing_since = source.clock, source.optimizing_since
    name = clock.phases.name_at(began)
    if name == phases.REST and not clock.sampling:
        name = phases.UNMEASURED
    in_optimizer = optimizing_since is not None and optimizing_since <= began
    no_other = name in (phases.REST, phases.UNMEASURED)
    return phases.NAMES[phases.OPTIMIZER] if no_other and in_optimizer else name
