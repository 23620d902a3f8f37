"""Device time by events: read late, never waited for. The device is made up."""

from __future__ import annotations

from typing import Any

from compilediag.timeline.timeline import fold
from compilediag_harness.base.session import Session
from compilediag_harness.steps.phases import BATCH_STEPS, MAX_WAITING_STEPS, DeviceClock
from compilediag_harness.steps.step_clock import StepClock
from compilediag_harness.user_api.spans import BACKWARD, DATA_WAIT, FORWARD
from compilediag_harness.wire import DeviceStepsTimed, Event, StepsEnded


class Device:
    """A stream that is some milliseconds behind the host, and counts who waits for it."""

    def __init__(self, behind_ms: float = 0.0) -> None:
        self.queued_ms = 0.0
        self.behind_ms = behind_ms
        self.usable = True
        self.recorded = 0

    def mark(self) -> Mark:
        return Mark(self)


class Mark:
    """An event; asking for its time too early is an error, as it is of torch."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.at_ms = 0.0

    def record(self) -> None:
        self._device.recorded += 1
        self.at_ms = self._device.queued_ms

    def query(self) -> bool:
        return self._device.queued_ms - self.at_ms >= self._device.behind_ms

    def elapsed_time(self, end_event: Any, /) -> float:
        assert self.query()
        assert end_event.query()
        return float(end_event.at_ms - self.at_ms)


def make(device: Device) -> tuple[DeviceClock, list[Event]]:
    events: list[Event] = []
    session = Session(events.append, origin=0.0)
    return DeviceClock(session, device.mark, lambda: device.usable), events


def step(clock: DeviceClock, device: Device, number: int) -> None:
    """Forward of 4 ms, backward of 8 ms, 1 ms of something else."""
    for phase, work_ms in ((DATA_WAIT, 0.0), (FORWARD, 4.0), (BACKWARD, 8.0)):
        clock.enter(phase)
        device.queued_ms += work_ms
        clock.leave(phase)
    device.queued_ms += 1.0
    clock.handle_step_end(number, False)


def steps(count: int, behind_ms: float = 0.0) -> tuple[DeviceClock, list[Event]]:
    device = Device(behind_ms)
    clock, events = make(device)
    for number in range(count):
        step(clock, device, number)
    return clock, events


def rows(events: list[Event]) -> list[tuple[int, float, float | None, float | None]]:
    assert all(isinstance(event, DeviceStepsTimed) for event in events)
    timeline = fold([events])
    return [
        (item.number, item.step_s, item.forward_s, item.backward_s)
        for item in timeline.device_steps
    ]


def test_times_are_the_device_s() -> None:
    """From the end of a step to that of the next; the first step has no begin on the stream."""
    clock, events = steps(4)
    clock.finish()
    assert rows(events) == [(number, 0.013, 0.004, 0.008) for number in (1, 2, 3)]


def test_nothing_waits_for_a_slow_device() -> None:
    """Steps are told when the device has passed them; those it has not at the end are dropped."""
    clock, events = steps(10, behind_ms=30.0)
    clock.finish()
    assert [row[0] for row in rows(events)] == [1, 2, 3, 4, 5, 6]
    assert sum(event.dropped for event in events if isinstance(event, DeviceStepsTimed)) == 3


def test_what_waits_is_bounded() -> None:
    """A device that never finishes costs no more than so many steps of events."""
    clock, events = steps(MAX_WAITING_STEPS + 20, behind_ms=1e9)
    assert clock.dropped == 19
    clock.finish()
    assert rows(events) == []


def test_records_are_batched() -> None:
    """One for many steps."""
    _, events = steps(BATCH_STEPS + 2)
    assert [len(rows([event])) for event in events] == [BATCH_STEPS]


def test_nothing_is_recorded_while_a_graph_is_captured() -> None:
    """An event would become a part of the graph; the step it falls into is not timed."""
    device = Device()
    clock, events = make(device)
    step(clock, device, 0)
    device.usable = False
    before = device.recorded
    step(clock, device, 1)
    assert device.recorded == before
    device.usable = True
    step(clock, device, 2)
    step(clock, device, 3)
    clock.finish()
    assert [row[0] for row in rows(events)] == [3]


def test_steps_that_are_decided_together_are_not_timed() -> None:
    """Their ends were not marked when they happened."""
    device = Device()
    clock, events = make(device)
    host = StepClock(clock.session, 0.0)
    host.device = clock
    clock.session.step_listeners.append(clock.handle_step_end)
    for count in (1, 1, 2, 1):
        for _ in range(count):
            device.queued_ms += 13.0
            host.cut_step(device.queued_ms)
        host.commit()
    clock.finish()
    assert [row[0] for row in rows(events)] == [1, 4]


def test_the_receipt_has_the_device_s_sums() -> None:
    """Beside the host's, with the method and no synchronisation; null without a device."""
    from compilediag.diagnosis.figures.steps import build_steps_section

    clock, events = steps(3)
    clock.finish()
    host = StepsEnded(3.0, 0, "optimizer", (1.0, 2.0, 3.0), (1.0, 1.0, 1.0))
    with_device = build_steps_section(fold([[host, *events]]), ())
    without = build_steps_section(fold([[host]]), ())
    told = with_device.device_timing
    assert (told.method, told.extra_syncs, told.steps) == ("cuda_events", 0, 2)
    assert (told.step_s, told.forward_s, told.backward_s) == (0.026, 0.008, 0.016)
    assert (without.device_timing.method, without.device_timing.step_s) == (None, None)
