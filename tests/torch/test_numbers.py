"""Compiled calls made again, eager too: other numbers are found at their callable, correct
ones are none, and the program computes what it computes without."""

import pytest
import torch
from attached import watched

from compilediag.fixes.numbers import compare_numbers
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import RecordingPlan, TrialPlan

pytestmark = [pytest.mark.filterwarnings("ignore")]


def wrong(graph, inputs):
    for node in graph.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.abs
    graph.recompile()
    return graph.forward


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return torch.nn.functional.dropout(self.norm(self.linear(x)), 0.5)


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


def program(backend):
    torch.manual_seed(0)
    encoder, head = Encoder(), Head()
    first = torch.compile(encoder, backend="aot_eager")
    second = torch.compile(head, backend=backend)
    for _ in range(3):
        out = second(first(torch.randn(4, 8)))
    return out.tolist(), encoder.norm.running_mean.tolist()


def repeated(backend):
    plan = RecordingPlan(1, 60.0, repeats=True)
    with watched(trial=TrialPlan(recording=plan)) as events:
        result = program(backend)
    return compare_numbers(fold([events])), result


def test_the_callable_with_other_numbers_is_found_and_nothing_is_disturbed():
    """The one after it in the chain is given other numbers, and is not blamed."""
    numbers, result = repeated(wrong)
    assert [each.function.function for each in numbers.differences] == ["Head.forward"]
    assert (numbers.differences[0].call, numbers.differences[0].step) == (2, 2)
    with watched(trial=TrialPlan(recording=RecordingPlan(1))):
        assert program(wrong) == result


def test_a_correct_program_has_no_difference():
    """Random numbers and buffers in it too."""
    numbers, _ = repeated("eager")
    assert (numbers.same, numbers.unstable, numbers.undetermined) == (True, 0, 0)
    assert numbers.calls == 2
    numbers, _ = repeated("inductor")
    assert (numbers.same, numbers.unstable) == (True, 0)


class Halved(torch.nn.Module):
    """Computes in bfloat16, and returns float32."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64, dtype=torch.bfloat16)

    def forward(self, x):
        return torch.tanh(self.linear(x.to(self.linear.weight.dtype)) * 3).float()


def test_rounding_of_a_coarser_type_inside_is_no_difference():
    torch.manual_seed(0)
    model = Halved()
    with watched(trial=TrialPlan(recording=RecordingPlan(1, 60.0, repeats=True))) as events:
        compiled = torch.compile(model)
        for _ in range(2):
            compiled(torch.randn(16, 64))
    assert compare_numbers(fold([events])).differences == ()
    assert model.linear.weight.dtype == torch.bfloat16


def add_one(gm, inputs):
    """A backend whose whole numbers are wrong."""
    return lambda *args: tuple(out + 1 for out in gm(*args))


def test_whole_numbers_of_a_call_that_rounds_nothing_differ():
    with watched(trial=TrialPlan(recording=RecordingPlan(1, 60.0, repeats=True))) as events:
        compiled = torch.compile(lambda x: x * 2, backend=add_one)
        for _ in range(2):
            compiled(torch.arange(6))
    (difference,) = compare_numbers(fold([events])).differences
    assert (difference.dtype, difference.text) == ("int64", "its whole numbers")
