"""One run of steps that a program measures itself, and its summary at any time."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import sys
import time
from array import array
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from compilediag_harness.base import atomic_write
from compilediag_harness.base.session import Session, SessionSink, SessionSinks, fork_handlers
from compilediag_harness.collectors import memory
from compilediag_harness.wire import RunTracked, TrackedMetric, TrackedRunsLeftOut

CHUNK = 4096
"""Numbers that wait until they are added up at once: nothing is computed when one is added."""

MAX_SAMPLE = 16_384
"""Numbers stored for the median, 128 KiB. With more it is that of a fair sample of so many, whose
rank is within 1.2 percent of the middle in 997 of 1,000 series."""


class MetricSeries:
    """Numbers in the order in which they came."""

    __slots__ = (
        *("_count", "_last", "_max", "_min", "_next", "_not_finite", "_random", "_sample"),
        *("_total", "_waiting", "_weight"),
    )

    def __init__(self) -> None:
        self._waiting = array("d")
        self._sample = array("d")
        self._count = 0
        self._not_finite = 0
        self._total = 0.0
        self._min = math.inf
        self._max = -math.inf
        self._last: float | None = None
        self._random: Random | None = None
        self._weight = 1.0
        self._next = 0
        """Index in the series of the next number that goes into a full sample."""

    def add(self, value: float) -> None:
        waiting = self._waiting
        waiting.append(value)
        if len(waiting) >= CHUNK:
            self._add_up()

    def summarize(self, name: str, *, median: bool = True) -> TrackedMetric:
        """Summarize the series so far; sorting for the median is most of the cost."""
        self._add_up()
        if self._count == 0:
            return TrackedMetric(name, 0, not_finite=self._not_finite)
        mean = self._total / self._count
        middle = statistics.median(self._sample) if median else None
        if middle is not None and not math.isfinite(middle):  # the sum of two is beyond floats
            middle = 2.0 * statistics.median([value / 2.0 for value in self._sample])
        return TrackedMetric(
            name,
            self._count,
            # The mean is null where the sum is beyond the largest float.
            mean=min(max(mean, self._min), self._max) if math.isfinite(mean) else None,
            median=middle,
            min=self._min,
            max=self._max,
            last=self._last,
            median_of=len(self._sample),
            not_finite=self._not_finite,
        )

    def _add_up(self) -> None:
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = array("d")
        finite = waiting
        if not math.isfinite(sum(waiting)):
            finite = array("d", filter(math.isfinite, waiting))
            self._not_finite += len(waiting) - len(finite)
        if not finite:
            return
        try:
            self._total = math.fsum((self._total, *finite))
        except OverflowError:
            self._total = math.inf
        low, high = min(finite), max(finite)
        self._min, self._max = min(self._min, low), max(self._max, high)
        self._last = finite[-1]
        self._add_to_sample(finite)
        self._count += len(finite)

    def _add_to_sample(self, values: array[float]) -> None:
        """Sample numbers: each has the same chance to stay. The index of the next one is drawn, not
        for each number whether it stays: Kim-Hung Li's algorithm L (1994)."""
        sample = self._sample
        room = MAX_SAMPLE - len(sample)
        if room > 0:
            sample.extend(values[:room])
            if len(sample) < MAX_SAMPLE:
                return
        if self._random is None:
            self._random = Random(0)  # noqa: S311 - a sample, not a secret
            self._next = MAX_SAMPLE - 1
            self._draw_next(self._random)
        first, end = self._count, self._count + len(values)
        while self._next < end:
            sample[self._random.randrange(MAX_SAMPLE)] = values[self._next - first]
            self._draw_next(self._random)

    def _draw_next(self, random: Random) -> None:
        # 1 - random() is never 0, which has no logarithm.
        self._weight *= math.exp(math.log(1.0 - random.random()) / MAX_SAMPLE)
        skipped = math.log(1.0 - random.random()) / math.log1p(-self._weight)
        self._next += math.floor(skipped) + 1


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
        self._peak_at_start_bytes, _ = memory.read_peak()
        self._steps = 0
        self._first_step: int | None = None
        self._last_step: int | None = None
        self._metrics: dict[str, MetricSeries] = {}
        self._totals: dict[str, float] = {}
        self._of_warmup: dict[str, float] = {}
        self._left_out: set[str] = set()
        self._step_s = MetricSeries()

    def record_step(
        self, step: int, at: float, metrics: dict[str, float], counts: dict[str, float]
    ) -> None:
        """Record the numbers of one step, checked before."""
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
                series = self._metrics[name] = MetricSeries()
            if series is not None:
                series.add(value)
        for name, count in counts.items():
            if name in self._totals or self._has_room(name, self._totals):
                self._totals[name] = min(self._totals.get(name, 0.0) + count, LARGEST)
        if self._steps == self.warmup:
            self._warm, self._of_warmup = at, dict(self._totals)

    def _has_room(self, name: str, named: Mapping[str, object]) -> bool:
        if len(named) < MAX_NAMES:
            return True
        if len(self._left_out) < MAX_NAMES:
            self._left_out.add(name)
        return False

    def take_snapshot(self, at: float, state: str, *, median: bool) -> RunTracked:
        """Take the run as it is at `at`, on the clock of `record_step`."""
        peak, source = memory.read_peak()
        series = {STEP_S: self._step_s, **dict(self._metrics)}
        steps_s = self._last - self._warm if self._steps >= self.warmup else 0.0
        totals, before, rates = dict(self._totals), self._of_warmup, dict[str, float]()
        if steps_s > 0.0:
            rates = {
                name: min((total - before.get(name, 0.0)) / steps_s, LARGEST)
                for name, total in totals.items()
            }
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
            totals=totals,
            per_s=rates,
            metrics=tuple(metric.summarize(name, median=median) for name, metric in series.items()),
            left_out=len(self._left_out),
        )


