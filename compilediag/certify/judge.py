"""The certificate of a change: two executed states of a program compared, point by point.

It knows nothing of the edit, and of who made it. A point that lacks something is undecided, never
held; `Certificate.further` says what could be executed to decide it.
"""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.certify.calls import compare_calls
from compilediag.certify.change import Change
from compilediag.certify.cost import state_cost
from compilediag.certify.other_inputs import (
    ComparedCall,
    check_other_inputs,
    compare_varied_calls,
)
from compilediag.certify.points import Certificate, ExecutedState, Execution, JudgedPoint
from compilediag.certify.program import (
    check_exercised,
    check_program,
    is_traced,
    leave_out_unloaded,
)
from compilediag.certify.results import check_results
from compilediag.certify.totals import check_better, check_compiled
from compilediag_harness.wire import CallVaried


def judge(
    before: ExecutedState,
    after: ExecutedState,
    change: Change,
    *,
    again: ExecutedState | None = None,
    eager: ExecutedState | None = None,
    varied: bool = True,
) -> Certificate:
    """Judge a change by one recorded execution of each state, with the same seed.

    Args:
        before: The old state.
        after: The new state, with `change.watched` as the lines of its plan.
        change: How their sources differ (`compare_sources`).
        again: The old state executed once more: what differs between two unchanged executions is
            not compared.
        eager: The old state under the stance "force_eager": how much rounding there is. Of both,
            which of `change.watched_before` ran.
        varied: False where the user wanted no calls with other inputs.

    Returns:
        The certificate. `further` is to be followed until it is None: "again" at most once, where
        calls differ from the first on by more than rounding, or all are equal while prints, saved
        values or state are not: the program may differ from itself. Then "eager", where the first
        call that differs does so by little enough to be rounding (1e-3 of its size, 1e-1 in 16
        bits). Where only which of the lines ran that are gone is missing, "eager" comes first.
        None where nothing would decide, or another point fails anyway.
    """
    reference = None if eager is None else eager.timeline
    calls = compare_calls(before.timeline, after.timeline, reference)
    change = leave_out_unloaded(change, after)
    program = check_program(before, after, change, calls)
    if before.problem != after.problem:
        return Certificate((program,))
    varied_calls = compare_varied_calls(before, after, calls)
    unread = [f"{file.file.rpartition('/')[2]}:{n}" for file in change.files for n in file.sizes]
    other_inputs = check_other_inputs(before, after, varied_calls, varied=varied, unread=unread)
    is_shown = other_inputs.outcome == "holds"
    uncounted = frozenset[str]().union(*(file.uncounted for file in change.files))
    results, further = check_results(
        before, after, calls, again, eager, is_shown=is_shown, uncounted=uncounted
    )
    old = again or (before if before.is_watched else eager) or before
    made = varied_calls if again is None else compare_varied_calls(again, after, calls)
    exercised = check_exercised(old, after, change, _list_compared(made))
    others = (
        check_better(before, after),
        check_compiled(
            before, after, same_calls=calls.mismatch is None, traced=is_traced(after, change)
        ),
        other_inputs,
        state_cost(before, after),
    )
    outcomes = {point.outcome for point in (program, *others)}
    if "fails" in outcomes:
        further = None
    elif {*outcomes, results.outcome} <= {"holds", "stated"}:
        further = _choose_to_watch(before, exercised, again, eager)
    better, compiled, *last = others
    return Certificate((program, exercised, better, compiled, results, *last), further)


def _choose_to_watch(
    before: ExecutedState,
    exercised: JudgedPoint,
    again: ExecutedState | None,
    eager: ExecutedState | None,
) -> Execution | None:
    """Choose what to execute where every changed line of the new state ran, and of a recorded one
    it is not known what did: not compiled, it runs the same lines sooner; calls are made again in
    the other."""
    lines = next(iter(exercised.figures), None)
    is_whole = lines is not None and lines.before == lines.after
    if before.is_watched or exercised.outcome != "undecided" or not is_whole:
        return None
    return "eager" if eager is None else "again" if again is None else None


def _list_compared(made: Iterable[ComparedCall]) -> tuple[list[CallVaried], list[CallVaried]]:
    """List the calls of each state that show that what they run is compared. Of a limit that the
    new state sets, what runs there is the line that raises; the old one went on uncompared."""
    equal = [its for its in made if its.judged == "equal"]
    limits = [its.after for its in made if its.judged == "limit"]
    return [its.before for its in equal], [*(its.after for its in equal), *limits]
