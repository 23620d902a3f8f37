"""Calls made again with other inputs, and where they are made."""

from dataclasses import replace
from typing import Any

import pytest

from compilediag.certify.calls import compare_calls
from compilediag.certify.other_inputs import (
    call_by_name,
    check_other_inputs,
    compare_varied_calls,
    find_boundary,
)
from compilediag.certify.points import ExecutedState, JudgedPoint
from compilediag_harness.wire import (
    BEYOND,
    GRAPH_USED_UP,
    NO_TIME_LEFT,
    CallersSeen,
    Location,
    VaryingEnded,
)
from tests.support.certified_states import FILE, calls, digest, state, varied
from tests.support.timelines import WHERE

RENAMED = Location(FILE, 30, "renamed")
SAME, SIZE = varied("as it was"), varied("size 4 → 1")


def judge(
    before: ExecutedState, after: ExecutedState, *, vary: bool = True, unread: tuple[str, ...] = ()
) -> JudgedPoint:
    calls = compare_calls(before.timeline, after.timeline)
    found = compare_varied_calls(before, after, calls)
    return check_other_inputs(before, after, found, varied=vary, unread=unread)


def test_equal_calls_and_what_they_compile() -> None:
    old = state(SAME, varied("size 4 → 1", compiles=1), varied("gradients off", compiles=2))
    new = state(SAME, SIZE, varied("gradients off", compiles=1))
    point = judge(old, new)
    assert point.outcome == "holds"
    again = "2 of them compile again before, 1 after"
    assert point.sentence == f"2 varied calls: all equal; {again}"
    assert "compiles again before: size 4 → 1, gradients off" in point.details
    assert [(f.before, f.after) for f in point.figures] == [(2.0, 2.0), (2.0, 1.0)]
    # As where an edit makes a graph static that was dynamic.
    assert judge(new, old).sentence.endswith("before, 2 after (only after: size 4 → 1)")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (varied("size 4 → 1", 2.0), "forward (training), size 4 → 1: returns something else"),
        (varied("size 4 → 1", None), "size 4 → 1: raises only after: RuntimeError: no"),
        (varied("size 4 → 1", structure="(float32[4])"), "returns (float32[4,8]) → (float32[4])"),
        (
            varied("size 4 → 1", structure="(float32[4,8]); gradients through [0]"),
            "gradients through",
        ),
    ],
)
def test_a_difference_fails(after: Any, words: str) -> None:
    point = judge(state(SAME, SIZE), state(SAME, after))
    assert point.outcome == "fails"
    assert words in point.sentence


@pytest.mark.parametrize(("draws", "outcome"), [("1", "fails"), ("2", "undecided")])
def test_what_draws_other_numbers_is_not_decided(draws: str, outcome: str) -> None:
    """Dropout of what is padded, in a mode that no call had."""
    old, new = varied("training"), varied("training", 2.0)
    old, new = replace(old, draws=(("torch", "1"),)), replace(new, draws=(("torch", draws),))
    assert judge(state(SAME, old), state(SAME, new)).outcome == outcome


def test_what_raises_with_gradients_alone_that_no_call_had_is_not_decided() -> None:
    """A cache that is written in place is right for a program that never wants a gradient."""
    mode = "gradients on"
    point = judge(state(SAME, SIZE, varied(mode)), state(SAME, SIZE, varied(mode, None)))
    assert point.outcome == "undecided"
    assert "gradients on, which it did not have: raises only after" in point.sentence
    both = judge(state(SAME, SIZE, varied(mode)), state(SAME, SIZE, varied(mode, 2.0)))
    assert both.outcome == "fails"


@pytest.mark.parametrize("value", [2.0, None])
def test_a_call_that_differs_as_it_was_is_not_compared_with_other_inputs(value: Any) -> None:
    """The state at the end is not that in which the program made it: a counter that was raised."""
    again = varied("as it was", number=4)
    old = state(SAME, SIZE, again, varied("size 4 → 1", number=4))
    new = state(
        varied("as it was", value), varied("size 4 → 1", 2.0), *old.timeline.varied_calls[2:]
    )
    point = judge(old, new)
    assert point.outcome == "undecided"
    assert "it has other arguments, or reads what has changed since" in point.sentence
    wrong = state(*new.timeline.varied_calls[:3], varied("size 4 → 1", 2.0, number=4))
    assert judge(old, wrong).outcome == "fails"