PERIOD_S = 10.0
"""A run in progress is reported this often, for programs that are killed: not oftener, because each
report has all of its metrics."""

MAX_RUNS = 1024
"""Runs that a session receives, and that a tracker holds for its file."""

_running: dict[int, TrackedRun] = {}
"""Runs in progress, by number."""

fork_handlers.append(_running.clear)  # a fork does not go on with the runs of its parent


class _Reported(SessionSink):
    """The runs that one session has received. Nothing that fails here reaches the program."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._runs: set[int] = set()
        self._left_out: set[int] = set()

    def report_run(self, run: RunTracked, at: float) -> None:
        """Report one run as it was at a reading of `time.monotonic()`."""
        if run.number not in self._runs and len(self._runs) >= MAX_RUNS:
            self._left_out.add(run.number)
            return
        self._runs.add(run.number)
        self.session.emit(replace(run, t=self.session.convert_time(at)))

    def report_running(self, run: TrackedRun, *, median: bool) -> None:
        """Report a run in progress, as it is now."""
        started = time.monotonic()
        with self.session.catch_faults("tracker"):
            self.report_run(run.take_snapshot(started, "running", median=median), started)
        self.session.collector_s += time.monotonic() - started

    def finish(self) -> None:
        """Report the runs that are still in progress."""
        for run in tuple(_running.values()):
            self.report_running(run, median=True)
        if self._left_out:
            self.session.emit(TrackedRunsLeftOut(self.session.now(), len(self._left_out)))


sinks = SessionSinks(_Reported)
"""Without any, runs are still summed up for the program itself."""


def track_run(run: TrackedRun) -> None:
    """Track a run that has begun."""
    _running[run.number] = run
    while len(_running) > MAX_RUNS:  # runs that were never ended
        _running.pop(next(iter(_running)))


def report_progress(run: TrackedRun, at: float) -> None:
    """Report the run if it is time: a step was recorded at a reading of `time.monotonic()`."""
    if sinks.all and at - run.reported_at >= PERIOD_S:
        run.reported_at = at
        for sink in sinks.all:
            sink.report_running(run, median=False)


def end_run(run: RunTracked, at: float) -> None:
    """End a run that ended at a reading of `time.monotonic()`: reports it to every session."""
    _running.pop(run.number, None)
    for sink in sinks.all:
        with sink.session.catch_faults("tracker"):
            sink.report_run(run, at)


MAX_BYTES = 64 << 20
"""A larger file is not read."""


def write_json(path: str | os.PathLike[str], document: Any) -> bytes:
    """Replace a file in one move, making missing folders; returns the bytes that it now holds.

    Raises:
        ValueError: a number in `document` is not finite.
        OSError: the folder or the disk does not take it; the file is left as it was.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    content = text.encode("utf-8", "replace") + b"\n"
    os.makedirs(os.path.dirname(os.path.realpath(path)), exist_ok=True)
    atomic_write.write(path, (content,))
    return content


def read_json(path: str | os.PathLike[str], schema: str, major: int) -> dict[str, Any]:
    """Read the object in a file of ours.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is too large, half written, of another kind, or of a newer major version.
    """
    named = os.fspath(path)
    with open(path, "rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{named} is larger than {MAX_BYTES >> 20} MiB: this is no {schema}")
    try:
        document = json.loads(content.decode("utf-8-sig", "replace"), parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{named} is not readable as JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != schema:  # pyright: ignore[reportUnknownMemberType]
        raise ValueError(f"{named} is no {schema}")
    version = str(document.get("schema_version"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    written = version.partition(".")[0]
    if not written.isdecimal() or len(written) > 6:
        raise ValueError(f"{named} has no schema version that can be read")
    if int(written) > major:
        raise ValueError(
            f"{named} has schema version {version} and this compilediag reads {major}.x: "
            "upgrade compilediag to read it"
        )
    return document  # pyright: ignore[reportUnknownVariableType]
