"""Whether two runs computed the same."""

from dataclasses import replace
from typing import Any

import pytest

from compilediag.fixes.certificate import find_results, is_same_result
from compilediag.fixes.outputs import collect_exact_values, compare_outputs, find_unstable_state
from compilediag.rules.changes import DeclaredEffects, NumberAsTensor
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, OutputsSampled, SampledValue, StateRead

FUNCTION = Location("/p/model.py", 3, "Model.forward")


def tensor(
    *values: float | None, dtype: str = "float32", digest: str = "", **more: object
) -> SampledValue:
    known = [value for value in values if value is not None]
    facts = {
        "norm": sum(value * value for value in known) ** 0.5,
        "largest": max(map(abs, known), default=0.0),
        "not_finite": len(values) - len(known),
        "digest": digest or repr(values),
        **more,
    }
    return SampledValue("", "tensor", dtype, (len(values),), values, **facts)  # pyright: ignore[reportArgumentType]


def returned(*answers: SampledValue) -> Timeline:
    calls = [OutputsSampled(0.0, n, FUNCTION, n, (each,)) for n, each in enumerate(answers)]
    return Timeline(sampled_outputs=tuple(calls))


def held(path: str, value: float, dtype: str = "int") -> Timeline:
    answer = SampledValue(
        path, "number", dtype, values=(value,), norm=value, largest=value, digest=repr(value)
    )
    return Timeline(held_states=(StateRead(0.0, FUNCTION, "Model", (answer,)),))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (tensor(1.0, 2.0), tensor(1.0, 2.0), True),
        (tensor(1.0, 2.0), tensor(1.0, 2.000001), True),
        (tensor(1.0, 2.0), tensor(1.0, 2.001), False),
        (tensor(1.0, dtype="bfloat16"), tensor(1.01, dtype="bfloat16"), True),
        (tensor(1.0, dtype="bfloat16"), tensor(1.05, dtype="bfloat16"), False),
        (tensor(1.0, dtype="float64"), tensor(1.00001, dtype="float64"), False),
        (tensor(1.0, None), tensor(1.0, None), True),
        (tensor(1.0, None), tensor(None, 1.0), False),
        (tensor(1.0, None), tensor(1.0, 3.0), False),
        (tensor(3.0, dtype="int64"), tensor(4.0, dtype="int64"), False),
        (tensor(3.0, dtype="int64"), tensor(3.0, dtype="int64", digest="x"), False),
        (tensor(3.0), tensor(3.0, dtype="float16"), False),
        (tensor(3.0), tensor(3.0, 3.0), False),
        (tensor(1.0), tensor(1.0, digest="x", norm=9.0), False),
        (tensor(1e6), tensor(1e6 + 5), True),
    ],
)
def test_numbers_may_round(before: SampledValue, after: SampledValue, same: bool) -> None:
    found = compare_outputs(returned(before), returned(after))
    assert (found.difference is None) == same, found
    assert found.compared == 1


TWICE, ONCE = returned(tensor(1.0), tensor(2.0)), returned(tensor(1.0))


def as_buffer(
    path: str, value: float, dtype: str = "int64", shape: tuple[int, ...] = ()
) -> Timeline:
    answer = replace(tensor(value, dtype=dtype), path=path, shape=shape)
    return Timeline(held_states=(StateRead(0.0, FUNCTION, "Model", (answer,)),))


def test_a_number_that_a_change_makes_a_tensor_keeps_its_value() -> None:
    declared = DeclaredEffects(numbers=frozenset([NumberAsTensor("calls", "int64")]))
    before = held(".block.calls", 5)
    assert compare_outputs(before, as_buffer(".block.calls", 5), declared).difference is None
    assert (
        compare_outputs(before, as_buffer(".block.calls", 5)).difference
        == "Model at the end, block.calls: int → int64[]"
    )
    # A counter that stands still, another attribute, another type, more than one number.
    for lie in (
        as_buffer(".block.calls", 1),
        as_buffer(".block.calls", 5, "float64"),
        as_buffer(".block.calls", 5, shape=(1,)),
    ):
        assert compare_outputs(before, lie, declared).difference is not None
    assert compare_outputs(held(".n", 5), as_buffer(".n", 5), declared).difference is not None
    rate, exact = (
        held(".rate", 0.1, "float"),
        DeclaredEffects(numbers=frozenset([NumberAsTensor("rate", "float64")])),
    )
    assert compare_outputs(rate, as_buffer(".rate", 0.1, "float64"), exact).difference is None
    assert (
        compare_outputs(rate, as_buffer(".rate", 0.10001, "float64"), exact).difference is not None
    )


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        (held(".calls", 6), held(".calls", 1), "Model at the end, calls: 6 → 1"),
        (held(".calls", 6), held(".calls", 6, "float"), "Model at the end, calls: int → float"),
        (TWICE, ONCE, "call 1 of Model.forward returned is missing"),
        (ONCE, TWICE, None),
    ],
)
def test_another_result(before: Timeline, after: Timeline, difference: str | None) -> None:
    assert compare_outputs(before, after).difference == difference


