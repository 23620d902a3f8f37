"""Runs of a program compiled and eager, in turns, each in a fresh process with the same collectors.

Beside them one run that compares numbers: at its end compiled calls are made again, eager and
compiled.

Eager is the stance "force_eager": calls of compiled callables are still seen, so that steps end at
the same moments in both arms, and each callable is timed by the same two readings of the clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Literal

from compilediag.compare.against_eager import Arm, ArmPair, build_arm, find_problem
from compilediag.errors import CompilediagError
from compilediag.fixes import numbers
from compilediag.receipt.schema.comparisons import ArmRecord, NumbersSection
from compilediag.runs.certify.recorded import VARY_S
from compilediag.runs.trials.trial import SEED, Stop, Trial, Trials, describe_failure
from compilediag_harness.wire import RecordingPlan, SettingChange, TrialPlan

FOLDER = "against-eager"
"""Below the directory of the run."""

PAIRS = 3
"""With fewer, two processes that differ by chance may pass for two arms that do."""

EAGER_TIMES = 5.0
EAGER_EXTRA_S = 60.0
"""An eager run may take so many times what the first compiled one took, and so many seconds beside:
by then one that is slower is seen to be, and one that hangs has to end."""

COMPILED = TrialPlan(seed=SEED, call_seconds=True)
EAGER = replace(COMPILED, stance="force_eager")


@dataclass(slots=True)
class Pairs(Trials):
    """Pairs of runs in progress."""

    rounds: int = PAIRS
    made: list[ArmPair] = field(default_factory=list[ArmPair])
    records: list[ArmRecord] = field(default_factory=list[ArmRecord])
    stopped: str | None = None
    """Why no more runs were made; None where all were."""
    first_s: float = 0.0
    """Seconds that the first compiled run took."""


def run_pairs(pairs: Pairs, first: Trial) -> None:
    """Make the runs, and write what becomes of them into `pairs`; whatever ends them loses none of
    those before. `first`: that of the first pair, made already with the plan `COMPILED`."""
    pairs.first_s = first.wall_s
    _record_run(pairs, "compiled", 0, first)
    try:
        for index in range(pairs.rounds):
            # Each arm is the first one as often.
            eager = _run_arm(pairs, "eager", index) if index % 2 else None
            compiled = _run_arm(pairs, "compiled", index) if index else first
            trials = (compiled, _run_arm(pairs, "eager", index) if eager is None else eager)
            arms = (
                build_arm(trial.observed.timeline, whole=not trial.timed_out)
                if trial.observed is not None
                else Arm({}, whole=False)
                for trial in trials
            )
            pairs.made.append(ArmPair(*arms))
            if problem := find_problem(pairs.made[-1]):
                raise Stop(problem)
            if trials[1].timed_out:
                raise Stop("the eager run was ended at its time limit: no more pairs were run")
    except Stop as why:
        pairs.stopped = str(why)
    except KeyboardInterrupt:
        pairs.stopped, pairs.interrupted = "interrupted between two runs", True


def _run_arm(pairs: Pairs, arm: Literal["compiled", "eager"], index: int) -> Trial:
    """Make one run of a pair; Stop where it cannot be made, fails, or is interrupted."""
    plan, limit_s = COMPILED, None
    if arm == "eager":
        plan, limit_s = EAGER, EAGER_TIMES * pairs.first_s + EAGER_EXTRA_S
    # A first eager run is cut short; others would only repeat what is known by then.
    room_s = pairs.first_s if pairs.made else 0.0
    what = f"{arm}, pair {index + 1} of {pairs.rounds}"
    trial = make_run(pairs, arm, what, plan, limit_s, room_s)
    _record_run(pairs, arm, index, trial)
    if pairs.interrupted:
        raise Stop(f"interrupted in run {pairs.runs}")
    if trial.problem and not (trial.timed_out and arm == "eager" and trial.observed is not None):
        again = " again" if arm == "compiled" else ""
        raise Stop(f"the {arm} run failed{again}: {describe_failure(trial)}")
    return trial


def make_run(
    pairs: Pairs, name: str, what: str, plan: TrialPlan, limit_s: float | None, room_s: float
) -> Trial:
    """Make the next run of the command, within its budget and the user's time limit. `name` is that
    of its files, `what` it is, for the user; it may take `limit_s`, if that is given, and the
    budget must have `room_s` left for it. Both are seconds.

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


def _record_run(pairs: Pairs, arm: Literal["compiled", "eager"], index: int, trial: Trial) -> None:
    seen = trial.observed
    steps = seen.receipt.steps if seen is not None else None
    count, wall_s = steps.count if steps is not None else 0, trial.wall_s if seen else None
    record = ArmRecord(arm=arm, pair=index, wall_s=wall_s, steps=count, problem=trial.problem)
    pairs.records.append(record)


# --- the run that compares numbers ---------------------------------------------------------------

NUMBERS = TrialPlan(
    # Inductor draws the random numbers that eager draws, as in torch's own accuracy checks.
    settings=(SettingChange("torch._inductor.config", "fallback_random", value=True),),
    recording=RecordingPlan(SEED, VARY_S, repeats=True),
)

_LIMIT_TIMES, _LIMIT_EXTRA_S = 10.0, 120.0
"""A run with calls that are made again may take so much longer than one without."""


def compare_numbers(pairs: Pairs) -> NumbersSection:
    """Make the run that compares numbers."""
    what, limit_s = "numbers, eager and compiled", _LIMIT_TIMES * pairs.first_s + _LIMIT_EXTRA_S
    try:
        trial = make_run(pairs, what, what, NUMBERS, limit_s, pairs.first_s)
    except (Stop, CompilediagError) as error:
        return numbers.make_not_compared(str(error))
    except KeyboardInterrupt:
        pairs.interrupted = True
        return numbers.make_not_compared("interrupted")
    if trial.interrupted:
        return numbers.make_not_compared(f"interrupted in run {pairs.runs}")
    if trial.observed is None or trial.problem:
        why = f"the run that compares numbers failed: {describe_failure(trial)}"
        return numbers.make_not_compared(why)
    return numbers.compare_numbers(trial.observed.timeline)
