"""What the experiments of the target were told, as its processes counted it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from compilediag.readers.journal import open_regular
from compilediag.receipt.redact import Redactor

EXPERIMENTS = ("wandb", "mlflow", "tensorboard")
LIMIT_BYTES = 65_536


class ExperimentCounts(msgspec.Struct):
    """Of one kind: W&B, MLflow or TensorBoard."""

    told: int = 0
    """How often it was told."""
    failed: int = 0
    problem: str | None = None
    """Why the last failed telling failed."""


def experiment_counts(run_dir: str) -> dict[str, ExperimentCounts]:
    """By kind, over all processes; one that was never open has no entry."""
    found: dict[str, ExperimentCounts] = {}
    for counts in _files(run_dir):
        for name in EXPERIMENTS:
            one = counts.get(name)
            if one is not None and (one.told or one.failed):
                every = found.setdefault(name, ExperimentCounts())
                every.told += one.told
                every.failed += one.failed
                if one.problem:  # of several processes those that fail are told
                    every.problem = Redactor().text(one.problem)[:300]
    return found


def _files(run_dir: str) -> Iterator[dict[str, ExperimentCounts]]:
    for name in sorted(os.listdir(run_dir)):
        if not (name.startswith("experiments-") and name.endswith(".json")):
            continue
        file = open_regular(os.path.join(run_dir, name))
        if file is None:
            continue
        with file:
            try:
                yield msgspec.json.decode(file.read(LIMIT_BYTES), type=dict[str, ExperimentCounts])
            except msgspec.MsgspecError:
                continue


def experiment_note(name: str, counts: ExperimentCounts) -> str | None:
    """One sentence where one was not told; None where all went well."""
    if not counts.failed:
        return None
    every = counts.told + counts.failed
    return (
        f"telemetry to {name}: {counts.failed} of {every} tellings failed ({counts.problem}); "
        "the run is not affected"
    )