@pytest.mark.parametrize(
    ("given", "value", "words"),
    [
        (("x: float32[4]", "k: int"), 1.0, "its argument k is given after only"),
        (("x: float32[8]",), 1.0, "its argument x is float32[4] → float32[8]"),
        (("x: float32[4]",), 1.5, "its argument x has other values (its digest by 0.3)"),
        (("x: float32[4]",), 1.0, "its arguments are equal: it reads state that differs"),
        ((), 1.0, "it has other arguments, or reads what has changed since"),
    ],
)
def test_why_a_call_differs_as_it_was_is_said(
    given: tuple[str, ...], value: float, words: str
) -> None:
    old = varied("as it was", given=("x: float32[4]",), given_digests=(digest(1.0),))
    digests = tuple(digest(value) for _ in given)
    new = varied("as it was", 2.0, given=given, given_digests=digests)
    assert words in judge(state(old, SIZE), state(new, SIZE)).sentence


def test_a_backward_pass_that_leaves_the_call_is_said() -> None:
    """Of a loss that the old state returned with its graph used up nothing else is known."""
    old = varied("as it was", structure=f"float32[]; {GRAPH_USED_UP}")
    new = varied("as it was", structure="float32[]; gradients through it")
    said = "its backward pass runs inside of it before only: call both from one function"
    assert said in judge(state(old, SIZE), state(new, SIZE)).sentence
    assert judge(state(old, SIZE), state(old, SIZE)).outcome == "holds"


def test_an_argument_that_the_new_state_gives_no_more_is_not_decided() -> None:
    """What became of it is somewhere else, where no other values of it are tried."""
    given = varied("as it was", given=("x: float32[4]", "k: int", "mask: None"))
    values = varied("values of k + 1")
    lost = varied("as it was", given=("x: float32[4]",))
    point = judge(state(given, values, SIZE), state(lost, SIZE))
    assert point.outcome == "undecided"
    assert "its argument k is given before only" in point.sentence
    now = varied("as it was", given=("x: float32[4]", "k: float32[]"))
    assert judge(state(given, values, SIZE), state(now, values, SIZE)).outcome == "holds"
    wrong = state(lost, varied("size 4 → 1", 2.0))
    assert judge(state(given, SIZE), wrong).outcome == "fails"


def test_an_argument_of_another_size_is_given_otherwise_though_the_call_returns_the_same() -> None:
    """What is padded, and reduced to a number: no variation of one state is one of the other."""
    short, long, both = (
        varied("as it was", given=(f"x: {its}",), given_digests=(digest(value),))
        for its, value in (("float32[4,2]", 1.0), ("float32[8,2]", 1.5), ("float32[]", 1.0))
    )
    other = varied("values of x reversed", 2.0)
    old = state(short, varied("values of x reversed"), SIZE)
    point = judge(old, state(long, other))
    assert point.outcome == "undecided"
    assert "its argument x is float32[4,2] → float32[8,2]; make the boundary" in point.sentence
    number = state(varied("as it was", given=("x: float",), given_digests=(digest(1.0),)), SIZE)
    assert judge(state(both, SIZE), number).outcome == "holds"


def test_an_argument_that_is_new_does_not_follow_the_others() -> None:
    """A size that the program computes from the data now, and passes on."""
    before = varied("as it was", given=("x: float32[4]",))
    after = varied("as it was", given=("x: float32[4]", "size: int"))
    assert judge(state(before, SIZE), state(after, SIZE)).outcome == "holds"
    point = judge(state(before, SIZE), state(after, varied("size 4 → 1", None)))
    assert point.outcome == "undecided"
    assert "its argument size is given after only, and does not follow" in point.sentence


def test_a_size_that_was_broadcast_is_none_of_the_program() -> None:
    """The old state takes 1 in place of what it had, and no other size."""
    old = state(SAME, SIZE, varied("size 4 → 5", None), varied("gradients off"))
    new = state(
        SAME, varied("size 4 → 1", None), varied("size 4 → 5", None), varied("gradients off")
    )
    point = judge(old, new)
    assert (point.outcome, point.figures[0].before) == ("holds", 1.0)
    general = state(SAME, SIZE, varied("size 4 → 5"), varied("gradients off"))
    assert judge(general, new).outcome == "fails"


