"""Brief steps: unsampled and sampled in turn, each reported once, in order. No torch, no clock."""

from itertools import pairwise

import pytest
from step_sources import NoOptimizers

from compilediag.timeline.timeline import Step, fold
from compilediag_harness.base.session import WATCHED_AFTER_COMPILE, Session
from compilediag_harness.steps import step_clock
from compilediag_harness.steps.step_clock import (
    BRIEF_S,
    EVERY_STEP_VARIABLE,
    FIRST_STEPS,
    SAMPLED_STEPS,
    UNSAMPLED_S,
)
from compilediag_harness.steps.step_detection import EVERY_MARK, StepSource
from compilediag_harness.user_api.spans import DATA_WAIT, FORWARD
from compilediag_harness.wire import Event, FaultOccurred, StepsEnded

ORIGIN = 100.0
WALL = BRIEF_S / 20
"""Seconds of a step."""


class Program:
    """A loop that marks its steps, with hooks that are paused and resumed as torch's are."""

    def __init__(self, *, pausable: bool = True) -> None:
        self.events: list[Event] = []
        self.heard: list[tuple[int, bool]] = []
        self.watched: list[int] = []
        self.session = Session(self.events.append, origin=ORIGIN)
        self.session.step_listeners.append(lambda *told: self.heard.append(told))
        self.paused = False
        self._pausable = pausable
        self.source = StepSource(self.session, NoOptimizers(), ORIGIN, self._pause, self._resume)
        self.now = ORIGIN

    def _pause(self, _source: StepSource, _by_calls: bool) -> bool:
        self.paused = self._pausable
        return self._pausable

    def _resume(self) -> None:
        self.paused = False

    def steps(self, count: int, wall: float = WALL, wait: float = 0.0) -> None:
        """Steps that an optimizer ends; half of each is forward, unless only ends are recorded."""
        for _ in range(count):
            self.step(1, wall, wait)

    def step(self, key: int, wall: float = WALL, wait: float = 0.0) -> None:
        """One step, ended by the optimizer `key` as `steps.py` does it."""
        began, source, brief = self.now, self.source, self.source.sampling
        if wait:
            brief.fold()
            source.clock.enter(DATA_WAIT, began)
            source.clock.phases.close(DATA_WAIT, began + wait)
        if not self.paused:
            self.watched.append(self.session.step)
            source.clock.enter(FORWARD, began + wait)
            source.clock.phases.close(FORWARD, began + wall / 2)
        self.now += wall
        if not brief.key:
            source.begin_optimizer(self.now)
        if not brief.record_end(key, self.now):
            brief.stop()
            source.begin_optimizer(self.now)
            source.end_optimizer(key, self.now, self.now)
            brief.pause_if_brief(source.sole_mark, source.source or "", self.now)

    def told(self) -> list[Step]:
        """The steps that were reported, after the end of the program."""
        self.source.sampling.stop()
        self.source.finish(self.now)
        return list(fold([self.events]).steps)


def check(program: Program, steps: list[Step], count: int) -> None:
    """Every step once, in order, without a gap between them."""
    assert [step.number for step in steps] == list(range(count))
    assert program.session.step == count
    for before, after in pairwise(steps):
        assert after.end - after.wall_s == pytest.approx(before.end)


def test_unsampled_and_sampled_steps_in_turn() -> None:
    """After the first steps most are unsampled, and some are sampled now and then: forward is known
    of these only, and its share of them is right."""
    program = Program()
    stretch = round(UNSAMPLED_S / WALL)
    count = FIRST_STEPS + 4 * (stretch + SAMPLED_STEPS)
    program.steps(count)
    steps = program.told()
    check(program, steps, count)
    watched = [step for step in steps if not step.unsampled]
    assert [step.number for step in watched] == [n for n in program.watched if n < count]
    assert FIRST_STEPS <= len(watched) <= FIRST_STEPS + 5 * SAMPLED_STEPS
    assert max(step.number for step in watched) > FIRST_STEPS + 3 * stretch
    assert all(step.forward_s == pytest.approx(WALL / 2) for step in watched)
    assert all(step.forward_s is None for step in steps if step.unsampled)
    assert all(step.wall_s == pytest.approx(WALL) for step in steps)


def test_a_compile_in_an_unsampled_step() -> None:
    """A listener for its end is called at once, and the steps after it are sampled."""
    program = Program()
    program.steps(FIRST_STEPS + 20)
    assert program.paused
    program.session.compiled_in_step = True
    compiled = program.session.step
    program.steps(1)
    assert program.heard[-1] == (compiled, True)
    program.steps(100)
    steps = program.told()
    check(program, steps, FIRST_STEPS + 121)
    after = [step.number for step in steps if not step.unsampled and step.number > compiled]
    assert after == list(range(compiled + 1, compiled + 1 + WATCHED_AFTER_COMPILE))


