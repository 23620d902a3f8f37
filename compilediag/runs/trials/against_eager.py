"""A program compiled and eager, in turns, each run in a fresh process with the same collectors.

Eager is the stance "force_eager": calls of compiled callables are still seen, so that steps end at
the same moments in both arms, and each callable is timed by the same two readings of the clock.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from compilediag.compare.against_eager import Arm, ArmPair, arm_of, problem_of
from compilediag.receipt.schema.comparisons import ArmRecord
from compilediag.runs.tools.ab import in_turns
from compilediag.runs.trials.campaign import why_not
from compilediag.runs.trials.one import SEED, Trial, Trials
from compilediag.runs.trials.state import Stop
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
EAGER = replace(COMPILED, stance="force_eager")


@dataclass(slots=True)
class Pairs(Trials):
    """Pairs of runs in progress."""

    rounds: int = PAIRS
    made: list[ArmPair] = field(default_factory=list[ArmPair])
    records: list[ArmRecord] = field(default_factory=list[ArmRecord])
    trials: list[tuple[Trial, Trial]] = field(default_factory=list[tuple[Trial, Trial]])
    """Those of the pairs: compiled, eager."""
    stopped: str | None = None
    """Why no more runs were made; None where all were."""
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
            pairs.made.append(ArmPair(*map(_arm, trials)))
            if problem := problem_of(pairs.made[-1]):
                raise Stop(problem)
            if trials[1].timed_out:
                raise Stop("the eager run was ended at its time limit: no more pairs were run")
    except Stop as why:
        pairs.stopped = str(why)
    except KeyboardInterrupt:
        pairs.stopped, pairs.interrupted = "interrupted between two runs", True


def _run(pairs: Pairs, arm: Literal["compiled", "eager"], index: int) -> Trial:
    """One run of a pair.

    Raises:
        Stop: there is no budget for it, it failed, or it was interrupted.
    """
    plan, limit_s = COMPILED, None
    if arm == "eager":
        plan, limit_s = EAGER, EAGER_TIMES * pairs.first_s + EAGER_EXTRA_S
    # A first eager run is cut short; others would only repeat what is known by then.
    room_s = pairs.first_s if pairs.made else 0.0
    what = f"{arm}, pair {index + 1} of {pairs.rounds}"
    trial = make_run(pairs, arm, what, plan, limit_s, room_s)
    _note(pairs, arm, index, trial)
    if pairs.interrupted:
        raise Stop(f"interrupted in run {pairs.runs}")
    if trial.problem and not (trial.timed_out and arm == "eager" and trial.observed is not None):
        again = " again" if arm == "compiled" else ""
        raise Stop(f"the {arm} run failed{again}: {why_not(trial)}")
    return trial


def make_run(
    pairs: Pairs, name: str, what: str, plan: TrialPlan, limit_s: float | None, room_s: float
) -> Trial:
    """The next run of the command, within its budget and the user's time limit.

    Args:
        pairs: the runs so far.
        name: of its files.
        what: what it is, for the user.
        plan: what happens in it.
        limit_s: seconds that it may take; None: as many as it needs.
        room_s: seconds that the budget must have left for it.

    Raises:
        Stop: it has not.
    """
    limits = [pairs.program.options.timeout_s, limit_s]
    if pairs.budget_s is not None:
        left_s = pairs.budget_s - (time.monotonic() - pairs.started)
        if left_s <= 0 or left_s < room_s:
            raise Stop(f"the budget of {pairs.budget_s:g} s has no room for another run")
        limits.append(left_s)
    limit_s = min((limit for limit in limits if limit is not None), default=None)
    return pairs.run(name, what, plan, limit_s)


def _arm(trial: Trial) -> Arm:
    if trial.observed is None:
        return Arm({}, whole=False)
    return arm_of(trial.observed.timeline, whole=not trial.timed_out)


def _note(pairs: Pairs, arm: Literal["compiled", "eager"], index: int, trial: Trial) -> None:
    wall_s, steps = None, None
    if trial.observed is not None:
        wall_s, steps = trial.wall_s, trial.observed.receipt.steps
    count = steps.count if steps is not None else 0
    record = ArmRecord(arm=arm, pair=index, wall_s=wall_s, steps=count, problem=trial.problem)
    pairs.records.append(record)


def folder_of(run_dir: str) -> str:
    """Where the runs after the first are, in the directory of the first."""
    return os.path.join(run_dir, FOLDER)
