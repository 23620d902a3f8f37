"""One trial: a supervised run with a plan for the inside, its output in a file, and fresh caches.
The run that `fix TARGET` begins with is one too, and leaves a receipt as any other."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compilediag.certify.points import ExecutedState
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.live_tail import FollowedRun
from compilediag.runs.supervised.run import CacheUse, Program, provide_caches, run
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.work_progress import WorkProgress
from compilediag.views.format import format_seconds
from compilediag_harness.wire import TrialPlan, clip

FOLDER = "fix"
"""Below the directory of the run: no command takes a trial for a run of its own."""

SEED = 20_261_123
"""Of every generator, in every run of a campaign."""

VARIABLE = "COMPILEDIAG_TRIAL"
OUTPUT = "output.txt"

MAX_REASON = 240
"""Of a failed trial; torch puts whole stacks into its messages, and the output has them too."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the program, and what it showed."""

    name: str
    observed: ExecutedState | None
    """None where it left no receipt."""
    problem: str | None
    output: str
    """File with what it printed."""
    wall_s: float
    interrupted: bool = False
    """Ctrl-C, or a signal to us: no further run is wanted."""
    exit_code: int = 0
    timed_out: bool = False
    """The time limit ended it."""


@dataclass(slots=True)
class Trials:
    """Runs of one program, one after the other."""

    program: Program
    announce: Callable[[str], None]
    budget_s: float | None = None
    """Of all of them together."""
    quiet: bool = False
    """No progress is shown."""
    caches: CacheUse = "linked"
    started: float = field(default_factory=time.monotonic)
    """When the first run began."""
    runs: int = 0
    """Those that were made, but for a first one that leaves a receipt."""
    interrupted: bool = False
    in_calls: bool = False
    """That was when the program was over, in its calls with other inputs."""
    spent: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """What each of the runs was, and its seconds."""

    def run(self, name: str, what: str, plan: TrialPlan, limit_s: float | None) -> Trial:
        """Make the next run; `name` is that of its files, and `what` it is, for the user."""
        self.runs += 1
        text = f"run {self.runs}: {what}"
        self.announce(text)
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
        folder = os.path.join(self.program.folder, f"{self.runs:02}-{slug}")
        followed, began = FollowedRun(folder), time.monotonic()
        try:
            with WorkProgress(stage=text, silent=self.quiet, describe=followed.describe):
                # What the backend `eager` compiles is in no cache.
                unused = plan.backend == "eager" and self.caches == "linked"
                caches = "empty" if unused else self.caches
                trial = run_trial(self.program, folder, name, plan, limit_s, caches=caches)
        finally:
            self.spent.append((f"run {self.runs} ({what})", time.monotonic() - began))
        self.interrupted = self.interrupted or trial.interrupted
        varies = plan.recording is not None and plan.recording.vary_s > 0
        self.in_calls = trial.interrupted and varies and _was_in_calls(trial.observed)
        return trial

    def describe_end(self) -> str:
        """Describe where an end from outside came, with the seconds of each run."""
        if not self.spent:
            return "interrupted before the first run"
        *before, last = [f"{what}, {format_seconds(wall_s)}" for what, wall_s in self.spent]
        where = "in" if self.interrupted else "after"
        where += " the calls with other inputs of" if self.in_calls else ""
        earlier = f"; before it {', '.join(before)}" if before else ""
        return f"interrupted {where} {last}{earlier}"


def _was_in_calls(observed: ExecutedState | None) -> bool:
    """True if the program was over, and its calls with other inputs were not."""
    if observed is None:
        return False
    seen = observed.timeline
    made = [end for end in seen.varying_ends if not (end.interrupted or end.timed_out)]
    is_over = any(state.process == seen.lead for state in seen.random_states)
    return is_over and not any(end.process == seen.lead for end in made)