def test_a_size_beyond_the_run_says_nothing_of_one_that_was_broadcast() -> None:
    alone = f"{BEYOND}size 4 of x → 5"
    old = state(SAME, SIZE, varied("size 4 → 5", None), varied(alone))
    new = state(SAME, varied("size 4 → 1", None), varied("size 4 → 5", None), varied(alone))
    assert judge(old, new).outcome == "holds"


def test_a_difference_beyond_the_run_is_not_decided() -> None:
    """The program may never have that; what raised before was not supported."""
    name = f"{BEYOND}bfloat16"
    old = state(SAME, SIZE, varied(name))
    for after in (varied(name, 2.0), varied(name, structure="(float64[4])")):
        point = judge(old, state(SAME, SIZE, after))
        assert point.outcome == "undecided"
        assert "forward (training), beyond the run: bfloat16, which no call had: " in point.sentence
        assert "all others are equal; an error that the new state raises there" in point.sentence
    assert judge(state(SAME, SIZE, varied(name, None)), old).outcome == "holds"
    assert judge(state(SAME, SIZE), old).outcome == "holds"


def test_what_raises_beyond_the_run_is_a_limit_that_is_said() -> None:
    """A buffer that grew is allocated once; a silent difference is not decided."""
    name = f"{BEYOND}size 4 → 257"
    old = state(SAME, SIZE, varied(name))
    point = judge(old, state(SAME, SIZE, varied(name, None)))
    assert point.outcome == "holds"
    said = "1 varied call: all equal; with size 4 → 257, which no call had, it raises only after"
    assert point.sentence == said
    assert "with size 4 → 257, which no call had, it raises only after" in point.details
    assert judge(old, state(SAME, SIZE, varied(name, 2.0))).outcome == "undecided"


@pytest.mark.parametrize("is_new_size", [True, False])
def test_what_the_program_refuses_above_all_sizes_that_it_had_is_a_limit(is_new_size: bool) -> None:
    """A length to which everything is padded: who gives more is told so."""
    old, refused, raised = (
        state(SAME, SIZE, varied("size 4 → 8", value, is_new_size=is_new_size, is_refused=refused))
        for value, refused in ((1.0, False), (None, True), (None, False))
    )
    point = judge(old, refused)
    assert point.outcome == "holds"
    assert point.sentence.endswith("with size 4 → 8, which no call had, it raises only after")
    assert judge(old, raised).outcome != "holds"
    less = varied(f"{BEYOND}bfloat16", None)
    both = state(SAME, SIZE, less, *refused.timeline.varied_calls[2:])
    more = judge(state(*old.timeline.varied_calls, varied(f"{BEYOND}bfloat16")), both)
    assert more.sentence.endswith("size 4 → 8, which no call had, it raises only after, and 1 more")
    assert judge(refused, old).outcome == "fails"


def test_half_precision_rounds_in_both_states() -> None:
    """By as much as the old state's against itself; a number that is kept is read as coarsely."""

    def outcome(old: float, new: float, *kept: float) -> str:
        made = [
            varied(f"{BEYOND}bfloat16", value, structure="bfloat16[4]", numbers=(("mean", number),))
            for value, number in zip((old, new), kept or (1.0, 1.0), strict=True)
        ]
        return judge(*(state(SAME, SIZE, its) for its in made)).outcome

    assert outcome(1.1, 1.25) == "holds"
    assert outcome(1.0, 1.2) == "undecided", "the old state rounds by nothing"
    assert outcome(1.0, 1.0, 1.0, 1.01) == "holds"
    assert outcome(1.0, 1.0, 1.0, 2.0) == "undecided"


