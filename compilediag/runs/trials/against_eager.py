"""A program compiled and eager, in turns, each run in a fresh process with the same collectors.

Eager is the stance "force_eager": calls of compiled callables are still seen, so that steps end at
the same moments in both arms, and each callable is timed by the same two readings of the clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from compilediag.compare.against_eager.arms import Arm, arm_of
from compilediag.compare.against_eager.conclude import Pair, problem_of
from compilediag.receipt.schema.against_eager import ArmRecord
from compilediag.runs.tools.ab import in_turns
from compilediag.runs.trials.campaign import why_not
from compilediag.runs.trials.one import Program, Trial, run_trial
from compilediag.runs.trials.state import SEED
from compilediag.runs.work_progress import WorkProgress
from compilediag_harness.wire import TrialPlan

FOLDER = "against-eager"
"""Below the directory of the run."""

PAIRS = 3
"""With fewer, two processes that differ by chance may pass for two arms that do."""

EAGER_TIMES = 5.0
EAGER_EXTRA_S = 60.0
"""An eager run may take so many times what the first compiled one took, and so many seconds beside:
by then one that is slower is seen to be, and one that hangs has to end."""

COMPILED = TrialPlan(seed=SEED, outputs=False, call_seconds=True)
EAGER = TrialPlan(seed=SEED, outputs=False, call_seconds=True, stance="force_eager")

_PLANS: dict[Literal["compiled", "eager"], TrialPlan] = {"compiled": COMPILED, "eager": EAGER}


class _Stop(Exception):
    """No more runs: the message says why."""


@dataclass(slots=True)
class Pairs:
    """Pairs of runs in progress."""

    program: Program
    announce: Callable[[str], None]
    rounds: int = PAIRS
    budget_s: float | None = None
    keep_caches: bool = False
    quiet: bool = False
    """No progress is shown."""
    started: float = field(default_factory=time.monotonic)
    """When the first run began."""
    made: list[Pair] = field(default_factory=list[Pair])
    runs: list[ArmRecord] = field(default_factory=list[ArmRecord])
    trials: list[tuple[Trial, Trial]] = field(default_factory=list[tuple[Trial, Trial]])
    """Those of the pairs: compiled, eager."""
    stopped: str | None = None
    """Why no more runs were made; None where all were."""
    interrupted: bool = False
    first_s: float = 0.0
    """What the first compiled run took."""


def run_pairs(pairs: Pairs, first: Trial) -> None:
    """Makes the runs; whatever ends them loses none of those before.

    Args:
        pairs: what is run; what becomes of it is written into it.
        first: the program as it is, run with the plan `COMPILED`: the first of the first pair.
    """
    pairs.first_s = first.wall_s
    _note(pairs, "compiled", 0, first)
    try:
        for index in range(pairs.rounds):
            compiled = partial(_run, pairs, "compiled", index) if index else lambda: first
            trials = in_turns(index, compiled, partial(_run, pairs, "eager", index))
            pairs.trials.append(trials)
            pairs.made.append(Pair(*map(_arm, trials)))
            if problem := problem_of(pairs.made[-1]):
                raise _Stop(problem)
            if trials[1].timed_out:
                raise _Stop("the eager run was ended at its time limit: no more pairs were run")
    except _Stop as why:
        pairs.stopped = str(why)
    except KeyboardInterrupt:
        pairs.stopped, pairs.interrupted = "interrupted between two runs", True


def _run(pairs: Pairs, arm: Literal["compiled", "eager"], index: int) -> Trial:
    """One run.

    Raises:
        _Stop: there is no budget for it, it failed, or it was interrupted.
    """
    number = len(pairs.runs)
    what = f"run {number}: {arm}, pair {index + 1} of {pairs.rounds}"
    limit = _limit_s(pairs, arm)
    pairs.announce(what)
    with WorkProgress(stage=what, silent=pairs.quiet):
        trial = run_trial(
            pairs.program, number, arm, _PLANS[arm], {}, limit, keep_caches=pairs.keep_caches
        )
    _note(pairs, arm, index, trial)
    if trial.interrupted:
        pairs.interrupted = True
        raise _Stop(f"interrupted in run {number}")
    if trial.problem and not (trial.timed_out and arm == "eager" and trial.observed is not None):
        again = " again" if arm == "compiled" else ""
        raise _Stop(f"the {arm} run failed{again}: {why_not(trial)}")
    return trial


def _limit_s(pairs: Pairs, arm: str) -> float | None:
    """The seconds that a run may take.

    Raises:
        _Stop: the budget has no room for it.
    """
    limits = [pairs.program.options.timeout_s]
    if arm == "eager":
        limits.append(EAGER_TIMES * pairs.first_s + EAGER_EXTRA_S)
    if pairs.budget_s is not None:
        left_s = pairs.budget_s - (time.monotonic() - pairs.started)
        # A first eager run is cut short; others would only repeat what is known by then.
        if left_s <= 0 or (pairs.made and left_s < pairs.first_s):
            raise _Stop(f"the budget of {pairs.budget_s:g} s has no room for another run")
        limits.append(left_s)
    return min((limit for limit in limits if limit is not None), default=None)


def _arm(trial: Trial) -> Arm:
    if trial.observed is None:
        return Arm({}, whole=False)
    return arm_of(trial.observed.timeline, whole=not trial.timed_out)


def _note(pairs: Pairs, arm: Literal["compiled", "eager"], index: int, trial: Trial) -> None:
    seen = trial.observed.receipt.steps if trial.observed is not None else None
    steps = seen.count if seen is not None else 0
    wall_s = trial.wall_s if trial.observed is not None else None
    pairs.runs.append(
        ArmRecord(arm=arm, pair=index, wall_s=wall_s, steps=steps, problem=trial.problem)
    )


def folder_of(run_dir: str) -> str:
    """Where the runs after the first are, in the directory of the first."""
    return os.path.join(run_dir, FOLDER)
