"""Phases of a step: every second once, nested or not, and never more than the step took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compilediag_harness.steps.phases import MAX_INTERVALS, PhasesInProgress
from compilediag_harness.user_api.spans import BACKWARD, DATA_WAIT, FORWARD, NAMES, OPTIMIZER, SPANS


def seconds(phases: PhasesInProgress, at: float) -> dict[str, float]:
    """The phases that have time, when the step ends at `at`."""
    return {name: taken for name, taken in zip(NAMES, phases.cut_step(at), strict=True) if taken}


def played(*intervals: tuple[int, float, float]) -> PhasesInProgress:
    """Phases as (phase, begin, end), told as they are: a span or an optimizer when it has ended."""
    phases = PhasesInProgress()
    phases.restart(0.0)
    moments = [(at, at == each[1], each) for each in intervals for at in each[1:]]
    for at, begins, (phase, begin, _) in sorted(moments):
        if phase not in (SPANS, OPTIMIZER):
            (phases.open if begins else phases.close)(phase, at)
        elif not begins:
            phases.add(phase, begin, at)
    return phases


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        pytest.param(
            ((DATA_WAIT, 0, 4), (FORWARD, 10, 14), (BACKWARD, 20, 24), (OPTIMIZER, 30, 31)),
            {"data_wait": 4.0, "forward": 4.0, "backward": 4.0, "optimizer": 1.0},
            id="one after another",
        ),
        pytest.param(  # and one parameter's own optimizer, in a hook of its gradient
            ((FORWARD, 1, 3), (BACKWARD, 3, 6), (OPTIMIZER, 4, 5), (OPTIMIZER, 0, 10)),
            {"forward": 2.0, "backward": 2.0, "optimizer": 6.0},
            id="an optimizer that runs a closure has only the rest of its step",
        ),
        pytest.param(
            ((FORWARD, 0, 10), (SPANS, 1, 3), (FORWARD, 11, 12), (SPANS, 10.5, 14.5)),
            {"forward": 8.0, "spans": 6.0},
            id="a span has all of its time, inside of a forward and around one",
        ),
        pytest.param(((SPANS, 1, 2), (SPANS, 0, 3)), {"spans": 3.0}, id="spans in spans"),
        pytest.param(
            ((DATA_WAIT, 0, 5), (FORWARD, 1, 2), (SPANS, 3, 4)),
            {"data_wait": 4.0, "spans": 1.0},
            id="waiting is waiting when the data set runs a model, but a span is a span",
        ),
        pytest.param(
            ((BACKWARD, 0, 3), (FORWARD, 1, 2)), {"backward": 3.0}, id="activations computed again"
        ),
        pytest.param(
            ((FORWARD, 0, 3), (FORWARD, 1, 2)), {"forward": 3.0}, id="nested calls of one phase"
        ),
        pytest.param(
            ((BACKWARD, 0, 2), (DATA_WAIT, 1, 3)),
            {"backward": 2.0},
            id="a phase that an exception left open ends with the one that it was opened in",
        ),
    ],
)
def test_every_second_has_one_phase(intervals, expected) -> None:
    phases = played(*intervals)
    assert seconds(phases, 50.0) == expected
    assert seconds(phases, 60.0) == {}


def test_a_span_that_holds_steps_is_no_phase() -> None:
    """`with span("epoch")` around the loop leaves the steps as they are."""
    phases = PhasesInProgress()
    phases.open(FORWARD, 1.0)
    phases.close(FORWARD, 2.0)
    assert seconds(phases, 3.0) == {"forward": 1.0}
    phases.add(SPANS, 0.5, 4.0)
    assert seconds(phases, 5.0) == {}


def test_what_was_before_the_first_step_is_left_out() -> None:
    """A span that begins in the start-up and ends in the first step has its part of it."""
    phases = PhasesInProgress()
    phases.add(SPANS, 1.0, 2.0)
    phases.restart(10.0)
    phases.add(SPANS, 5.0, 12.0)
    assert seconds(phases, 13.0) == {"spans": 2.0}


def test_a_step_that_was_none_gives_its_phases_back() -> None:
    """And what goes on after it is not counted a second time."""
    phases = PhasesInProgress()
    phases.open(BACKWARD, 0.0)
    taken = phases.cut_step(4.0)
    phases.give_back(taken)
    phases.close(BACKWARD, 6.0)
    assert seconds(phases, 8.0) == {"backward": 6.0}


def test_a_phase_that_was_seen_is_told() -> None:
    """None of its seconds, in a step without it, is a measurement."""
    phases = PhasesInProgress()
    phases.add(OPTIMIZER, 0.0, 1.0)
    assert phases.seen == [name == "optimizer" for name in NAMES]


@pytest.mark.parametrize(
    ("began", "name"), [(0.5, "rest"), (1.5, "forward"), (2.5, "backward"), (2.0, "backward")]
)
def test_the_phase_something_is_in(began: float, name: str) -> None:
    """The innermost that was open when it began."""
    phases = PhasesInProgress()
    phases.open(FORWARD, 1.0)
    phases.open(BACKWARD, 2.0)
    assert phases.get_name_at(began) == name


def test_the_memory_of_a_long_step_is_bounded() -> None:
    """Thousands of micro-batches in one step, and all of their time."""
    phases = PhasesInProgress()
    for number in range(5000):
        phases.open(FORWARD, number)
        phases.close(FORWARD, number + 0.5)
        assert len(phases._intervals) <= MAX_INTERVALS  # pyright: ignore[reportPrivateUsage]
    assert seconds(phases, 5000.0) == {"forward": 2500.0}


MOMENTS = st.integers(0, 40)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "close", "add", "cut", "back"]),
        st.integers(DATA_WAIT, SPANS),
        MOMENTS,
    ),
    max_size=60,
)


@given(ACTIONS)
def test_never_more_than_the_step_took(actions: list[tuple[str, int, int]]) -> None:
    """Whatever nests, overlaps or is left open: the phases of a step fit into it."""
    phases, now, began = PhasesInProgress(), 0.0, 0.0
    phases.restart(0.0)
    for action, phase, moments in actions:
        now += moments
        if action == "open":
            phases.open(phase, now)
        elif action == "close":
            phases.close(phase, now)
        elif action == "add":
            phases.add(phase, now - 2 * moments, now)
        else:
            taken = phases.cut_step(now)
            assert min(taken) >= 0.0
            assert sum(taken) <= now - began
            if action == "back":
                phases.give_back(taken)
            else:
                began = now
    assert sum(phases.cut_step(now)) <= now - began


NESTED = st.lists(
    st.tuples(
        st.sampled_from(["phase", "span", "end", "end", "cut"]),
        st.sampled_from([DATA_WAIT, FORWARD, OPTIMIZER]),
        st.integers(1, 9),
    ),
    max_size=80,
)


def name_of(phases: PhasesInProgress, span: tuple[int, float, float]) -> str:
    """The phase that a span was in."""
    return phases.find_holding(*span[1:]) or phases.get_name_at(span[1])


@given(NESTED)
def test_spans_may_be_told_when_the_step_ends(actions: list[tuple[str, int, int]]) -> None:
    """Told at once or all together before the cut: every phase and every name is the same."""
    at_once, later = PhasesInProgress(), PhasesInProgress()
    at_once.restart(0.0)
    later.restart(0.0)
    now, waiting, names, names_later = 0.0, list[tuple[int, float, float]](), [], []
    opened: list[tuple[str, int, float]] = []

    def cut() -> None:
        names_later.extend(name_of(later, span) for span in waiting)
        later.add_spans(waiting)
        waiting.clear()
        assert at_once.cut_step(now) == pytest.approx(later.cut_step(now))
        assert at_once.seen == later.seen

    for action, phase, moments in actions:
        now += moments
        if action == "cut":
            cut()
        elif action != "end":
            opened.append((action, phase, now))
            if action == "phase":
                at_once.open(phase, now)
                later.open(phase, now)
        elif opened:
            kind, ended, began = opened.pop()
            if kind == "phase":
                at_once.close(ended, now)
                later.close(ended, now)
            else:
                span = (SPANS, began, now)
                names.append(name_of(at_once, span))
                at_once.add_spans([span])
                waiting.append(span)
    cut()
    assert names == names_later


def test_spans_are_asked_for_before_a_long_step_is_taken_apart() -> None:
    """However many phases end in one step, those in a span are the span's."""
    phases = PhasesInProgress()
    phases.before_flattening = lambda: phases.add_spans([(SPANS, 0.0, 2.0)])
    for number in range(MAX_INTERVALS + 1):
        phases.open(FORWARD, number)
        phases.close(FORWARD, number + 0.5)
    assert seconds(phases, MAX_INTERVALS + 1.0) == {
        "forward": (MAX_INTERVALS - 1) / 2,
        "spans": 2.0,
    }