def test_a_value_that_is_nothing_but_what_half_precision_rounds_is_not_compared() -> None:
    """As the gradient of a softmax, whose terms cancel. Nor does it count as equal."""
    name = f"{BEYOND}bfloat16"
    old, new = (
        state(SAME, SIZE, varied(name, value, structure="bfloat16[4]")) for value in (9.0, 11.0)
    )
    point = judge(old, new)
    assert (point.outcome, point.figures[0].before) == ("holds", 1.0)
    assert [its for its in point.details if its.endswith("half precision changes it as much")]
    # Where the new state has nothing of it, the old one had code for that dtype.
    plain = state(SAME, SIZE, varied(name, 1.0, structure="bfloat16[4]"))
    assert judge(old, plain).outcome == "undecided"


def test_what_raises_for_a_size_that_no_call_varied_is_not_decided() -> None:
    """A cache for a batch of one, as all of its calls had."""
    old, raises, other = (
        state(SAME, varied("size 1 → 16", value, is_new_size=True)) for value in (1.0, None, 2.0)
    )
    point = judge(old, raises)
    assert point.outcome == "undecided"
    assert "size 1 → 16, which no call had: raises only after: " in point.sentence
    assert judge(old, other).outcome == "fails"
    assert judge(raises, old).outcome == "undecided", "nothing else is compared"
    assert (
        judge(state(SAME, SIZE, raises.timeline.varied_calls[-1]), state(SAME, SIZE)).outcome
        == "holds"
    )


def test_other_values_that_differ_by_little_are_not_decided_where_the_rest_is_exact() -> None:
    """A clamp that cuts off a ten-thousandth: rounding would be in the other calls, too."""
    name = "values of .step × 1e6"
    old, new = state(SAME, SIZE, varied(name)), state(SAME, SIZE, varied(name, 1.000015))
    point = judge(old, new)
    assert point.outcome == "undecided"
    assert "step × 1e6: differs by little more than rounding" in point.sentence
    rounded = state(
        varied("as it was", 1.000001), varied("size 4 → 1", 1.000001), varied(name, 1.000015)
    )
    assert judge(old, rounded).outcome == "holds"


def test_a_count_that_is_left_otherwise_is_a_difference() -> None:
    """One that a state alone writes is compared at the end of the program, if anywhere."""
    name = "values of .step + 1"
    old, new = (state(SAME, varied(name, numbers=(("step", n),))) for n in (0.0, 5.0))
    assert judge(old, old).outcome == "holds"
    point = judge(old, new)
    assert (point.outcome, "leaves step at 0.0 → 5.0" in point.sentence) == ("fails", True)
    assert judge(old, state(SAME, varied(name))).outcome == "holds"
    endless = state(SAME, varied(name, numbers=(("step", None),)))
    assert judge(endless, endless).outcome == "holds"
    assert judge(old, endless).outcome == "fails"


def test_a_result_in_the_memory_of_another_tensor_is_a_difference() -> None:
    """What the caller writes into it is written there, too; a copy is no worse than a view."""
    view = varied("size 4 → 1", memory=("what it returns is expanded",))
    point = judge(state(SAME, SIZE), state(SAME, view))
    assert point.outcome == "fails"
    assert "what it returns is expanded, which it was not" in point.sentence
    assert judge(state(SAME, view), state(SAME, SIZE)).outcome == "holds"


def test_a_tensor_that_is_replaced_where_it_was_written_in_place_is_not_decided() -> None:
    """What is tied to it, or holds it under another name, has the former values."""
    name = "module 0 embed"
    old, new = varied("size 4 → 1", written=(name,)), varied("size 4 → 1", replaced=(name,))
    point = judge(state(SAME, old), state(SAME, new))
    assert point.outcome == "undecided"
    assert "module 0 embed is written to before only; another tensor is put" in point.sentence
    assert judge(state(SAME, new), state(SAME, old)).outcome == "holds"
    assert judge(state(SAME, SIZE), state(SAME, new)).outcome == "holds"


def test_a_value_that_raised_before_is_not_compared() -> None:
    """A number divides by zero where a tensor gives what is not finite."""
    old, new = varied("values of step zero", None), varied("values of step zero")
    point = judge(state(SAME, SIZE, old), state(SAME, SIZE, new))
    assert (point.outcome, point.figures[0].before) == ("holds", 1.0)
    assert judge(state(SAME, SIZE, new), state(SAME, SIZE, old)).outcome == "fails"


