"""What ends a step, decided from marks alone: no torch, no clock."""

import contextlib

import pytest
from step_sources import NoOptimizers

from compilediag_harness.base.process_options import VARIABLE
from compilediag_harness.base.session import Session
from compilediag_harness.steps import steps
from compilediag_harness.steps.step_detection import AWAITED_CALLS, OptimizerRegistry, StepSource
from compilediag_harness.steps.steps import drive
from compilediag_harness.wire import Event, StepsEnded

ORIGIN = 100.0


class Prospects(OptimizerRegistry):
    """What is known of optimizers, as the test says."""

    def __init__(self, alive: bool, updates: str) -> None:
        self.alive = alive
        self.updates = updates
        self.grad = True
        self.call = 0

    def has_live_optimizer(self) -> bool:
        return self.alive

    def begin_call(self, key: int, first: bool) -> None:
        self.call = key

    def find_update(self) -> int:
        call, self.call = self.call, 0
        return call if chr(call) in self.updates else 0

    def has_trained(self) -> bool:
        return self.grad


class Program:
    """A program that marks its steps; each mark comes one second after the last."""

    def __init__(self, alive: bool = False, updates: str = "") -> None:
        self.events: list[Event] = []
        self.session = Session(self.events.append, origin=ORIGIN)
        self.prospects = Prospects(alive, updates)
        self.source = StepSource(self.session, self.prospects, ORIGIN)
        self.now = ORIGIN
        self.labels: list[tuple[str, int]] = []

    def run(self, marks: str) -> None:
        """Upper case: the optimizer of that name steps for half a second. Lower case: a compiled
        callable is called; `updates` are those that contain an optimizer's step. "|": `cd.step()`.
        The step in progress is noted at each."""
        for mark in marks.replace(" ", ""):
            self.now += 1
            self.labels.append((mark, self.session.step))
            if mark == "|":
                self.source.mark_step(self.now)
            elif mark.isupper():
                self.source.begin_optimizer(self.now - 0.5)
                self.source.end_optimizer(ord(mark), self.now - 0.5, self.now)
            else:
                self.source.begin_call(ord(mark), self.now)
                self.source.end_call(self.now + 0.4)

    def finish(self) -> list[tuple[str, float]]:
        """(source, end) of every step, after checking that the batches fit together."""
        self.source.finish(self.now + 1)
        steps: list[tuple[str, float]] = []
        for event in self.events:
            assert isinstance(event, StepsEnded)
            assert event.first == len(steps)
            assert len(event.walls) == len(event.ends)
            steps += [(event.source, end) for end in event.ends]
        assert self.session.step == len(steps)
        return steps


def ends(marks: str, alive: bool = False) -> str:
    """The marks with "·" after each at which a step ended (before it, for compiled calls)."""
    program = Program(alive)
    program.run(marks)
    steps = [round(end) for _, end in program.finish()]
    text = ""
    for place, mark in enumerate(marks.replace(" ", ""), start=1):
        ended = "·" * steps.count(place)
        text += ended + mark if mark.islower() else mark + ended
    return text + "·" * steps.count(len(program.labels) + 1)


