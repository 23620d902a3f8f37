"""The point "results" holds, fails, and is undecided."""

from typing import Any

import pytest

from compilediag.certify.calls import compare_calls
from compilediag.certify.points import ExecutedState, JudgedPoint
from compilediag.certify.results import check_results
from compilediag_harness.wire import MAIN, Location, RandomStateRead
from tests.support.certified_states import calls, held, number, printed, saved, state, tensor

MOVED = Location("/home/user/moved.py", 7, "Renamed.forward")
CALLS = calls(1.0, 2.0)
OPTIMIZER = held(tensor(".param_groups[0]['params'][0]", 1.0, 2.0), module="SGD", instance=1)


def judge(
    before: ExecutedState,
    after: ExecutedState,
    again: ExecutedState | None = None,
    eager: ExecutedState | None = None,
) -> JudgedPoint:
    return judge_further(before, after, again, eager)[0]


def judge_further(
    before: ExecutedState,
    after: ExecutedState,
    again: ExecutedState | None = None,
    eager: ExecutedState | None = None,
) -> tuple[JudgedPoint, str | None]:
    reference = None if eager is None else eager.timeline
    found = compare_calls(before.timeline, after.timeline, reference)
    return check_results(before, after, found, again, eager)


def test_all_results_are_equal() -> None:
    records = (CALLS, printed("loss 2.51"), saved(tensor("w", 1.0)), held(tensor(".w", 1.0)))
    point = judge(state(*records), state(*records))
    assert point.outcome == "holds"
    parts = "2 compiled calls, 1 printed line, 3 final values"
    assert point.sentence == f"equal: {parts}"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (CALLS, calls(1.0, 2.5), "call 1 of forward"),
        (printed("loss 1.0"), printed("loss 2.0"), "prints"),
        (printed("loss 1.0"), printed(), "no longer prints"),
        (saved(tensor("w", 1.0)), saved(tensor("w", 2.0)), "saved value model.pt w: 1 → 2"),
        (saved(tensor("w", 1.0)), saved(), "saved value model.pt w is gone"),
        (
            saved(tensor("w", 1.0)),
            saved(tensor("w", 1.0), tensor("v", 1.0)),
            "saved value model.pt v is new",
        ),
        (saved(tensor("w", 1.0)), printed(), "saved value model.pt is gone"),
        (
            saved(tensor("w", 1.0)),
            saved(tensor("w", 1.0), file="x.pt"),
            "saved value model.pt is gone",
        ),
        (
            saved(tensor("w", 1.0)),
            saved(tensor("w", 1.0, dtype="bfloat16")),
            "float32[1] → bfloat16[1]",
        ),
        (held(tensor(".w", 1.0, 2.0)), held(tensor(".w", 1.0, 3.0)), "state w: 2 → 3"),
        (held(number(".n", 1, "int")), held(number(".n", 2, "int")), "state n: 1 → 2"),
        (held(saved=("w",)), held(saved=("w", "n")), "state_dict() key n is new"),
        (held(saved=("w", "n")), held(saved=("w",)), "state_dict() key n is gone"),
        (
            RandomStateRead(9.0, (("torch", "a"),)),
            RandomStateRead(9.0, (("torch", "b"),)),
            "random numbers of torch: another state",
        ),
    ],
)
def test_a_difference_fails(before: Any, after: Any, words: str) -> None:
    more = [] if before is CALLS else [CALLS]
    point = judge(state(before, *more), state(after, *more))
    assert point.outcome == "fails"
    assert words in point.sentence


def test_other_draws_are_said_beside_another_result() -> None:
    """As where a pass of torch merges two equal draws, once they are in one graph."""
    draws = [RandomStateRead(9.0, (("random", "r"), ("torch", text))) for text in "ab"]
    point = judge(state(CALLS, draws[0]), state(calls(1.0, 2.5), draws[1]))
    assert "call 1 of forward" in point.sentence
    assert "the generators of torch end in another state" in point.sentence


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        (held(number(".n", 3, "int")), held(tensor(".n", 3.0, dtype="int64", shape=())), None),
        (held(number(".x", 0.1)), held(tensor(".x", 0.1 + 1e-9, dtype="float32")), None),
        (held(tensor(".x", 0.5, shape=())), held(tensor(".x", 0.5, shape=(1,))), None),
        (
            held(number(".old", 3, "int")),
            held(number(".new", 3, "int")),
            "state that is gone, not compared: .old",
        ),
        (held(), held(number(".new", 3, "int")), "state that is new, not compared: .new"),
        (
            held(tensor(".cos", 1.0, 2.0), saved=("w",)),
            held(tensor(".cos", 1.0, 2.0, 3.0), saved=("w",)),
            "state that is gone, not compared: .cos",
        ),
    ],
)
def test_harmless_changes_of_state_hold(before: Any, after: Any, note: str | None) -> None:
    point = judge(state(CALLS, before), state(CALLS, after))
    assert point.outcome == "holds", point.sentence
    assert note is None or note in point.details