def test_what_is_not_finite_for_other_values_in_one_state_is_not_decided() -> None:
    """A division by zero that a minimum hid: perhaps no value that the program has."""
    values = "values of sigma zero"
    finite, other = varied(values), varied(values, digest=(digest(1.0, exact=9),))
    point = judge(state(SAME, SIZE, finite), state(SAME, SIZE, other))
    assert point.outcome == "undecided"
    assert "sigma zero: what is not finite in one state is in the other" in point.sentence
    integers = [replace(its, structure="(float32[4], int64[4])") for its in (finite, other)]
    assert judge(state(SAME, SIZE, integers[0]), state(SAME, SIZE, integers[1])).outcome == "fails"


def test_why_no_call_was_made_again_is_said() -> None:
    ends = (VaryingEnded(9.0, 1.0, ("every call: ranks wait; --no-vary leaves this out",)),)
    point = judge(state(), state(varying_ends=ends))
    assert point.sentence.endswith(
        "in both states: every call: ranks wait; --no-vary leaves this out"
    )


CACHE = "(float32[4,8], Cache{.layers=list([0]=Layer{.keys=float32[2,3]}), .seen=int})"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((SAME,), (SAME,)),
        ((), ()),
        ((SAME, varied("a", None)), (SAME, varied("a", None))),
        ((SAME, SIZE), (SAME,)),
        ((SIZE,), (varied("size 4 → 1", number=4),)),
        ((varied("a", structure="(opaque:Model)"),), (varied("a", structure="(opaque:Model)"),)),
        ((varied("a", structure="(None)"),), (varied("a", structure="(None)"),)),
        # Objects of which an edit keeps other attributes.
        ((varied("a", structure=CACHE),), (varied("a", structure=CACHE.replace("seen", "n")),)),
        ((SAME, SIZE), (SAME, varied("size 4 → 1", 1.00001))),  # rounding, or more
    ],
)
def test_what_covers_nothing_is_undecided(before: Any, after: Any) -> None:
    assert judge(state(*before), state(*after)).outcome == "undecided"


def test_what_is_given_nothing_has_no_other_inputs() -> None:
    same = varied("as it was", call="gradients; ")
    off = varied("gradients off", None, call="gradients; ")
    point = judge(state(same, off), state(same, off))
    assert point.outcome == "holds"
    assert point.sentence == "forward is given no arguments; called again it is equal"
    assert judge(state(same, SAME), state(same, SAME)).outcome == "undecided"
    assert (
        judge(state(same), state(varied("as it was", 2.0, call="gradients; "))).outcome
        == "undecided"
    )


def test_what_is_given_and_returns_nothing_is_no_proof_of_results() -> None:
    """A compiled step of an optimizer: what it leaves is compared as state."""
    nothing = varied("as it was", call="gradients; ", structure="(None, (), dict())")
    point = judge(state(nothing), state(nothing))
    assert (point.outcome, point.sentence) == (
        "stated",
        "forward is given no arguments and returns nothing",
    )
    opaque = varied("as it was", call="gradients; ", structure="(opaque:Model, (), dict())")
    for other in (opaque, varied("as it was", None, call="gradients; "), SAME):
        assert judge(state(nothing, other), state(nothing, other)).outcome == "undecided"


def test_what_is_not_covered_is_listed() -> None:
    ends = (VaryingEnded(9.0, 1.0, ("generate: an iterator",)),)
    point = judge(state(SAME, SIZE, varied("x = 2")), state(SAME, SIZE, varying_ends=ends))
    assert "only before: forward (training), x = 2" in point.details
    assert "left out after: generate: an iterator" in point.details


def test_the_arguments_that_have_the_varied_size_are_named() -> None:
    given = replace(SAME, given=("x: float32[4,8]", "mask: bool[8,4]", "n: int", "y: float32[8]"))
    point = judge(state(given, SIZE), state(given, varied("size 4 → 1", None)))
    assert point.sentence.startswith("forward (training), size 4 → 1 (of x, mask): raises only")


