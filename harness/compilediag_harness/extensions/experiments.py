"""Logs the run's metrics to the experiment that the program has open: W&B, MLflow, TensorBoard.

The parent writes the metrics to a file; once a period a thread of ours reads it and logs them to
whatever is open. Nothing is imported that the program has not imported, and no run is begun: where
none is open, nothing is logged. What goes wrong is counted in a file of our own.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from compilediag_harness.base import atomic_write
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.redaction import in_process
from compilediag_harness.torch_internals.torch_names import call_beside

METRICS_FILE = "telemetry.json"
MAX_BYTES = 65_536
POLLS = 3
"""How often a period the file is read."""

WRITER = "torch.utils.tensorboard.writer"

Metrics = dict[str, float]
Log = Callable[[Metrics, int | None], bool]
"""Logs metrics at a step; False where no experiment is open."""


class Experiments:
    """The experiments that one process has open, and the counts of what was logged to them."""

    def __init__(self, run_dir: str, period_s: float) -> None:
        self._run_dir = run_dir
        self._period_s = period_s
        self._logged_at: float | None = None
        self._newest = 0.0
        self._logs: dict[str, Log] = {}
        self._counts: dict[str, dict[str, Any]] = {}
        self._imports = PostImport()
        self._writers: list[weakref.ref[Any]] = []
        """In the order in which they were made."""
        self._thread: threading.Thread | None = None

    def arm(self) -> None:
        """Wait for the program to import one of them."""
        self._imports.run_after_import("wandb", lambda module: self._begin("wandb", _log_wandb))
        self._imports.run_after_import("mlflow", lambda module: self._begin("mlflow", _log_mlflow))
        self._imports.run_after_import(WRITER, self._handle_writer_import)

    def _handle_writer_import(self, module: Any) -> None:
        call_beside(module.SummaryWriter, "__init__", after=self._add_writer)
        self._begin("tensorboard", self._log_tensorboard)

    def _add_writer(self, _made: None, writer: Any, *_args: Any, **_kwargs: Any) -> None:
        self._writers.append(weakref.ref(writer))

    def _begin(self, name: str, log: Log) -> None:
        self._logs[name] = log
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="compilediag-experiments", daemon=True)
            self._thread = thread
            thread.start()

    def _run(self) -> None:
        over = threading.Event()  # never set: the thread ends with the process
        while not over.wait(self._period_s / POLLS):
            try:
                self.poll(time.monotonic())
            except Exception as error:  # costs this logging, and counts as one that failed
                for name in list(self._logs):
                    self._record_failure(name, error)
                self._write_counts()

    def poll(self, now: float) -> None:
        """Log what is new, unless the last logging is younger than the period."""
        if self._logged_at is not None and now - self._logged_at < self._period_s:
            return
        try:
            with open(os.path.join(self._run_dir, METRICS_FILE), "rb") as file:
                record = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError):
            return
        if record["at_unix"] <= self._newest:
            return
        self._newest = record["at_unix"]
        for name, log in list(self._logs.items()):
            try:
                self._get_counts(name)["told"] += log(record["figures"], record["step"])
            except Exception as error:
                self._record_failure(name, error)
        self._logged_at = now
        self._write_counts()

    def _get_counts(self, name: str) -> dict[str, Any]:
        return self._counts.setdefault(name, {"told": 0, "failed": 0, "problem": None})

    def _record_failure(self, name: str, error: Exception) -> None:
        counts = self._get_counts(name)
        counts["failed"] += 1
        counts["problem"] = in_process.redact_text(f"{type(error).__name__}: {error}")[:300]

    def _write_counts(self) -> None:
        path = os.path.join(self._run_dir, f"experiments-{os.getpid()}.json")
        with contextlib.suppress(OSError):  # a full disk: the next ones have all of them
            atomic_write.write(path, (json.dumps(self._counts).encode(),), flushed=False)

    def _log_tensorboard(self, metrics: Metrics, step: int | None) -> bool:
        """Log to the first open writer. Its own method would open it again after a `close`."""
        summary = sys.modules["torch.utils.tensorboard.summary"]
        for known in list(self._writers):
            file_writer = getattr(known(), "file_writer", None)
            if file_writer is not None:
                for name, value in metrics.items():
                    file_writer.add_summary(summary.scalar(name, value), step)
                return True
        return False


def _log_wandb(metrics: Metrics, step: int | None) -> bool:
    """Log into the row that the program's next `log` completes: its steps stay its own."""
    run = getattr(sys.modules["wandb"], "run", None)
    if run is None:
        return False
    run.log(metrics, commit=False)
    return True


def _log_mlflow(metrics: Metrics, step: int | None) -> bool:
    mlflow: Any = sys.modules["mlflow"]
    run = _find_mlflow_run()
    if run is None:
        return False
    now, made = int(time.time() * 1000), mlflow.entities.Metric
    batch = [made(name.replace(":", "."), value, now, step or 0) for name, value in metrics.items()]
    mlflow.MlflowClient().log_batch(run.info.run_id, metrics=batch)
    return True


def _find_mlflow_run() -> Any:
    """Find the run that is open; None where there is none, or MLflow has its runs elsewhere.

    `mlflow.active_run` has the runs of its own thread alone, and nothing may run in the step's
    thread. Before 2.14 the stack was a plain list.
    """
    stack: Any = getattr(sys.modules.get("mlflow.tracking.fluent"), "_active_run_stack", None)
    if hasattr(stack, "get_all_thread_values"):
        every: dict[int | None, list[Any]] = stack.get_all_thread_values()
        main = every.pop(threading.main_thread().ident, [])
        stack = main or next((thread_runs for thread_runs in every.values() if thread_runs), None)
    return stack[-1] if isinstance(stack, list) and stack else None  # pyright: ignore[reportUnknownVariableType]


def install(run_dir: str, period_s: float) -> None:
    """Begin to log every `period_s` seconds."""
    Experiments(run_dir, period_s).arm()
