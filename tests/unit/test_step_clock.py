"""Times of steps: cut, joined, taken back and written in batches."""

import threading

from compilediag_harness.base.session import BATCH_ROWS, Session
from compilediag_harness.steps.step_clock import StepClock
from compilediag_harness.user_api.spans import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, SPANS
from compilediag_harness.wire import Event, StepsEnded


def make() -> tuple[StepClock, list[Event]]:
    events: list[Event] = []
    return StepClock(Session(events.append, origin=10.0), 10.0), events


def wait(clock: StepClock, began: float, ended: float) -> None:
    """The step waits for a batch."""
    clock.enter(DATA_WAIT, began)
    clock.phases.close(DATA_WAIT, ended)


def end(clock: StepClock, *times: float, source: str | None = None) -> None:
    """Steps end; with a source they are written."""
    for time in times:
        clock.cut_step(time)
        clock.commit()
    if source is not None:
        clock.write(times[-1], source)


def batch(event: Event) -> StepsEnded:
    assert isinstance(event, StepsEnded)
    return event


def test_times_of_a_step() -> None:
    """Ends are told since the process attached; the phases belong to the step they lie in."""
    clock, events = make()
    clock.phases.add(SPANS, 11.0, 11.5)  # before the first step: a part of none
    wait(clock, 12.0, 12.5)
    clock.enter(FORWARD, 12.5)
    clock.phases.add(SPANS, 12.5, 12.75)
    clock.phases.close(FORWARD, 12.875)
    clock.enter(BACKWARD, 12.875)
    clock.phases.close(BACKWARD, 13.0)
    clock.phases.add(OPTIMIZER, 13.0, 13.25)
    clock.cut_step(14.0)
    end(clock, 15.0, source="optimizer")
    assert events == [
        StepsEnded(
            t=5.0,
            first=0,
            source="optimizer",
            ends=(4.0, 5.0),
            walls=(2.0, 1.0),
            data_wait=(0.5, 0.0),
            optimizer=(0.25, 0.0),
            spans=(0.25, 0.0),
            forward=(0.125, 0.0),
            backward=(0.125, 0.0),
        )
    ]


def test_what_was_not_observed_is_left_out() -> None:
    """No loader, optimizer or span seen: an empty tuple, which is not zeros."""
    clock, events = make()
    end(clock, 11.0, source="call")
    told = batch(events[0])
    assert told.data_wait == told.optimizer == told.spans == ()
    assert told.forward == told.backward == ()


def test_another_thread_that_ends_the_steps_is_the_one_measured() -> None:
    """What was open in the thread before is forgotten: it would never end in this one."""
    clock, events = make()
    clock.enter(FORWARD, 11.0)
    thread = threading.Thread(target=clock.cut_step, args=(12.0,))
    thread.start()
    thread.join()
    assert not clock.is_own_thread
    clock.cut_step(14.0)  # this thread again
    clock.commit()
    clock.write(14.0, "step()")
    assert batch(events[0]).walls == (1.0, 2.0)
    assert batch(events[0]).forward == ()


def test_the_first_step_begins_with_the_first_work() -> None:
    """Start-up is not a part of the first step, unless nothing tells where it began."""
    clock, events = make()
    clock.begin(15.0)
    end(clock, 16.0, source="call")
    other, other_events = make()
    end(other, 16.0, source="step()")
    assert batch(events[0]).walls == (1.0,)
    assert batch(other_events[0]).walls == (6.0,)


def test_tentative_boundaries_do_not_count() -> None:
    """Forgotten, their times go back to the step in progress; joined, to the one before."""
    clock, events = make()
    clock.begin(10.0)
    wait(clock, 10.0, 10.5)
    clock.cut_step(11.0)
    assert clock.session.step == 0
    clock.forget()
    end(clock, 12.0)
    assert clock.session.step == 1
    wait(clock, 12.0, 12.25)
    clock.cut_step(13.0)
    clock.join()
    assert clock.session.step == 1
    clock.write(13.0, "optimizer")
    assert batch(events[0]).walls == (3.0,)
    assert batch(events[0]).data_wait == (0.75,)


def test_joining_a_written_step_goes_to_the_next() -> None:
    """What is written stays as it is."""
    clock, events = make()
    end(clock, 11.0, source="optimizer")
    clock.cut_step(12.0)
    clock.join()
    end(clock, 13.0, source="optimizer")
    assert [batch(event).walls for event in events] == [(1.0,), (2.0,)]
    assert [batch(event).first for event in events] == [0, 1]


def test_a_batch_is_due() -> None:
    """After a quarter of a second, when it is full, and at once when something compiled."""
    clock, events = make()
    end(clock, 10.1)
    assert not clock.is_due(10.1)
    assert clock.is_due(10.3)
    end(clock, *[10.1] * BATCH_ROWS)
    assert clock.is_due(10.1)
    clock.write(10.1, "call")
    assert not clock.is_due(10.1)
    clock.session.compiled_in_step = True
    end(clock, 10.15)
    assert clock.is_due(10.15)
    assert len(events) == 1


def test_held_steps_are_not_written() -> None:
    """The last ones may still change."""
    clock, events = make()
    end(clock, 11.0, 12.0, 13.0)
    clock.write(13.0, "optimizer", hold=1)
    clock.write(13.0, "optimizer", hold=1)
    assert [batch(event).ends for event in events] == [(1.0, 2.0)]
