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
from compilediag.runs.supervised.options import Options, Outcome
from compilediag.runs.supervised.probe_variant import caches
from compilediag.runs.supervised.run import run
from compilediag.runs.trials.one import FOLDER, OUTPUT, VARIABLE, Trial, trial_of
from compilediag.runs.trials.state import SEED


def first_run(
    words: Sequence[str], options: Options, environ: Mapping[str, str]
) -> tuple[Outcome, Trial]:
    """Runs the program as it is, records its answers, and leaves a receipt.

    Raises:
        UsageError: it was not started.
    """
    with (
        tempfile.TemporaryDirectory(prefix="compilediag-fix-") as folder,
        caches(keep=False) as new,
    ):
        plan, output = os.path.join(folder, "plan.json"), os.path.join(folder, OUTPUT)
        with open(plan, "w", encoding="utf-8") as stream:
            json.dump(dataclasses.asdict(plan_of((), seed=SEED)), stream)
        options = replace(options, live=None, quiet=True, output_file=output)
        outcome = run(words, options, {**environ, **new, VARIABLE: plan})
        trials = os.path.join(outcome.run_dir, FOLDER)
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
