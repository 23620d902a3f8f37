"""Runs of a program compiled and eager, in turns, each in a fresh process with the same collectors.

Beside them the runs that compare numbers: one in which sampled compiled calls are made eager beside
them, one more where something differs, and those that narrow it.

Eager is the stance "force_eager": calls of compiled callables are still seen, so that steps end at
the same moments in both arms, and each callable is timed by the same two readings of the clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from compilediag.compare.against_eager import Arm, ArmPair, build_arm, find_problem
from compilediag.errors import CompilediagError
from compilediag.fixes.numbers.first_difference import (
    Difference,
    NumbersComparison,
    confirm_differences,
    is_still_different,
    judge_calls,
    make_not_compared,
)
from compilediag.fixes.numbers.narrow import narrow_difference
from compilediag.receipt.schema.comparisons import ArmRecord, NarrowedRecord
from compilediag.runs.trials.trial import SEED, Stop, Trial, Trials, describe_failure
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import SettingChange, TrialPlan

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


# --- the runs that compare numbers ---------------------------------------------------------------

SAME_RANDOM = SettingChange("torch._inductor.config", "fallback_random", value=True)
"""Inductor draws the random numbers that eager draws, as in torch's own accuracy checks."""

_LIMIT_TIMES, _LIMIT_EXTRA_S = 10.0, 120.0
"""A run with eager calls beside the compiled ones may take so much longer than one without."""


def compare_numbers(pairs: Pairs, *, bisect: bool = False) -> NumbersComparison:
    """Make the runs that compare numbers, none for a command that was stopped. `bisect` narrows the
    first difference to a frame and a layer."""
    numbers = None
    try:
        beside = _run_for_timeline(pairs, "numbers, eager beside compiled", shadow=True)
        once = judge_calls(beside)
        if once.same is not False:
            return once
        numbers = confirm_differences(
            once, beside, _run_for_timeline(pairs, "numbers, compiled alone", shadow=False)
        )
        if not bisect or not numbers.differences:
            return numbers
        narrowed = _narrow_difference(pairs, beside, numbers.differences[0])
    except (Stop, CompilediagError) as error:
        narrowed = NarrowedRecord(layer=None, problem=str(error))
    except KeyboardInterrupt:
        pairs.interrupted = True
        narrowed = NarrowedRecord(layer=None, problem="interrupted")
    if numbers is None:
        return make_not_compared(narrowed.problem or "")
    return numbers._replace(section=msgspec.structs.replace(numbers.section, narrowed=narrowed))


def _narrow_difference(pairs: Pairs, beside: Timeline, first: Difference) -> NarrowedRecord:
    """Narrow a difference to a frame; Stop if this torch lacks the option or no run can be made."""
    # Resumed frames and those that it calls after a break are found among the others.
    frame = (first.function.file, first.function.function.rpartition(".")[2])
    is_own: dict[str, bool] = {}
    for compiled in beside.compiles:
        if compiled.process == first.process and (key := compiled.key.frame_id).isdigit():
            place = (compiled.frame.file, compiled.frame.function)
            is_own[key] = is_own.get(key, False) or frame == place

    def check_backends(value: str) -> bool | None:
        """Run with other backends: True where the difference is still there."""
        override = SettingChange("torch._dynamo.config", "debug_backend_override", value)
        trial = _run_trial(pairs, f"backends {value}", shadow=True, settings=(override,))
        if trial.observed is None:
            return None
        applied = [x for x in trial.observed.timeline.trial_applied if x.change == override.label]
        problem = next((event.problem for event in applied if event.problem), None)
        if problem is not None or not applied:
            raise Stop(
                "this torch cannot compile single frames with another backend: "
                f"{problem or 'torch._dynamo was not imported'}"
            )
        return None if trial.problem else is_still_different(first, trial.observed.timeline)

    own = [key for key, is_its in is_own.items() if is_its]
    others = [key for key, is_its in is_own.items() if not is_its]
    return narrow_difference(own, others, check_backends)


def _run_for_timeline(pairs: Pairs, what: str, *, shadow: bool) -> Timeline:
    trial = _run_trial(pairs, what, shadow=shadow)
    if trial.observed is None or trial.problem:
        raise Stop(f"the run that compares numbers failed: {describe_failure(trial)}")
    return trial.observed.timeline


def _run_trial(
    pairs: Pairs, what: str, *, shadow: bool, settings: tuple[SettingChange, ...] = ()
) -> Trial:
    """Make one run; Stop where there is no budget for it, or it was interrupted."""
    plan = TrialPlan(seed=SEED, outputs=True, shadow=shadow, settings=(SAME_RANDOM, *settings))
    limit_s = _LIMIT_TIMES * pairs.first_s + _LIMIT_EXTRA_S
    trial = make_run(pairs, what, what, plan, limit_s, pairs.first_s)
    if trial.interrupted:
        raise Stop(f"interrupted in run {pairs.runs}")
    return trial
