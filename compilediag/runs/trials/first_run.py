"""The run that `fix TARGET` begins with: a run as any other, and the first trial."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace

from compilediag.fixes.changes import plan_of
from compilediag.runs.supervised.options import RunOptions
from compilediag.runs.supervised.program import caches
from compilediag.runs.supervised.run import run
from compilediag.runs.supervised.supervised_run import Outcome
from compilediag.runs.trials.one import FOLDER, OUTPUT, VARIABLE, Trial, trial_of
from compilediag.runs.trials.state import SEED
from compilediag_harness.wire import TrialPlan


def first_run(
    words: Sequence[str],
    options: RunOptions,
    environ: Mapping[str, str],
    plan: TrialPlan | None = None,
    below: str = FOLDER,
    *,
    keep_caches: bool = False,
) -> tuple[Outcome, Trial]:
    """Runs the program as it is, and leaves a receipt.

    Args:
        words: TARGET and everything after it.
        options: how to run it.
        environ: its environment.
        plan: what is recorded of it; its answers by default.
        below: name of the folder of what it printed, in that of the run.
        keep_caches: the caches of the environment, not empty ones.

    Raises:
        UsageError: it was not started.
    """
    with (
        tempfile.TemporaryDirectory(prefix="compilediag-fix-") as folder,
        caches(keep=keep_caches) as new,
    ):
        path, output = os.path.join(folder, "plan.json"), os.path.join(folder, OUTPUT)
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(dataclasses.asdict(plan or plan_of((), seed=SEED)), stream)
        options = replace(options, live=None, quiet=True, output_file=output)
        outcome = run(words, options, {**environ, **new, VARIABLE: path})
        trials = os.path.join(outcome.run_dir, below)
        os.makedirs(trials, exist_ok=True)
        kept = shutil.move(output, os.path.join(trials, f"00-as-it-is.{OUTPUT}"))
        return outcome, trial_of("the program as it is", outcome, kept)


def campaign_folder(run_dir: str) -> str:
    """A new folder below that of a run; campaigns before stay as they are."""
    number, path = 1, os.path.join(run_dir, FOLDER)
    while os.path.isdir(path) and any(name.startswith("01-") for name in os.listdir(path)):
        number += 1
        path = os.path.join(run_dir, f"{FOLDER}-{number}")
    return path
