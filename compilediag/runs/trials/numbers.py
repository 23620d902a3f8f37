"""The runs that compare numbers: one in which sampled compiled calls are made eager beside them,
one more where something differs, and those that narrow it."""

from __future__ import annotations

from msgspec.structs import replace

from compilediag.errors import CompilediagError
from compilediag.fixes.numbers.first_difference import (
    Difference,
    Numbers,
    confirmed,
    not_compared,
    numbers_of,
    still_differs,
)
from compilediag.fixes.numbers.record import narrowing
from compilediag.receipt.schema.comparisons import NarrowedRecord
from compilediag.runs.trials.against_eager import Pairs, make_run
from compilediag.runs.trials.campaign import why_not
from compilediag.runs.trials.one import SEED, Trial
from compilediag.runs.trials.state import Stop
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import SettingChange, TrialPlan

SAME_RANDOM = SettingChange("torch._inductor.config", "fallback_random", value=True)
"""Inductor draws the random numbers that eager draws, as in torch's own accuracy checks."""

_LIMIT_TIMES, _LIMIT_EXTRA_S = 10.0, 120.0
"""A run with eager calls beside the compiled ones may take so much longer than one without."""


def compare_numbers(pairs: Pairs, *, bisect: bool = False) -> Numbers:
    """Makes the runs.

    Args:
        pairs: the program, the budget and the progress of the command; one that was stopped gets
            no more runs.
        bisect: narrows the first difference to a frame and a layer.
    """
    found = None
    try:
        beside = _timeline(pairs, "numbers, eager beside compiled", shadow=True)
        once = numbers_of(beside)
        if once.same is not False:
            return once
        found = confirmed(once, beside, _timeline(pairs, "numbers, compiled alone", shadow=False))
        if not bisect or not found.differences:
            return found
        narrowed = _narrowed(pairs, beside, found.differences[0])
    except (Stop, CompilediagError) as error:
        narrowed = NarrowedRecord(layer=None, problem=str(error))
    except KeyboardInterrupt:
        pairs.interrupted = True
        narrowed = NarrowedRecord(layer=None, problem="interrupted")
    if found is None:
        return not_compared(narrowed.problem or "")
    return found._replace(section=replace(found.section, narrowed=narrowed))


def _narrowed(pairs: Pairs, beside: Timeline, first: Difference) -> NarrowedRecord:
    """Raises Stop where this torch has no such option, or no run can be made."""
    # Resumed frames and those that it calls after a break are found among the others.
    frame = (first.function.file, first.function.function.rpartition(".")[2])
    is_own: dict[str, bool] = {}
    for each in beside.compiles:
        if each.process == first.process and (key := each.key.frame_id).isdigit():
            is_own[key] = is_own.get(key, False) or frame == (each.frame.file, each.frame.function)

    def differs_with(value: str) -> bool | None:
        """The difference is there with other backends."""
        override = SettingChange("torch._dynamo.config", "debug_backend_override", value)
        trial = _trial(pairs, f"backends {value}", _plan(shadow=True, settings=(override,)))
        if trial.observed is None:
            return None
        applied = [x for x in trial.observed.timeline.trial_applied if x.change == override.label]
        problem = next((each.problem for each in applied if each.problem), None)
        if problem is not None or not applied:
            raise Stop(
                "this torch cannot compile single frames with another backend: "
                f"{problem or 'torch._dynamo was not imported'}"
            )
        return None if trial.problem else still_differs(first, trial.observed.timeline)

    own = [key for key, is_its in is_own.items() if is_its]
    others = [key for key, is_its in is_own.items() if not is_its]
    return narrowing(own, others, differs_with)


def _plan(*, shadow: bool, settings: tuple[SettingChange, ...] = ()) -> TrialPlan:
    return TrialPlan(seed=SEED, shadow=shadow, settings=(SAME_RANDOM, *settings))


def _timeline(pairs: Pairs, what: str, *, shadow: bool) -> Timeline:
    trial = _trial(pairs, what, _plan(shadow=shadow))
    if trial.observed is None or trial.problem:
        raise Stop(f"the run that compares numbers failed: {why_not(trial)}")
    return trial.observed.timeline


def _trial(pairs: Pairs, what: str, plan: TrialPlan) -> Trial:
    """One run.

    Raises:
        Stop: there is no budget for it, or it was interrupted.
    """
    limit_s = _LIMIT_TIMES * pairs.first_s + _LIMIT_EXTRA_S
    trial = make_run(pairs, what, what, plan, limit_s, pairs.first_s)
    if trial.interrupted:
        raise Stop(f"interrupted in run {pairs.runs}")
    return trial
