"""How often the experiments of the target were updated, as its processes counted it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from compilediag.readers.storage import open_regular
from compilediag_harness.redaction.redactor import Redactor

EXPERIMENTS = ("wandb", "mlflow", "tensorboard")
LIMIT_BYTES = 65_536


class ExperimentCounts(msgspec.Struct):
    """Of one kind: W&B, MLflow or TensorBoard."""

    told: int = 0
    """Updates that succeeded."""
    failed: int = 0
    problem: str | None = None
    """Why the last failed update failed."""


def experiment_counts(run_dir: str) -> dict[str, ExperimentCounts]:
    """By kind, over all processes; one that was never open has no entry."""
    totals: dict[str, ExperimentCounts] = {}
    for counts in _files(run_dir):
        for name in EXPERIMENTS:
            one = counts.get(name)
            if one is not None and (one.told or one.failed):
                total = totals.setdefault(name, ExperimentCounts())
                total.told += one.told
                total.failed += one.failed
                if one.problem:
                    total.problem = Redactor().text(one.problem)[:300]
    return totals


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
    """One sentence where updates failed; None where all succeeded."""
    if not counts.failed:
        return None
    total = counts.told + counts.failed
    return (
        f"telemetry to {name}: {counts.failed} of {total} updates failed ({counts.problem}); "
        "the run is not affected"
    )