def test_a_count_that_is_kept_no_more_is_not_decided() -> None:
    """What it would have done later nobody saw; under another name it may be kept."""
    old, none = state(CALLS, held(number(".n", 3, "int"))), state(CALLS, held())
    point, _ = check_results(
        old, none, compare_calls(old.timeline, none.timeline), None, None, uncounted={"n"}
    )
    assert point.outcome == "undecided"
    assert "state n is counted no more, and nothing else ends with its value, 3" in point.sentence
    for now in (number(".m", 3, "int"), tensor(".m", 3.0, dtype="int64", shape=())):
        new = state(CALLS, held(now))
        found = compare_calls(old.timeline, new.timeline)
        point, _ = check_results(old, new, found, None, None, uncounted={"n"})
        assert point.outcome == "holds"
    assert judge(old, none).outcome == "holds"


def test_a_saved_buffer_keeps_its_shape() -> None:
    old = held(tensor(".cos", 1.0, 2.0), saved=("cos",))
    new = held(tensor(".cos", 1.0, 2.0, 3.0), saved=("cos",))
    assert judge(state(CALLS, old), state(CALLS, new)).outcome == "fails"


def test_a_number_is_no_tensor_of_another_value() -> None:
    old = held(number(".n", 3, "int"))
    for other in (tensor(".n", 4.0, dtype="int64", shape=()), tensor(".n", 3.0, 3.0)):
        assert judge(state(CALLS, old), state(CALLS, held(other))).outcome == "fails"


@pytest.mark.parametrize(("value", "outcome"), [(2.0, "holds"), (2.5, "fails")])
def test_state_is_found_again_where_functions_moved(value: float, outcome: str) -> None:
    old = state(
        CALLS,
        held(
            tensor(".block.w", 1.0, 2.0),
            tensor(".block.v", 5.0, 6.0),
            number(".block.width", 2, "int"),
        ),
    )
    names = (tensor(".v", 5.0, 6.0), tensor(".w", 1.0, value), number(".width", 2, "int"))
    new = state(calls(1.0, 2.0, function=MOVED), held(*names, module="Block"))
    point = judge(old, new)
    assert point.outcome == outcome
    assert not any("state that is" in note for note in point.details)


# --- calls that do not correspond -----------------------------------------------------------------

FEWER = calls(1.0, function=MOVED, structure="(float32[8,8])")


def test_calls_that_do_not_correspond_are_judged_by_what_the_program_makes_of_them() -> None:
    line = printed("loss 2.51")
    assert judge(state(CALLS, line), state(FEWER, line)).outcome == "holds"
    assert judge(state(CALLS, line), state(FEWER, printed("loss 2.61"))).outcome == "fails"
    assert judge(state(CALLS, OPTIMIZER), state(FEWER, OPTIMIZER)).outcome == "holds"
    file = saved(tensor("w", 1.0))
    assert judge(state(CALLS, file), state(FEWER, file)).outcome == "holds"


def test_where_nothing_shows_what_calls_computed_nothing_is_decided() -> None:
    line = printed("done in 3 steps")
    point = judge(state(CALLS, line), state(FEWER, line))
    assert point.outcome == "undecided"
    assert "nothing printed or saved shows" in point.sentence
    assert judge(state(line), state(line)).outcome == "undecided"


def test_another_precision_fails_even_where_prints_are_equal() -> None:
    old = calls(1.0, structure="(float32[4], int)")
    new = calls(1.0, structure="(bfloat16[4], int, None)".replace(", None", ""))
    line = printed("loss 2.51")
    point = judge(state(old, line), state(new, line))
    assert (point.outcome, point.sentence) == (
        "fails",
        "another precision: call 0 of forward returns float32[4] → bfloat16[4]",
    )


# --- further executions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "further"),
    [
        ((calls(1.0),), (calls(1.0002),), "eager"),
        ((calls(1.0),), (calls(3.0),), "again"),  # from the first call on
        ((calls(1.0, 1.0),), (calls(1.0, 3.0),), None),
        ((CALLS, printed("a 1.0")), (CALLS, printed("a 2.0")), "again"),
        ((CALLS, held(tensor(".w", 1.0))), (CALLS, held(tensor(".w", 2.0))), "again"),
        ((CALLS, printed("a 1.0")), (FEWER, printed("a 1.0005")), "eager"),
        ((calls(1.0), printed("a 1.0")), (calls(1.0002), printed("a 1.5")), "eager"),
    ],
)
def test_what_could_decide(before: Any, after: Any, further: str | None) -> None:
    point, then = judge_further(state(*before), state(*after))
    assert (point.outcome, then) == ("fails", further)