def test_what_ctrl_c_left_out_is_not_decided() -> None:
    ends = (VaryingEnded(9.0, 1.0, ("forward (training), size 4 → 2: Ctrl-C",), True),)
    point = judge(state(SAME, SIZE), state(SAME, SIZE, varying_ends=ends))
    assert point.outcome == "undecided"
    assert point.sentence == "1 varied call: all equal, the others were left out by Ctrl-C"


def test_calls_for_which_no_time_was_left_are_said_beside_those_that_are_equal() -> None:
    ends = (VaryingEnded(9.0, 1.0, (f"8 of 25 calls, {NO_TIME_LEFT} in 10 s",)),)
    point = judge(state(SAME, SIZE), state(SAME, SIZE, varying_ends=ends))
    assert point.outcome == "holds"
    assert point.sentence == (
        "1 varied call: all equal; left out: 8 of 25 calls, for which no time was left in 10 s"
    )


def test_other_functions_are_the_reason_where_no_call_is_in_both() -> None:
    """Not that time was left for some of their calls alone."""
    ends = (VaryingEnded(9.0, 1.0, (f"8 of 25 calls, {NO_TIME_LEFT} in 10 s",)),)
    moved = [replace(call, function=replace(RENAMED, file="/p/b.py")) for call in (SAME, SIZE)]
    point = judge(state(SAME, SIZE, varying_ends=ends), state(*moved))
    assert point.outcome == "undecided"
    assert point.sentence.endswith("forward is compiled before, renamed after")


def test_too_few_calls_decide_nothing() -> None:
    """Of two states the one that made fewer counts."""
    ends = [
        (VaryingEnded(9.0, 1.0, (f"{n} of 155 calls, {NO_TIME_LEFT} in 30 s",)),) for n in (116, 14)
    ]
    point = judge(*(state(SAME, SIZE, varying_ends=its) for its in ends))
    assert (point.outcome, "left out: 116 of 155 calls" in point.sentence) == ("undecided", True)


@pytest.mark.parametrize(
    ("label", "outcome"),
    [
        ("gradients off", "undecided"),
        ("values of x × 1e6", "undecided"),
        ("size 4 → 1", "holds"),
        (f"{BEYOND}dimension 1 of x: 4 → 257", "holds"),
    ],
)
def test_a_size_that_is_read_no_more_has_to_have_been_another_one(label: str, outcome: str) -> None:
    """As a factor of each weight's height and width, all of which were square."""
    other = state(SAME, varied(label))
    point = judge(other, other, unread=("muon.py:40",))
    assert point.outcome == outcome
    assert point.sentence.startswith("muon.py:40 is gone and read a size") == (outcome != "holds")
    assert judge(other, other).outcome == "holds"


def test_who_wants_no_varied_calls_is_told_so() -> None:
    point = judge(state(), state(), vary=False)
    assert (point.outcome, point.sentence) == (
        "stated",
        "not compared with other inputs (--no-vary)",
    )


def test_the_backend_measures_its_own_rounding() -> None:
    eager, own = varied("size 4 → 1"), "size 4 → 1, own backend"
    old = state(eager, varied(own, 1.0002))
    assert judge(old, state(eager, varied(own, 1.0005))).outcome == "holds"
    assert judge(old, state(eager, varied(own, 1.002))).outcome == "fails"
    assert judge(state(eager, varied(own)), state(eager, varied(own, 1.0005))).outcome == "fails"


@pytest.mark.parametrize(
    ("after", "outcome"),
    [(varied("size 4 → 1", 2.0), "undecided"), (varied("size 4 → 1", None), "fails")],
)
def test_states_that_rounding_may_have_moved_apart_decide_no_value(
    after: Any, outcome: str
) -> None:
    """The results are undecided too, so that nothing is proved by it."""
    old, new = state(calls(1.0), SAME, SIZE), state(calls(1.0002), SAME, after)
    found = replace(compare_calls(old.timeline, new.timeline), is_slow=True)
    tally = compare_varied_calls(old, new, found)
    point = check_other_inputs(old, new, tally, varied=True)
    assert point.outcome == outcome
    assert point.sentence.endswith("moved the states apart by then") == (outcome == "undecided")