@pytest.mark.parametrize("why", ["long", "asked", "calls in progress"])
def test_all_steps_are_sampled(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where steps are not brief, where it was asked for, and where calls cannot be paused."""
    if why == "asked":
        monkeypatch.setenv(EVERY_STEP_VARIABLE, "1")
    program = Program(pausable=why != "calls in progress")
    program.steps(FIRST_STEPS + 200, 1.5 * BRIEF_S if why == "long" else WALL)
    steps = program.told()
    check(program, steps, FIRST_STEPS + 200)
    assert not any(step.unsampled for step in steps)
    assert len(program.heard) == len(steps)


def test_steps_that_become_long_are_sampled_again() -> None:
    """Evaluation that makes steps long is not unsampled for ever."""
    program = Program()
    program.steps(FIRST_STEPS + 20)
    program.steps(200, 2 * BRIEF_S)
    assert not program.paused
    steps = program.told()
    check(program, steps, FIRST_STEPS + 220)
    assert sum(step.unsampled for step in steps) < 20 + UNSAMPLED_S / BRIEF_S + 1


def test_waits_for_data_are_measured_in_every_step() -> None:
    """Of unsampled steps as well, each its own."""
    program = Program()
    for number in range(FIRST_STEPS + 100):
        program.step(1, WALL, WALL / 4 if number % 2 else WALL / 8)
    steps = program.told()
    check(program, steps, FIRST_STEPS + 100)
    assert any(step.unsampled for step in steps)
    for step in steps:
        assert step.data_wait_s == pytest.approx(WALL / 4 if step.number % 2 else WALL / 8)


def test_another_optimizer() -> None:
    """What was recorded counts; the step in progress was not sampled from its begin, later are,
    and with two optimizers nothing is unsampled any more."""
    program = Program()
    program.steps(FIRST_STEPS + 20)
    assert program.paused
    program.step(2)
    assert not program.paused
    for _ in range(100):
        program.step(1)
        program.step(2)
    assert not program.paused
    steps = program.told()
    assert [step.number for step in steps] == list(range(len(steps)))
    before, *after = steps[FIRST_STEPS + 19 :]
    assert before.unsampled
    assert before.wall_s == pytest.approx(2 * WALL)  # the other optimizer is a part of that step
    assert not any(step.unsampled for step in after)


def test_an_optimizer_in_place_of_another() -> None:
    """Phases of a training with an optimizer each: the second's steps are unsampled as well."""
    program = Program()
    program.steps(FIRST_STEPS + 20)
    for _ in range(20):
        program.step(2)
    assert program.paused
    steps = program.told()
    assert [step.number for step in steps] == list(range(len(steps)))
    assert sum(step.wall_s for step in steps) == pytest.approx((FIRST_STEPS + 40) * WALL)


def test_a_fault_of_ours_does_not_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported, and every step is sampled from then on."""
    program = Program()
    program.steps(FIRST_STEPS + 20)

    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(program.source.clock, "add_unsampled", fail)
        program.source.sampling.fold()
    assert not program.paused
    assert [event.where for event in program.events if isinstance(event, FaultOccurred)] == [
        "brief steps"
    ]
    program.steps(400)
    assert not program.paused


def test_marks_from_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is asked for at each end: another one's mark is no unsampled step."""
    program = Program()
    program.steps(FIRST_STEPS + 20)
    with monkeypatch.context() as patch:
        patch.setattr(step_clock.threading, "get_ident", lambda: -1)
        assert not program.source.sampling.record_end(1, program.now)
    assert program.source.sampling.record_end(1, program.now + WALL)


def test_a_fork_leaves_the_noted_steps_to_its_parent() -> None:
    """The child tells of its own steps only, and goes on with their numbers."""
    program = Program()
    program.steps(FIRST_STEPS + 20)
    before = len(program.events)
    program.source.handle_fork()
    assert not program.paused
    program.steps(5)
    program.told()
    own = [event for event in program.events[before:] if isinstance(event, StepsEnded)]
    numbers = [number for one in own for number in range(one.first, one.first + len(one.ends))]
    assert numbers == list(range(FIRST_STEPS + 20, FIRST_STEPS + 25))


def test_every_step_of_a_marked_loop() -> None:
    """`step()` alone ends steps once it is used."""
    program = Program()
    for _ in range(3):
        program.now += WALL
        program.source.mark_step(program.now)
    assert program.source.sole_mark == EVERY_MARK


def test_calls_that_end_steps() -> None:
    """One compiled callable alone does; of two that are called in turn none does."""
    program = Program()
    for key in (5, 5, 5):
        program.now += WALL
        program.source.begin_call(key, program.now)
    assert program.source.sole_mark == 5
    program.source.begin_call(6, program.now + WALL)
    assert program.source.sole_mark == 0
    program.source.begin_call(5, program.now + 2 * WALL)
    assert program.source.sole_mark == 0
