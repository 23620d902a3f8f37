"""Labels of events against the times of steps."""

import pytest

from compilediag.timeline.process import assign_steps
from compilediag_harness.wire import DynamoReset, Event, StepsEnded


def ended(first: int, *ends: float) -> StepsEnded:
    return StepsEnded(ends[-1], first, "optimizer", ends, tuple(1.0 for _ in ends))


def steps_of(*events: Event) -> list[int]:
    found = assign_steps(events)
    assert assign_steps(found) == found
    return [event.step for event in found if isinstance(event, DynamoReset)]


@pytest.mark.parametrize(("t", "step"), [(0.5, 0), (1.0, 0), (1.5, 1), (2.5, 2), (3.5, 3)])
def test_the_time_decides(t: float, step: int) -> None:
    """Whatever was recorded while it was not known; after the last step the next is in progress."""
    assert steps_of(DynamoReset(t, 0, 0), ended(0, 1.0, 2.0), ended(2, 3.0)) == [step]
