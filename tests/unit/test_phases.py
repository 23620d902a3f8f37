"""Phases of a step: every second once, nested or not, and never more than the step took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compilediag_harness.steps.phases import KEPT, PhasesInProgress
from compilediag_harness.user_api.spans import (
    BACKWARD,
    DATA_WAIT,
    FORWARD,
    NAMES,
    OPTIMIZER,
    SPANS,
)


def seconds(phases: PhasesInProgress, at: float) -> dict[str, float]:
    """The phases that have time, when the step ends at `at`."""
    return {name: taken for name, taken in zip(NAMES, phases.cut(at), strict=True) if taken}


def test_one_after_another() -> None:
    """Each phase has its own time; what is between them is nobody's."""
    phases = PhasesInProgress()
    phases.restart(0.0)
    for place, phase in enumerate((DATA_WAIT, FORWARD, BACKWARD)):
        phases.open(phase, 10.0 * place)
        phases.close(phase, 10.0 * place + 4.0)
    phases.add(OPTIMIZER, 30.0, 31.0)
    assert seconds(phases, 40.0) == {
        "data_wait": 4.0,
        "forward": 4.0,
        "backward": 4.0,
        "optimizer": 1.0,
    }
    assert seconds(phases, 50.0) == {}


def test_the_innermost_has_the_time() -> None:
    """An optimizer that runs forward and backward in its closure has only the rest of its step."""
    phases = PhasesInProgress()
    phases.open(FORWARD, 1.0)
    phases.close(FORWARD, 3.0)
    phases.open(BACKWARD, 3.0)
    phases.add(OPTIMIZER, 4.0, 5.0)  # one parameter's own optimizer, in a hook of its gradient
    phases.close(BACKWARD, 6.0)
    phases.add(OPTIMIZER, 0.0, 10.0)
    assert seconds(phases, 10.0) == {"forward": 2.0, "backward": 2.0, "optimizer": 6.0}


def test_a_span_has_all_of_its_time() -> None:
    """Inside of a forward, and around one."""
    phases = PhasesInProgress()
    phases.open(FORWARD, 0.0)
    phases.add(SPANS, 1.0, 3.0)
    phases.close(FORWARD, 10.0)
    phases.open(FORWARD, 11.0)
    phases.close(FORWARD, 12.0)
    phases.add(SPANS, 10.5, 14.5)
    assert seconds(phases, 20.0) == {"forward": 8.0, "spans": 6.0}


def test_spans_in_spans_count_once() -> None:
    """The outer one has the time of both."""
    phases = PhasesInProgress()
    phases.add(SPANS, 1.0, 2.0)
    phases.add(SPANS, 0.0, 3.0)
    assert seconds(phases, 3.0) == {"spans": 3.0}


def test_waiting_for_a_batch_is_waiting() -> None:
    """Also when the data set runs a model; but a span in it is a span."""
    phases = PhasesInProgress()
    phases.open(DATA_WAIT, 0.0)
    phases.open(FORWARD, 1.0)
    phases.close(FORWARD, 2.0)
    phases.add(SPANS, 3.0, 4.0)
    phases.close(DATA_WAIT, 5.0)
    assert seconds(phases, 5.0) == {"data_wait": 4.0, "spans": 1.0}


def test_a_forward_in_a_backward_is_backward() -> None:
    """Activations that are computed again."""
    phases = PhasesInProgress()
    phases.open(BACKWARD, 0.0)
    phases.open(FORWARD, 1.0)
    phases.close(FORWARD, 2.0)
    phases.close(BACKWARD, 3.0)
    assert seconds(phases, 3.0) == {"backward": 3.0}


def test_nested_calls_of_one_phase_count_once() -> None:
    """A compiled call from a disabled function inside another one."""
    phases = PhasesInProgress()
    phases.open(FORWARD, 0.0)
    phases.open(FORWARD, 1.0)
    phases.close(FORWARD, 2.0)
    phases.close(FORWARD, 3.0)
    assert seconds(phases, 3.0) == {"forward": 3.0}


def test_a_phase_over_the_end_of_a_step() -> None:
    """Each step has its part, where the step ends inside a phase."""
    phases = PhasesInProgress()
    phases.open(BACKWARD, 1.0)
    phases.add(OPTIMIZER, 2.0, 3.0)
    assert seconds(phases, 3.0) == {"backward": 1.0, "optimizer": 1.0}
    phases.close(BACKWARD, 5.0)
    assert seconds(phases, 6.0) == {"backward": 2.0}


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


def test_an_exception_that_nobody_told_us_of() -> None:
    """A phase that was opened in another and never closed ends with it."""
    phases = PhasesInProgress()
    phases.open(BACKWARD, 0.0)
    phases.open(DATA_WAIT, 1.0)
    phases.close(BACKWARD, 2.0)
    phases.close(DATA_WAIT, 3.0)
    assert seconds(phases, 4.0) == {"backward": 2.0}


def test_a_step_that_was_none_gives_its_phases_back() -> None:
    """And what goes on after it is not counted a second time."""
    phases = PhasesInProgress()
    phases.open(BACKWARD, 0.0)
    taken = phases.cut(4.0)
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
    assert phases.name_at(began) == name


def test_the_memory_of_a_long_step_is_bounded() -> None:
    """Thousands of micro-batches in one step, and all of their time."""
    phases = PhasesInProgress()
    for number in range(5000):
        phases.open(FORWARD, number)
        phases.close(FORWARD, number + 0.5)
        assert len(phases._intervals) <= KEPT  # pyright: ignore[reportPrivateUsage]
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
            taken = phases.cut(now)
            assert min(taken) >= 0.0
            assert sum(taken) <= now - began
            if action == "back":
                phases.give_back(taken)
            else:
                began = now
    assert sum(phases.cut(now)) <= now - began


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
    return phases.holding(*span[1:]) or phases.name_at(span[1])


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
        assert at_once.cut(now) == pytest.approx(later.cut(now))
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
    for number in range(KEPT + 1):
        phases.open(FORWARD, number)
        phases.close(FORWARD, number + 0.5)
    assert seconds(phases, KEPT + 1.0) == {"forward": (KEPT - 1) / 2, "spans": 2.0}