def test_labels_with_one_optimizer_are_right_from_the_first_step() -> None:
    """Whatever happens in the second iteration is told as step 1, also while accumulating."""
    program = Program(alive=True)
    program.run("aaA aaA")
    assert [step for _, step in program.labels] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("DG DG DG DG", "DG·DG·DG·DG·"),  # a GAN; two optimizers side by side
        ("ABC ABC ABC", "ABC·ABC·ABC·"),
        ("DDDG DDDG DDDG", "D·D·DG·D·D·DG·D·D·DG·"),  # several critic updates
        ("AAAA BBBB AAA", "A·A·A·A·B·B·B·B·A·A·A·"),  # one phase after another
        # The first B comes after the step it belongs to is written: counted to the next.
        ("AAAAAAAAB AAAAAAAAB", "A·A·A·A·A·A·A·A·BA·A·A·A·A·A·A·AB·"),
        ("DG", "DG·"),
        ("D", "D·"),
        ("DG DG D", "DG·DG·D·"),
        # Inference: each outermost call begins a step; the last one ends with the program.
        ("a a a a", "a·a·a·a·"),
        ("ab ab ab", "ab·ab·ab·"),
        ("pddd pddd", "pd·d·d·pd·d·d·"),  # prefill and decode: what repeats begins a step
        # Marks take back what the optimizer marked in the first iteration; later ones go on.
        ("A| A| A|", "A|·A|·A|·"),
        ("AAA| AAA| AAA|", "AAA|·AAA|·AAA|·"),
        ("a| a| a|", "a|·a|·a|·"),
        ("aaaaaaa| aa|", "aaaaaaa|·aa|·"),
        ("AAAAA| A| A|", "A·A·A·A·A·|·A|·A|·"),
    ],
)
def test_several_marks_make_one_step(marks: str, expected: str) -> None:
    """A step ends after the last optimizer before the cycle repeats, and none is lost."""
    assert ends(marks) == expected


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("aA aA aA aA aA", "aA·aA·aA·aA·aA·"),
        ("aaaaA aaaaA aaaaA", "aaaaA·aaaaA·aaaaA·"),  # gradient accumulation
        ("aaa", "a·a·a·"),  # it never steps
    ],
)
def test_an_optimizer_that_is_alive_is_waited_for(marks: str, expected: str) -> None:
    """Compiled calls before its step are parts of that step."""
    assert ends(marks, alive=True) == expected


def test_optimizers_by_the_hundred_make_one_step() -> None:
    """One optimizer per parameter, stepped in backward hooks: the whole sweep is one step."""
    program = Program()
    for _ in range(5):
        for key in range(1, 301):
            program.now += 1
            program.source.begin_optimizer(program.now - 0.5)
            program.source.end_optimizer(key, program.now - 0.5, program.now)
    assert [round(end) for _, end in program.finish()] == [300, 600, 900, 1200, 1500]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("mu mu mu", "mu·mu·mu·"),  # the model, then the compiled step of the optimizer
        ("mmmmu mmmmu", "mmmmu·mmmmu·"),  # gradient accumulation
        ("pppp u pppp u pp", "ppppu·ppppu·pp"),  # a policy acts between updates of another model
        ("uv uv uv m uv", "uv·uv·uv·muv·"),  # two optimizers, and a forward that is none
        ("uu m uu mm u", "u·u·mu·u·mmu·"),  # the whole update is compiled; then an evaluation
        ("uu mA mA", "u·u·mA·mA·"),
        ("A A mu mu", "A·A·mu·mu·"),  # an eager step makes the state, then it is compiled
        ("mu mu mu | mu | mu", "mumumu|·mu|·mu"),  # the trial steps were none
    ],
)
def test_a_call_that_contains_the_step_ends_it(marks: str, expected: str) -> None:
    """Hooks do not run in compiled code; what a call wrote says that an optimizer stepped."""
    program = Program(alive=True, updates="uv")
    program.run(marks)
    text, steps = "", [end for _, end in program.finish()]
    for place, mark in enumerate(marks.replace(" ", ""), start=1):
        began = mark.islower() and place in steps
        text += "·" * began + mark + "·" * (sum(place <= end < place + 1 for end in steps) - began)
    assert text == expected


def test_updates_alone_begin_steps_so_that_brief_ones_go_unsampled() -> None:
    """The only callable of a program may be the whole update: its calls are told apart as calls."""
    program = Program(alive=True, updates="u")
    program.run("uuu")
    assert program.source.source == "call"
    assert program.source.sole_mark == ord("u")
    program.run("m")
    assert (program.source.source, program.source.sole_mark) == ("optimizer", 0)
    assert program.session.step == 3


def test_an_optimizer_that_never_steps_is_not_waited_for() -> None:
    """After many calls in grad mode the calls were the steps."""
    program = Program(alive=True)
    program.run("a" * AWAITED_CALLS)
    assert program.session.step == 0
    program.run("a")
    assert program.session.step == AWAITED_CALLS
    assert len(program.finish()) == AWAITED_CALLS + 1


