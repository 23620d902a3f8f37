"""Other inputs than the run had: calls of both states that were made again at their end."""

from __future__ import annotations

from compilediag.certify.points import ExecutedState
from compilediag_harness.wire import Location


def find_boundary(before: ExecutedState, after: ExecutedState) -> tuple[Location, Location] | None:
    """Find what to call again in place of compiled calls that do not correspond: the innermost
    function at or above them that both states have with the same name and parameters, as each
    state has it (`RecordingPlan.boundaries`). None where the calls correspond, or there is none."""
    raise NotImplementedError