def run_trial(
    program: Program,
    folder: str,
    name: str,
    plan: TrialPlan,
    timeout_s: float | None,
    *,
    caches: CacheUse = "empty",
) -> Trial:
    """Run the program once; its journals go to `folder`.

    Raises:
        UsageError: it cannot be started, or its directory cannot be made.
    """
    os.makedirs(program.folder, exist_ok=True)
    output = f"{folder}.{OUTPUT}"
    outcome = program.run(
        folder,
        {**program.variables, VARIABLE: write_plan(plan, f"{folder}.plan.json")},
        caches=caches,
        timeout_s=timeout_s,
        live=False,
        quiet=True,
        telemetry=None,
        output_file=output,
    )
    return make_trial(name, outcome, output)


def write_plan(plan: TrialPlan, path: str) -> str:
    """Write the plan of a trial to a file, for `VARIABLE`, and return its path."""
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(dataclasses.asdict(plan), stream, indent=1)
    return path


class Stop(Exception):
    """No more runs: the message says why."""


def describe_failure(trial: Trial) -> str:
    """Describe why the program as it is does not run, and where its output is."""
    reads = " (its input is empty here)" if "EOFError" in (trial.problem or "") else ""
    return f"{trial.problem}{reads}; its output: {os.path.relpath(trial.output)}"


def describe_problem(receipt: Receipt, code: int) -> str | None:
    """Describe why a run did not end well, with its exit code; None where it did."""
    if receipt.status == "complete" and not code:
        return None
    reason = (receipt.failure.reason or "").strip() if receipt.failure is not None else ""
    problem = clip(reason.splitlines()[0], MAX_REASON) if reason else f"exit code {code}"
    return problem if receipt.status == "failed" else f"{problem} ({receipt.status})"


def make_trial(name: str, outcome: Outcome, output: str) -> Trial:
    """Make a trial of the outcome of a run; `output` is the path of what it printed."""
    receipt, timeline, code = outcome.receipt, outcome.timeline, outcome.exit_code
    if receipt is None or timeline is None:
        why = outcome.notes[0] if outcome.notes else "it left no receipt"
        return Trial(name, None, why, output, 0.0, outcome.stopped, code)
    problem = describe_problem(receipt, code)
    observed = ExecutedState(receipt, timeline, problem)
    wall_s = (receipt.goodput.wall_s if receipt.goodput is not None else None) or 0.0
    stopped, timed_out = outcome.stopped, outcome.timed_out
    return Trial(name, observed, problem, output, wall_s, stopped, code, timed_out)


def run_with_plan(
    words: Sequence[str], options: RunOptions, environ: Mapping[str, str], plan: TrialPlan
) -> Outcome:
    """Run the program with a plan, as a run of its own that leaves a receipt.

    Raises:
        UsageError: it was not started.
    """
    with tempfile.TemporaryDirectory(prefix="compilediag-plan-") as folder:
        path = write_plan(plan, os.path.join(folder, "plan.json"))
        return run(words, options, {**environ, VARIABLE: path})


def run_first_trial(
    make_run: Callable[[RunOptions, Mapping[str, str]], Outcome],
    options: RunOptions,
    below: str,
    *,
    keep_caches: bool = False,
) -> tuple[Outcome, Trial]:
    """Run the program as it is, its output in a file, and leave a receipt.

    Args:
        make_run: What runs it, with options and with variables of its environment.
        options: Of the run.
        below: The folder of what it printed, in that of the run.
        keep_caches: It has the caches of the environment, not empty ones.

    Raises:
        UsageError: it was not started.
    """
    with (
        tempfile.TemporaryDirectory(prefix="compilediag-output-") as folder,
        provide_caches("kept" if keep_caches else "empty") as new,
    ):
        output = os.path.join(folder, OUTPUT)
        outcome = make_run(replace(options, live=False, quiet=True, output_file=output), new)
        trials = os.path.join(outcome.run_dir, below)
        os.makedirs(trials, exist_ok=True)
        output_path = shutil.move(output, os.path.join(trials, f"00-as-it-is.{OUTPUT}"))
        return outcome, make_trial("the program as it is", outcome, output_path)


def choose_campaign_folder(run_dir: str) -> str:
    """Choose a new folder below that of a run; campaigns before stay as they are."""
    number, path = 1, os.path.join(run_dir, FOLDER)
    while os.path.isdir(path) and any(name.startswith("01-") for name in os.listdir(path)):
        number += 1
        path = os.path.join(run_dir, f"{FOLDER}-{number}")
    return path