def test_a_long_rollout_before_the_first_update_is_one_step() -> None:
    """Calls without gradients are not held against the optimizer that is waited for."""
    program = Program(alive=True)
    program.prospects.grad = False
    program.run("a" * 500)
    program.prospects.grad = True
    program.run("aaaaA" + "a" * 500 + "A")
    assert [source for source, _ in program.finish()] == ["optimizer"] * 2


def test_inference_before_training_keeps_its_steps() -> None:
    """Steps that calls ended before an optimizer existed stay, and the numbers go on."""
    program = Program()
    program.run("aaaa aA aA")
    assert [source for source, _ in program.finish()] == ["call"] * 4 + ["optimizer"] * 2


def test_explicit_marks_win() -> None:
    """Once the loop marks its steps, that alone counts."""
    program = Program()
    program.run("A| A| A|")
    assert [source for source, _ in program.finish()] == ["step()"] * 3


def test_a_listener_that_marks_a_step_does_not_recurse() -> None:
    """Code that runs at the end of a step cannot end another one."""
    program = Program()
    program.session.step_listeners.append(lambda _step, _compiled: program.source.mark_step(1e9))
    program.run("A A")
    program.session.step_listeners.clear()
    assert len(program.finish()) == 2


def test_a_fork_leaves_the_steps_to_its_parent() -> None:
    """A forked child writes nothing that its parent will write."""
    program = Program()
    program.run("A A")
    program.source.handle_fork()
    program.source.finish(program.now)
    assert program.events == []


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> tuple[StepSource, list[Event]]:
    """A session that counts steps, without torch."""
    events: list[Event] = []
    one = StepSource(Session(events.append, origin=0.0), NoOptimizers(training=True), 0.0)
    monkeypatch.setattr(steps, "_active", (one,))
    return one, events


def test_the_run_decides_the_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """`compilediag run --steps N` lengthens and shortens the loop."""
    monkeypatch.setenv(VARIABLE, '{"steps": 5}')
    assert drive(lambda _: None, steps=3) == 5
    assert drive(lambda _: None, steps=60) == 5


def test_a_negative_number_is_refused() -> None:
    """In one sentence, before anything ran."""
    with pytest.raises(ValueError, match="0 or more"):
        drive(lambda _: None, steps=-1)


def test_each_call_is_a_step(source: tuple[StepSource, list[Event]]) -> None:
    """Also when an optimizer steps in it, once or several times."""
    one, events = source

    def train(_: int) -> None:
        for at in (0.0, 1.0):
            one.begin_optimizer(at)
            one.end_optimizer(1, at, at)

    drive(train, steps=4)
    one.finish(9.0)
    found = [event for event in events if isinstance(event, StepsEnded)]
    assert [event.source for event in found] == ["step()"] * len(found)
    assert sum(len(event.ends) for event in found) == 4


def test_marks_of_the_function_are_not_doubled(source: tuple[StepSource, list[Event]]) -> None:
    """A function that calls `step()` itself marks its own steps."""
    one, _ = source
    drive(lambda _: steps.step(), steps=4)
    assert one.clock.session.step == 4


def test_a_limit_does_not_cut_what_follows(monkeypatch, source) -> None:
    """With `--steps N` the loop ends by itself, and the lines after it run."""
    monkeypatch.setenv(VARIABLE, '{"steps": 2}')
    monkeypatch.setattr(steps, "step_limit", 2)
    assert drive(lambda _: None) == 2


def test_a_limit_stops_a_plain_loop(monkeypatch, source: tuple[StepSource, list[Event]]) -> None:
    """Like `sys.exit(0)` after the last step allowed: `except Exception` lets it pass."""
    monkeypatch.setattr(steps, "step_limit", 3)
    done: list[int] = []

    def train() -> None:
        for number in range(10):
            done.append(number)
            with contextlib.suppress(Exception):  # as a careful training loop may
                steps.step()

    with pytest.raises(SystemExit) as stopped:
        train()
    assert (stopped.value.code, done) == (0, [0, 1, 2])