def test_what_has_no_content_is_counted_and_not_called_equal() -> None:
    other = SampledValue("", "other", "list")
    found = compare_outputs(returned(other), returned(other))
    assert (found.compared, found.not_compared, found.difference) == (0, 1, None)
    assert compare_outputs(returned(other), returned(replace(other, dtype="dict"))).difference


def test_what_is_conclusive() -> None:
    number, nothing = (
        returned(tensor(1.0)),
        returned(SampledValue("", "other", "NoneType", digest="n")),
    )
    unknown, flag = returned(SampledValue("", "other", "Custom")), held(".calls", 1)
    weights = replace(flag.held_states[0], answers=(tensor(1.0),), module="Weights")
    with_weights = replace(nothing, held_states=(weights,))
    assert compare_outputs(number, number).conclusive
    assert compare_outputs(with_weights, with_weights).conclusive
    for run in (
        nothing,
        unknown,
        flag,
        replace(with_weights, sampled_outputs=unknown.sampled_outputs),
    ):
        assert not compare_outputs(run, run).conclusive


def test_results_that_a_program_prints() -> None:
    output = "step 1 took 0.3 s\nRESULT 1.5 ok\nepoch 2 train_loss: 0.25 (1 s)\nloss=nan\n"
    assert find_results(output) == ("RESULT 1.5 ok", "loss 0.25", "loss nan")


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("RESULT 1.5", "RESULT 1.5", True),
        ("RESULT 1.50000", "RESULT 1.50001", True),
        ("RESULT 1.5", "RESULT 1.6", False),
        ("RESULT 1.5 a", "RESULT 1.5 b", False),
        ("loss nan", "loss nan", True),
        ("loss nan", "loss 1", False),
    ],
)
def test_printed_numbers_may_round(before: str, after: str, same: bool) -> None:
    assert is_same_result(before, after) == same


def in_float64(
    call: SampledValue, reference: SampledValue, *, own: SampledValue | None = None
) -> Timeline:
    """An eager run with the call in float64 beside each call."""
    run = returned(own or call)
    return replace(run, sampled_outputs=(replace(run.sampled_outputs[0], reference=(reference,)),))


EAGER, TRUE = tensor(1.0001, 2.0), tensor(1.0, 2.0, dtype="float64")
"""The error of eager is 0.0001 in one of two numbers."""


@pytest.mark.parametrize(
    ("after", "excused"),
    [
        (tensor(0.9999, 2.0), True),
        (tensor(1.0, 2.0002), True),
        (tensor(1.0, 2.001), False),
        (tensor(1.01, 2.0), False),
        (tensor(1.0, None), False),
        (tensor(1.0, 2.0, dtype="float16"), False),
        (tensor(1.0, 2.0, 3.0), False),
        (tensor(0.9999, 2.0, norm=9.0), False),
    ],
)
def test_what_is_as_near_to_float64_as_eager_is_no_difference(
    after: SampledValue, excused: bool
) -> None:
    """torch's own rule: at most three times the error of eager in small tensors."""
    exact = collect_exact_values(returned(EAGER), in_float64(EAGER, TRUE))
    assert compare_outputs(returned(EAGER), returned(after)).difference
    found = compare_outputs(returned(EAGER), returned(after), exact=exact)
    assert (found.difference is None, found.excused) == (excused, int(excused)), found


def test_large_tensors_may_be_twice_as_far_as_eager() -> None:
    def many(last: float, dtype: str = "float32") -> SampledValue:
        return replace(tensor(*[1.0] * 63, last, dtype=dtype), shape=(64 * 64,))

    exact = collect_exact_values(
        returned(many(1.001)), in_float64(many(1.001), many(1.0, "float64"))
    )
    for last, excused in ((0.9981, True), (0.9979, False)):
        found = compare_outputs(returned(many(1.001)), returned(many(last)), exact=exact)
        assert (found.difference is None) == excused


