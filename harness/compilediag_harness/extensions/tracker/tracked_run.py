"""One run of steps that a program measures itself, and its summary at any time."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from typing import Any

from compilediag_harness.extensions.tracker.running_stats import Series
from compilediag_harness.torch_internals import host_memory
from compilediag_harness.wire import RunTracked

STEP_S = "step_s"
"""The metric that every run has: seconds from one recorded step to the next."""

MAX_NAMES = 256
"""Names of metrics, and of counts; later ones are left out and counted."""

LARGEST = sys.float_info.max
"""Sums and rates beyond it stay there: JSON has no infinity."""

_numbers = itertools.count(1)


class TrackedRun:
    """One run of a tracker. It takes no lock: its tracker does."""

    def __init__(self, name: str, config: dict[str, Any], warmup: int, at: float) -> None:
        self.number = next(_numbers)
        self.name = name
        self.config = config
        self.warmup = warmup
        self.reported_at = at
        """When sessions received it last."""
        self._began = self._last = self._warm = at
        self._peak_at_start_bytes, _ = host_memory.peak()
        self._steps = 0
        self._first_step: int | None = None
        self._last_step: int | None = None
        self._metrics: dict[str, Series] = {}
        self._totals: dict[str, float] = {}
        self._of_warmup: dict[str, float] = {}
        self._left_out: set[str] = set()
        self._step_s = Series()

    def record(
        self, step: int, at: float, metrics: dict[str, float], counts: dict[str, float]
    ) -> None:
        """Takes the numbers of one step, checked before."""
        if self._steps >= self.warmup:
            self._step_s.add(at - self._last)
        self._last = at
        self._steps += 1
        if self._first_step is None:
            self._first_step = step
        self._last_step = step
        for name, value in metrics.items():
            series = self._metrics.get(name)
            if series is None and self._has_room(name, self._metrics):
                series = self._metrics[name] = Series()
            if series is not None:
                series.add(value)
        for name, count in counts.items():
            if name in self._totals or self._has_room(name, self._totals):
                self._totals[name] = min(self._totals.get(name, 0.0) + count, LARGEST)
        if self._steps == self.warmup:
            self._warm, self._of_warmup = at, dict(self._totals)

    def _has_room(self, name: str, kept: Mapping[str, object]) -> bool:
        if len(kept) < MAX_NAMES:
            return True
        if len(self._left_out) < MAX_NAMES:
            self._left_out.add(name)
        return False

    def snapshot(self, at: float, state: str, *, median: bool) -> RunTracked:
        """The run as it is at `at`, on the clock of `record`."""
        peak, source = host_memory.peak()
        series = {STEP_S: self._step_s, **dict(self._metrics)}
        steps_s = self._last - self._warm if self._steps >= self.warmup else 0.0
        return RunTracked(
            t=at,
            number=self.number,
            name=self.name,
            config=self.config,
            state=state,
            steps=self._steps,
            first_step=self._first_step,
            last_step=self._last_step,
            wall_s=at - self._began,
            steps_s=steps_s,
            warmup=self.warmup,
            peak_bytes=peak,
            peak_at_start_bytes=self._peak_at_start_bytes,
            peak_source=source,
            totals=dict(self._totals),
            per_s=self._rates(steps_s),
            metrics=tuple(item.summary(name, median=median) for name, item in series.items()),
            left_out=len(self._left_out),
        )

    def _rates(self, steps_s: float) -> dict[str, float]:
        if steps_s <= 0.0:
            return {}
        before = self._of_warmup
        return {
            name: min((total - before.get(name, 0.0)) / steps_s, LARGEST)
            for name, total in dict(self._totals).items()
        }