def test_what_training_rounded_is_different_at_the_end_too() -> None:
    old = state(calls(1.0), SAME, SIZE)
    new = state(calls(1.0002), varied("as it was", 1.0005), SIZE)
    reference = state(calls(1.0001)).timeline
    found = compare_calls(old.timeline, new.timeline, reference)
    far = state(calls(1.0002), varied("as it was", 1.002), SIZE)
    for other, outcome in ((new, "holds"), (far, "undecided")):
        tally = compare_varied_calls(old, other, found)
        assert check_other_inputs(old, other, tally, varied=True).outcome == outcome
    equal = state(calls(1.0), *new.timeline.varied_calls)
    assert judge(state(calls(1.0), SAME, SIZE), equal).outcome == "undecided"


def test_a_callable_that_was_renamed_is_compared_with_itself() -> None:
    old = state(calls(1.0), SIZE)
    new = state(calls(1.0, function=RENAMED), varied("size 4 → 1", 2.0, function=RENAMED))
    assert judge(old, new).outcome == "fails"


def test_the_same_call_may_be_of_another_kind() -> None:
    kinds = ("training; float32[2d]", "training; float64[2d], float32[0d]")
    old, new = (state(varied("size 4 → 1", call=kind)) for kind in kinds)
    assert judge(old, new).outcome == "holds"
    other = state(varied("size 4 → 1", call=kinds[0], number=4))
    assert judge(old, other).outcome == "undecided"


@pytest.mark.parametrize(
    ("structure", "kind", "outcome"),
    [
        ("(float32[4,8])", "float32[2d], float32[0d]", "fails"),
        ("(float32[4,8], opaque:Cache)", "float32[2d]", "fails"),
        ("(float32[4,8], opaque:Cache)", "float32[2d], bool[4d]", "undecided"),
    ],
)
def test_a_size_of_other_arguments_is_another_one(structure: str, kind: str, outcome: str) -> None:
    """With a static cache a call has a mask, whose size is not that of what is varied."""
    old, new = (
        state(
            varied("as it was", structure=structure, call=call),
            varied("size 4 → 1", value, structure=structure, call=call),
        )
        for call, value in (("float32[2d]", 1.0), (kind, None))
    )
    assert judge(old, new).outcome == outcome


# --- boundaries -----------------------------------------------------------------------------------

INNER, OUTER = Location(FILE, 3, "Block.forward"), Location(FILE, 9, "Model.forward")
LOSS, LOSS_LATER = Location(FILE, 20, "compute_loss"), Location(FILE, 25, "compute_loss")
MAIN = Location(FILE, 40, "main")


def seen(function: Location, *callers: tuple[Location, tuple[str, ...]]) -> CallersSeen:
    names, parameters = zip(*callers, strict=True) if callers else ((), ())
    return CallersSeen(0.0, function, names, parameters)


def called(function: Location, *values: float, callers: tuple[CallersSeen, ...]) -> ExecutedState:
    return state(calls(*values, function=function), callers=callers)


def test_the_boundary_is_the_innermost_function_of_both() -> None:
    model = (OUTER, ("self", "x"))
    old = called(INNER, 1.0, 2.0, callers=(seen(INNER, model, (LOSS, ("model", "x")), (MAIN, ())),))
    new = called(RENAMED, 1.0, callers=(seen(RENAMED, (LOSS_LATER, ("model", "x")), (MAIN, ())),))
    assert find_boundary(old, new) == (LOSS, LOSS_LATER)
    more = ("model", "x", "longest")
    added = called(RENAMED, 1.0, callers=(seen(RENAMED, (LOSS_LATER, more), (MAIN, ())),))
    assert find_boundary(old, added) == (LOSS, LOSS_LATER)
    other = called(RENAMED, 1.0, callers=(seen(RENAMED, (LOSS_LATER, ("x",)), (MAIN, ())),))
    assert find_boundary(old, other) is None


