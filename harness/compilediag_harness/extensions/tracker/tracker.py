"""Runs of steps that a program measures itself, such as evaluations: the numbers of each step,
summed up when the run ends.

With and without a session the same is computed: a step appends each of its numbers to a list. No
tensor is read, nothing is synchronised, no file is written but by `to_json`.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from compilediag_harness.base.session import fork_handlers
from compilediag_harness.extensions.tracker import tracked_run
from compilediag_harness.extensions.tracker.tracked_run import TrackedRun
from compilediag_harness.redaction import in_process
from compilediag_harness.torch_internals import dynamo_skip
from compilediag_harness.user_api.to_jsonable import (
    clip_name,
    parse_config,
    parse_count,
    parse_float,
)
from compilediag_harness.wire import RunTracked

SCHEMA, SCHEMA_VERSION = "compilediag.tracker", "1.0"
"""Of the file that `to_json` writes."""

_monotonic = time.monotonic
_trackers: weakref.WeakSet[Tracker] = weakref.WeakSet()


def _unlock_in_fork() -> None:
    for tracker in tuple(_trackers):
        tracker.unlock()


fork_handlers.append(_unlock_in_fork)


class Tracker:
    """Runs of one evaluation; make it with `tracker()`. Every method may be called from any
    thread; one run is in progress at a time."""

    def __init__(self, name: str, config: dict[str, Any], warmup: int) -> None:
        self.name = name
        self.config = config
        self.warmup = warmup
        self.runs: deque[RunTracked] = deque(maxlen=tracked_run.MAX_RUNS)
        """The runs that have ended, oldest first; at most `MAX_RUNS`, the newest."""
        self._run: TrackedRun | None = None
        self.unlock()
        _trackers.add(self)

    def unlock(self) -> None:
        """Make a new lock: in a fork, a thread that is not here may hold the old."""
        # Reentrant: a signal handler of the program may record too.
        self._lock = threading.RLock()

    def start_run(self, name: str | None = None, config: Any = None) -> Tracker:
        """Begin a run. `name` and `config` are of this run; without them those of the tracker.

        Raises:
            RuntimeError: a run is in progress.
            TypeError, ValueError: `config` cannot be written as JSON.
        """
        if dynamo_skip.is_compiling():
            return self
        own = self.config if config is None else {**self.config, **parse_config(config)}
        with self._lock:
            if self._run is not None:
                raise RuntimeError(f"{self!r}: a run is in progress; finish_run() ends it")
            named = self.name if name is None else clip_name(name)
            self._run = TrackedRun(named, own, self.warmup, _monotonic())
            tracked_run.track_run(self._run)
        return self

    def record_step(
        self, step: int, metrics: Mapping[str, float | None] | None = None, **counts: float
    ) -> None:
        """Record one step: `metrics` are summed up (mean, median, min, max), `counts` such as
        `tokens=4096` or `samples=32` are added up, and given by second. None is "not measured".

            tracker.record_step(step, {"loss": loss.item()}, tokens=batch.numel())

        Raises:
            RuntimeError: no run is in progress.
            TypeError: something is no number. A tensor is none: reading it may wait for its device.
            ValueError: a step or a count is negative.
        """
        # Checked first: compiled code is then not guarded on our state.
        if dynamo_skip.is_compiling():
            return
        at = _monotonic()
        if type(step) is not int or step < 0:
            step = parse_count(step, "step")
        values = {} if metrics is None else _check_metrics(metrics)
        counted = _check_counts(counts) if counts else counts
        with self._lock:
            run = self._get_running()
            run.record_step(step, at, values, counted)
            tracked_run.report_progress(run, at)

    def finish_run(self) -> RunTracked:
        """End the run and return its summary, computed here, once.

        Raises:
            RuntimeError: no run is in progress.
        """
        return self._end_run("finished")

    def _end_run(self, state: str) -> RunTracked:
        with self._lock:
            run = self._get_running()
            self._run = None
            at = _monotonic()
            ended = run.take_snapshot(at, state, median=True)
            self.runs.append(ended)
            tracked_run.end_run(ended, at)
        return ended

    def _get_running(self) -> TrackedRun:
        if self._run is None:
            raise RuntimeError(f"{self!r}: no run is in progress; start_run() begins one")
        return self._run

    def __enter__(self) -> Tracker:
        return self.start_run()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._run is not None:
            self._end_run("finished" if kind is None else "failed")

    def to_json(self, path: str | os.PathLike[str]) -> str:
        """Write the ended runs to a file of their own, whole or not at all, and return its path.
        Secrets in `config` are left out, as in the receipt.

        Raises:
            OSError: the file cannot be written; an older one is left as it was.
        """
        runs = [dataclasses.asdict(ended) for ended in tuple(self.runs)]
        for run in runs:
            del run["t"], run["number"]  # which only sessions need
            run["config"] = in_process.redact_value(run["config"])
            run["metrics"] = {metric.pop("name"): metric for metric in run["metrics"]}
        document = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "runs": runs}
        tracked_run.write_json(path, document)
        return os.fspath(path)

    def __repr__(self) -> str:
        return f"tracker({self.name!r})"


def _check_metrics(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Check the metrics: as floats, without those that were not measured."""
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        if type(value) is float and type(name) is str and len(name) <= 200:  # the usual case
            numbers[name] = value
            continue
        number = parse_float(value, f"metric {name!r}")
        if number is not None:
            numbers[clip_name(name)] = number
    return numbers


def _check_counts(counts: Mapping[str, Any]) -> dict[str, float]:
    checked: dict[str, float] = {}
    for name, value in counts.items():
        number = parse_float(value, name)
        if number is None:
            continue
        if not 0.0 <= number < float("inf"):
            raise ValueError(f"{name} must be 0 or more and finite, not {number}")
        checked[clip_name(name)] = number
    return checked


def tracker(config: Any = None, name: str = "eval", warmup: int = 0) -> Tracker:
    """Make a tracker for one evaluation: `config` (a mapping, a dataclass, a Namespace) says what
    must be equal for two of its runs to be comparable. The first `warmup` recorded steps of each
    run, in which things compile, are in no rate and no step time; their metrics count.

        tracker = cd.tracker(config={"task": "mmlu", "shots": 5, "dtype": "bf16"})
        tracker.start_run()
        for step, batch in enumerate(batches):
            score = evaluate(batch)
            tracker.record_step(step, {"accuracy": score}, samples=len(batch))
        print(tracker.finish_run())

    Raises:
        TypeError, ValueError: `config` holds what JSON does not know, or too much;
            `warmup` is no number of steps.
    """
    dynamo_skip.bind_if_imported()
    return Tracker(clip_name(name), parse_config(config), parse_count(warmup, "warmup"))
