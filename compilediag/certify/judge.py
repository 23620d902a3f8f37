"""The certificate of a change: two executed states of a program compared, point by point.

It knows nothing of the edit, and of who made it. A point that lacks something is undecided, never
held; `needs_again` says what could be executed to decide it.
"""

from __future__ import annotations

from compilediag.certify.change import Change
from compilediag.certify.points import Certificate, ExecutedState, Execution


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
        eager: The old state under the stance "force_eager": how much rounding there is.
        varied: False where the user wanted no calls with other inputs.
    """
    raise NotImplementedError


def needs_again(certificate: Certificate) -> Execution | None:
    """Tell which further execution of the old state would decide; None where none would, or
    another point fails anyway. To be asked until None: "again" at most once, then "eager".

    "eager": all calls correspond, and the first that differs does so by little enough to be
    rounding (1e-3 of its size, 1e-1 in 16 bits). "again": calls differ from the first on by more
    than that, or all calls are equal while prints, saved values or state are not: the program may
    differ from itself.
    """
    raise NotImplementedError