def test_a_function_put_around_what_is_compiled_is_called_in_its_place() -> None:
    answer = Location(FILE, 50, "answer")
    given = varied("as it was", given=("request.tokens: float32[4]", "request.bias: None"))
    old = state(calls(1.0), given, callers=())
    above = seen(RENAMED, (answer, ("request",)), (MAIN, ()))
    scored = varied("as it was", function=RENAMED, given=("tokens: float32[9]",))
    new = state(calls(1.0, function=RENAMED), scored, callers=(above,))
    assert find_boundary(old, new) == (given.function, answer)
    assert find_boundary(new, old) == (answer, given.function)
    other = called(RENAMED, 1.0, callers=(seen(RENAMED, (answer, ("tokens",)), (MAIN, ())),))
    assert find_boundary(old, other) is None
    again = state(varied("as it was", 2.0), varied("as it was", 1.0, function=answer))
    (only,) = call_by_name(again, answer, given.function).timeline.varied_calls
    assert only == varied("as it was", 1.0)


def test_a_function_that_one_state_compiles_is_a_boundary() -> None:
    old = called(INNER, 1.0, 2.0, callers=(seen(INNER, (OUTER, ("self", "x"))),))
    new = called(OUTER, 1.0, callers=(seen(OUTER, (MAIN, ())),))
    assert find_boundary(old, new) == (OUTER, OUTER)
    assert find_boundary(new, old) == (OUTER, OUTER)


def test_calls_with_other_arguments_are_compared_at_the_boundary_above() -> None:
    above = seen(WHERE, (LOSS, ("model", "x")))
    old = called(WHERE, 1.0, 2.0, callers=(above,))
    padded = called(WHERE, 1.0, 2.0, 3.0, callers=(above,))
    old, padded = (
        state(*one.timeline.recorded_calls, *calls_again, callers=(above,))
        for one, calls_again in ((old, (SAME, SIZE)), (padded, (varied("as it was", 9.0), SIZE)))
    )
    point = judge(old, padded)
    assert point.outcome == "undecided"
    assert "it has other arguments, or reads what has changed since" in point.sentence
    assert find_boundary(old, padded) == (LOSS, LOSS)
    other = state(calls(1.0), SAME, callers=(above,))
    more = state(calls(1.0), varied("as it was", number=4), callers=(above,))
    assert find_boundary(other, more) == (LOSS, LOSS)


def test_a_callable_of_which_some_calls_are_given_the_same_is_compared_above_too() -> None:
    """As a model that is trained as ever, and generates with what is padded now."""
    above = seen(WHERE, (LOSS, ("model", "x")))
    trained = varied("as it was", call="evaluation; ", number=2)
    old = state(calls(1.0), SAME, trained, callers=(above,))
    new = state(calls(1.0), varied("as it was", 9.0), trained, callers=(above,))
    assert find_boundary(old, new) == (LOSS, LOSS)


def test_an_argument_that_is_new_is_compared_above_where_it_follows_nothing() -> None:
    """As a count that is given now, and which the function added to itself."""
    above, count = seen(WHERE, (LOSS, ("self", "x"))), "values of .count + 1"
    before, after = (
        varied("as it was", given=("x: float32[4]", *more)) for more in ((), ("count: float",))
    )
    old = state(calls(1.0), before, varied(count, 3.0), callers=(above,))
    new = state(calls(1.0), after, varied(count), callers=(above,))
    assert find_boundary(old, new) == (LOSS, LOSS)
    same = state(calls(1.0), after, varied(count, 3.0), callers=(above,))
    assert find_boundary(old, same) is None


def test_a_boundary_that_shows_nothing_is_not_decided_whatever_else_is_equal() -> None:
    """As an evaluation that only prints, beside a training that is the same."""
    nothing = varied("as it was", function=LOSS, structure="(None, (), dict())")
    one = state(calls(1.0), SAME, SIZE, nothing)
    assert judge(one, one).outcome == "undecided"
    given = varied("as it was", function=LOSS, given=("buffer: opaque:Replay", "size: int"))
    drawn = state(calls(1.0), SAME, SIZE, given)
    assert "it is given no tensor" in judge(drawn, drawn).sentence
    step = varied("as it was", function=WHERE, number=9, structure="(None, (), dict())")
    compiled = state(calls(1.0), SAME, SIZE, step)
    assert judge(compiled, compiled).outcome == "holds"


def test_calls_that_correspond_need_no_boundary() -> None:
    above = seen(WHERE, (LOSS, ("x",)))
    assert find_boundary(*[called(WHERE, 1.0, callers=(above,))] * 2) is None
