"""Tells the experiment that the program has open: W&B, MLflow, TensorBoard; asked for by `run`.

The figures are made by the parent and lie in a file; a thread of ours reads them and hands them to
whatever is active, once a period. Nothing is imported that the program has not imported, and no run
is begun: where none is open, nothing is told. What goes wrong is counted in a file of our own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from compilediag_harness.base.post_import import PostImport

VARIABLE = "COMPILEDIAG_EXPERIMENTS"
"""Seconds from one telling to the next; absent where nobody is to be told."""

FIGURES_FILE = "telemetry.json"
FIGURES_LIMIT_BYTES = 65_536
LOOKS = 3
"""How often a period the file is looked at."""

WRITER = "torch.utils.tensorboard.writer"

Figures = dict[str, float]


class Experiments:
    """What one process has open, and what it was told."""

    def __init__(self, run_dir: str, period_s: float) -> None:
        self._run_dir = run_dir
        self._period_s = period_s
        self._told_at: float | None = None
        self._newest = 0.0
        self._tellers: dict[str, Callable[[Figures, int | None], bool]] = {}
        self._counts: dict[str, dict[str, Any]] = {}
        self._imports = PostImport()
        self._writers: list[weakref.ref[Any]] = []
        """In the order in which they were made."""
        self._thread: threading.Thread | None = None

    def arm(self) -> None:
        """Waits for the program to import what can be told."""
        self._imports.want("wandb", lambda module: self._begin("wandb", _tell_wandb))
        self._imports.want("mlflow", lambda module: self._begin("mlflow", _tell_mlflow))
        self._imports.want(WRITER, self._writer_imported)

    def _writer_imported(self, module: Any) -> None:
        _remember_instances(module.SummaryWriter, self._writers)
        self._begin("tensorboard", self._tell_tensorboard)

    def _begin(self, name: str, tell: Callable[[Figures, int | None], bool]) -> None:
        self._tellers[name] = tell
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="compilediag-experiments", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        over = threading.Event()  # never set: the thread ends with the process
        while not over.wait(self._period_s / LOOKS):
            try:
                self.look(time.monotonic())
            except Exception as error:  # costs this telling, and is told as one that failed
                for name in list(self._tellers):
                    self._failed(name, error)
                self._write_counts()

    def look(self, now: float) -> None:
        """Tells what is new, unless the last telling is younger than the period."""
        if self._told_at is not None and now - self._told_at < self._period_s:
            return
        found = self._read()
        if found is None:
            return
        figures, step = found
        for name, tell in list(self._tellers.items()):
            self._tell(name, tell, figures, step)
        self._told_at = now
        self._write_counts()

    def _tell(
        self,
        name: str,
        tell: Callable[[Figures, int | None], bool],
        figures: Figures,
        step: int | None,
    ) -> None:
        try:
            self._of(name)["told"] += tell(figures, step)
        except Exception as error:
            self._failed(name, error)

    def _of(self, name: str) -> dict[str, Any]:
        return self._counts.setdefault(name, {"told": 0, "failed": 0, "problem": None})

    def _failed(self, name: str, error: Exception) -> None:
        counts = self._of(name)
        counts["failed"] += 1
        counts["problem"] = f"{type(error).__name__}: {error}"[:300]

    def _read(self) -> tuple[Figures, int | None] | None:
        """The figures that are newer than the last; None where there are none."""
        try:
            with open(os.path.join(self._run_dir, FIGURES_FILE), "rb") as file:
                told = json.loads(file.read(FIGURES_LIMIT_BYTES))
        except (OSError, ValueError):
            return None
        if told["at_unix"] <= self._newest:
            return None
        self._newest = told["at_unix"]
        return told["figures"], told["step"]

    def _write_counts(self) -> None:
        path = os.path.join(self._run_dir, f"experiments-{os.getpid()}.json")
        with contextlib.suppress(OSError):  # a full disk: the next ones have all of them
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump(self._counts, file)
            os.replace(f"{path}.new", path)

    def _tell_tensorboard(self, figures: Figures, step: int | None) -> bool:
        """To the first writer that is open. Its own method would open it again after a `close`."""
        summary = sys.modules["torch.utils.tensorboard.summary"]
        for known in list(self._writers):
            file_writer = getattr(known(), "file_writer", None)
            if file_writer is not None:
                for name, value in figures.items():
                    file_writer.add_summary(summary.scalar(name, value), step)
                return True
        return False


def _remember_instances(cls: Any, known: list[weakref.ref[Any]]) -> None:
    """Adds each instance that is made from now on."""
    made = cls.__init__

    @functools.wraps(made)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        known.append(weakref.ref(self))

    cls.__init__ = remember


def _tell_wandb(figures: Figures, step: int | None) -> bool:
    """Into the row that the program's next `log` completes: its steps stay its own."""
    run = getattr(sys.modules["wandb"], "run", None)
    if run is None:
        return False
    run.log(figures, commit=False)
    return True


def _tell_mlflow(figures: Figures, step: int | None) -> bool:
    mlflow: Any = sys.modules["mlflow"]
    run = _mlflow_run()
    if run is None:
        return False
    now, made = int(time.time() * 1000), mlflow.entities.Metric
    told = [made(name.replace(":", "."), value, now, step or 0) for name, value in figures.items()]
    mlflow.MlflowClient().log_batch(run.info.run_id, metrics=told)
    return True


def _mlflow_run() -> Any:
    """The run that is open; None where there is none, or MLflow keeps its runs elsewhere.

    `mlflow.active_run` knows the runs of its own thread alone, and the step's thread is not to be
    asked. Before 2.14 the stack was a plain list.
    """
    kept: Any = getattr(sys.modules.get("mlflow.tracking.fluent"), "_active_run_stack", None)
    if hasattr(kept, "get_all_thread_values"):
        every: dict[int | None, list[Any]] = kept.get_all_thread_values()
        main = every.pop(threading.main_thread().ident, [])
        kept = main or next((found for found in every.values() if found), None)
    return kept[-1] if isinstance(kept, list) and kept else None  # pyright: ignore[reportUnknownVariableType]


def install(run_dir: str) -> None:
    """Begins, if this run was asked to."""
    period = os.environ.get(VARIABLE)
    if period:
        Experiments(run_dir, float(period)).arm()