def test_rounding_holds_by_eager() -> None:
    old, new = state(calls(1.0)), state(calls(1.0002))
    assert judge(old, new, eager=state(calls(1.0001))).outcome == "holds"
    refused, further = judge_further(old, new, eager=state(calls(1.0)))
    assert (refused.outcome, further) == ("fails", None)
    assert judge(old, new, eager=state(calls(2.0))).outcome == "undecided"


def test_what_follows_from_slow_growth_is_undecided_too() -> None:
    old = state(calls(1.0, 1.0), printed("a 1.01"), held(tensor(".w", 1.0)))
    new = state(calls(1.00001, 1.00004), printed("a 1.02"), held(tensor(".w", 1.1)))
    point, further = judge_further(old, new, eager=old)
    assert (point.outcome, further) == ("undecided", None)
    assert "begins as small as rounding" in point.sentence
    lost = state(calls(1.00001, 1.00004), held(tensor(".w", 1.1)))
    assert judge(old, lost, eager=old).outcome == "fails"


@pytest.mark.parametrize(("value", "outcome"), [(1.0000001, "undecided"), (1.0, "fails")])
def test_a_parameter_that_ends_apart_may_be_rounding_where_calls_round(
    value: float, outcome: str
) -> None:
    """As the bias of attention's keys, whose gradient is rounding alone: Adam steps by it."""
    old, new = (state(calls(its), held(tensor(".w", w))) for its, w in ((1.0, 1.0), (value, 1.01)))
    assert judge_further(old, new)[1] == "again"
    point, further = judge_further(old, new, again=old)
    assert (point.outcome, further) == (outcome, None)
    assert ('backend="eager" in both' in point.sentence) == (outcome == "undecided")


@pytest.mark.parametrize("structure", ["None", "(opaque:Cache)"])
def test_calls_that_return_nothing_to_compare_show_nothing(structure: str) -> None:
    call = calls(0.0, structure=structure)
    assert judge(state(call), state(call)).outcome == "undecided"
    assert judge(state(call, OPTIMIZER), state(call, OPTIMIZER)).outcome == "holds"


def test_state_is_rounded_by_eager_only_as_far_as_eager_is() -> None:
    old, new, eager = (
        state(calls(1.0 + x / 2), held(tensor(".w", 1.0 + x))) for x in (0.0, 3e-4, 2e-4)
    )
    assert judge(old, new, eager=eager).outcome == "holds"
    far = state(calls(1.0), held(tensor(".w", 1.0009)))
    assert judge(old, far, eager=eager).outcome == "fails"


def test_state_that_differs_when_unchanged_is_listed() -> None:
    values = tuple(tensor(f".w{n}", 1.0) for n in range(5))

    def make(seconds: float) -> ExecutedState:
        return state(CALLS, held(*values, number(".seconds", seconds)))

    point = judge(make(1.0), make(2.0), again=make(3.0))
    assert point.outcome == "holds"
    assert "not compared, differs when unchanged: state seconds" in point.details
    assert judge(make(1.0), make(2.0), again=make(1.0)).outcome == "fails"


def test_a_program_that_differs_from_itself_is_undecided() -> None:
    point = judge(state(CALLS), state(CALLS), again=state(calls(1.0, 5.0)))
    assert point.outcome == "undecided"
    assert "two executions of the old state differ" in point.sentence


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (tensor("y", 1.0, 2.0), tensor("y", -1.0, 2.0), "state y: 1 → -1"),
        (
            tensor("y", 1.0, 2.0),
            tensor("y", 1.0, 2.0, weighted=9.0, digest="o"),
            "the signs of its elements",
        ),
        (tensor("y", 1.0, 2.0), tensor("y", 1.0, 2.0, shape=(2, 1)), "float32[2] → float32[2, 1]"),
        (number("history[0]", 1.0), number("history[1]", 1.0), "history[0] is in one state alone"),
        (tensor("x", 1.0, 2.0), tensor("x", 1.0, 2.0, 0.0), None),  # padded
        (number("scale", 2.0), tensor("scale", 2.0), None),
        (number("mean", 2.0), number("mean", 2.000001), None),  # of float32, rounded
        (number("mean", 2.0), number("mean", 2.001), "state mean: 2 → 2.001"),
        (tensor("x", 0.1, dtype="float64"), tensor("x", 0.1, norm=0.1), None),
        (tensor("x", 0.1, dtype="float64"), tensor("x", 0.2, norm=0.2), "state x: 0.1 → 0.2"),
        (number("sizes[0]", 3, "int"), number("sizes[1]", 3, "int"), None),
        (number("rows", 2.0), number("helper", 3.0), None),
    ],
)
def test_a_name_of_the_program_that_ends_with_another_value_is_not_decided(
    before: Any, after: Any, words: str | None
) -> None:
    """No part of the program is known to use it again."""
    states = [state(CALLS, held(its, module=MAIN)) for its in (before, after)]
    point = judge(*states)
    assert point.outcome == ("holds" if words is None else "undecided")
    assert (words or "") in point.sentence