@pytest.mark.parametrize(
    "precise",
    [
        in_float64(EAGER, replace(TRUE, dtype="float32")),
        in_float64(EAGER, tensor(1.0, 2.0, 3.0, dtype="float64")),
        in_float64(EAGER, tensor(1.0, None, dtype="float64")),
        in_float64(EAGER, tensor(0.9, 2.0, dtype="float64")),
        in_float64(EAGER, TRUE, own=tensor(5.0, 2.0)),
        returned(EAGER),
    ],
    ids=["float32", "shape", "infinite", "far from eager", "other answer", "none"],
)
def test_a_reference_that_excuses_nothing(precise: Timeline) -> None:
    """Also where eager is so far from it that nothing can be told, or the call answered otherwise
    in that run."""
    assert not collect_exact_values(returned(EAGER), precise)


def test_only_outputs_are_excused() -> None:
    exact = collect_exact_values(returned(EAGER), in_float64(EAGER, TRUE))
    after = returned(tensor(0.9999, 2.0))
    assert compare_outputs(returned(EAGER), after).by_rounding
    two = replace(after, held_states=held(".calls", 1).held_states)
    before = replace(returned(EAGER), held_states=held(".calls", 6).held_states)
    found = compare_outputs(before, two, exact=exact)
    assert (found.difference, found.by_rounding) == ("Model at the end, calls: 6 → 1", False)
    twice = returned(EAGER, tensor(1.0)), returned(tensor(0.9999, 2.0), tensor(1.5))
    assert (
        compare_outputs(*twice, exact=exact).difference
        == "call 1 of Model.forward returned: 1 → 1.5"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (returned(tensor(1.0)), returned(tensor(1.0))),
        (returned(tensor(1.0)), returned()),
        (returned(tensor(1.0)), returned(tensor(None))),
        (returned(tensor(1.0, dtype="int64")), returned(tensor(2.0, dtype="int64"))),
        (held(".weight", 1.0, "float"), held(".weight", 2.0, "float")),
    ],
)
def test_what_rounding_does_not_do(before: Timeline, after: Timeline) -> None:
    assert not compare_outputs(before, after).by_rounding


def holding(bias: float, weight: float = 1.0, out: float = 2.0, **more: Any) -> Timeline:
    """A call's output, and four tensors that its module holds after it and at the end."""
    answers = tuple(
        replace(tensor(value), path=path, **more)
        for path, value in ((".bias", bias), (".weight", weight), (".a", 1.0), (".b", 1.0))
    )
    states = tuple(StateRead(0.0, FUNCTION, "Model", answers, call=call) for call in (0, None))
    return replace(returned(tensor(out)), held_states=states)


@pytest.mark.parametrize(
    "again",
    [
        holding(1.0, out=9.0),
        holding(1.1, weight=1.1),
        holding(1.1, dtype="int64"),
        holding(float("nan"), not_finite=1),
        returned(tensor(2.0)),
    ],
    ids=["an output", "too much", "another type", "not finite", "missing"],
)
def test_what_cannot_be_left_out(again: Timeline) -> None:
    """Then nothing can be proved."""
    assert find_unstable_state(holding(1.0), again) is None


def timed(seconds: float, kind: str = "number", out: float = 2.0) -> Timeline:
    """The same with the seconds that its module counts."""
    held = replace(tensor(seconds), kind=kind, dtype="float", shape=(), path=".seconds")
    timeline = holding(1.0, out=out)
    states = [replace(each, answers=(*each.answers, held)) for each in timeline.held_states]
    return replace(timeline, held_states=tuple(states))


def test_a_clock_differs_between_unchanged_runs() -> None:
    """It is left out; what decides an output is not."""
    ignored = find_unstable_state(timed(1.0), timed(1.5))
    assert len(ignored or ()) == 1
    assert compare_outputs(timed(1.0), timed(7.0), ignored=ignored).difference is None
    assert find_unstable_state(timed(1.0), timed(1.5, out=9.0)) is None
    assert find_unstable_state(timed(1.0), timed(1.5, kind="tensor")) is None


def test_what_is_gone_at_the_end_was_read_after_a_call() -> None:
    whole = holding(1.0)
    gone = replace(whole, held_states=whole.held_states[:1])
    assert whole.held_states[0].call is not None
    assert compare_outputs(whole, gone).difference is None
    never = replace(whole, held_states=())
    assert str(compare_outputs(whole, never).difference).endswith("is missing")
