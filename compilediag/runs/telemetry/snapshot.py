"""What is known of a run at a moment, as the values that monitoring is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """One moment of a run. None: not known, so not told. Counts are of all processes, seconds of
    the process that the receipt tells the steps of (`Timeline.lead`)."""

    at_unix: float
    started_unix: float
    wall_s: float = 0.0
    """Since the start, on a clock that does not step."""
    active: bool = True
    exit_code: int | None = None
    """The target's, once it has ended."""
    processes: int = 0
    frames: int = 0
    compiles: int = 0
    recompiles: int = 0
    graph_breaks: int = 0
    compile_first_s: float = 0.0
    compile_again_s: float = 0.0
    steps: int | None = None
    step_s: float | None = None
    """Mean of the steps that ended since the reading before."""
    goodput_s: float | None = None
    goodput: float | None = None
    """Share of the time that was observed; of the whole wall time once the run has ended."""
    badput_s: Mapping[str, float] = field(default_factory=dict[str, float])
    records_lost: int = 0
    """Of the journals. Above zero the counts are "at least", and steps and goodput are unknown."""
    tracked: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """What the program records itself (`tracker()`): (run, metric) to its last value."""
    tracked_per_s: Mapping[tuple[str, str], float] = field(
        default_factory=dict[tuple[str, str], float]
    )
    """(run, count) to how many a second."""
    losses: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """What telemetry itself lost so far: (destination, "pushes" or "spans") to how many."""
