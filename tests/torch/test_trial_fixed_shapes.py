"""Compiled functions behind a `FixedShape` from outside: the same answers at few sizes, and a check
of their padding that finds harm where there is some."""

import runpy

import pytest
import torch
import torch._dynamo.utils as dynamo_utils

import compilediag as cd
from compilediag.fixes.certificate import check_padding
from compilediag.fixes.rewrite import rewrite
from compilediag.rules.changes import Edit
from compilediag.timeline.timeline import fold
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.trials.settings import IS_METHOD
from compilediag_harness.wire import (
    PaddedAxis,
    PaddedDimension,
    PaddedFunction,
    PaddingChecked,
    TrialPlan,
)
from tests.torch.test_trials import applied_in, outputs_in, trying

pytestmark = [pytest.mark.filterwarnings("ignore")]

LENGTHS = (5, 9, 12, 7, 16, 11, 5, 9)


class Encoder(torch.nn.Module):
    """Attention of every token to the real ones."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, tokens, mask):
        q, k, v = self.qkv(self.embed(tokens)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2)).masked_fill(~mask[:, None, :], float("-inf"))
        return {"hidden": scores.softmax(-1) @ v}


def encoded(compile_it):
    torch.manual_seed(0)
    model = compile_it(Encoder())
    results = []
    for length in LENGTHS:
        mask = torch.ones(4, length, dtype=torch.bool)
        mask[1, length - 2 :] = False
        hidden = model(torch.randint(50, (4, length)), mask=mask)["hidden"]
        hidden[mask].square().mean().backward()
        results.append(hidden[mask].sum().item())
    return results, {k: v.grad.sum().item() for k, v in model.named_parameters()}


@torch.no_grad()
def over_time(compile_it):
    """A loop that is unrolled: no size of it can be dynamic."""

    def read(batch):
        state, states = batch["x"].new_zeros(3, 4), []
        for step in range(batch["x"].shape[1]):
            state = torch.tanh(state + batch["x"][:, step])
            states.append(state)
        return torch.stack(states, 1)

    torch.manual_seed(0)
    run = compile_it(read)
    return [run({"x": torch.randn(3, length, 4)}).sum().item() for length in LENGTHS]


@torch.no_grad()
def pooled(compile_it):
    def mean(rows):
        return rows.relu().mean(0)

    torch.manual_seed(0)
    run = compile_it(mean)
    return [run(torch.randn(length, 4)).sum().item() for length in LENGTHS]


@torch.no_grad()
def images(compile_it):
    torch.manual_seed(0)
    run = compile_it(torch.nn.Conv2d(3, 4, 3, padding=1))
    return [run(torch.randn(1, 3, length, 2 * length)).sum().item() for length in LENGTHS]


@torch.no_grad()
def drawn(compile_it):
    def noisy(rows):
        return rows + torch.rand_like(rows)

    torch.manual_seed(0)
    run = compile_it(noisy)
    return [run(torch.randn(length, 4)).sum().item() for length in LENGTHS]


def compiled(function):
    return torch.compile(function, backend="eager", dynamic=False)


def axes(*dims, buckets=(9, 16)):
    return tuple(
        PaddedAxis(tuple(PaddedDimension(*item) for item in items), buckets) for items in dims
    )


class Tried:
    """A program without and with a plan: its results, the graphs that torch made, its events."""

    def __init__(self, program, place, padding, pad=None):
        with trying(TrialPlan()) as self.before:
            self.expected = program(compiled)
            self.graphs_before = dynamo_utils.counters["stats"]["unique_graphs"]
        self.change = PaddedFunction(place, padding, pad)
        with trying(TrialPlan(padded=(self.change,), check_padding=True)) as self.events:
            self.found = program(compiled)
            self.graphs = dynamo_utils.counters["stats"]["unique_graphs"]
        self.timelines = fold([self.before]), fold([self.events])

    @property
    def point(self):
        (point,) = check_padding([self.change.function], *self.timelines)
        return point

    @property
    def applied(self):
        return applied_in(self.events).get(self.change.label, "never")


def place_in(program):
    """Of the function that a program compiles."""
    found = []
    program(lambda function: found.append(function) or function)
    return get_definition(found[0])


FORWARD = get_definition(Encoder.forward)
TOKENS = axes([("tokens", 1), ("mask", 1)])


def test_a_mask_among_the_arguments_keeps_its_padding():
    """In training too: outputs and gradients are those without padding, at two sizes."""
    seen = Tried(encoded, FORWARD, TOKENS, pad=0)
    assert seen.applied is None
    assert (seen.graphs_before, seen.graphs) == (6, 2)
    assert seen.found[0] == pytest.approx(seen.expected[0], abs=1e-4)
    assert seen.found[1] == pytest.approx(seen.expected[1], abs=1e-4)
    assert seen.point.outcome == "holds", seen.point.sentence


def test_real_padding_for_a_mask_is_unsafe():
    assert "unsafe" in Tried(encoded, FORWARD, TOKENS).point.sentence
    assert "unsafe" in Tried(encoded, FORWARD, TOKENS, pad=1).point.sentence


def test_a_loop_over_the_size():
    seen = Tried(over_time, place_in(over_time), axes([("batch.x", 1)]))
    assert (seen.graphs_before, seen.graphs) == (6, 2)
    assert seen.found == pytest.approx(seen.expected, abs=1e-5)
    assert seen.point.outcome == "holds", seen.point.sentence


@pytest.mark.parametrize(
    ("program", "padding", "word"),
    [
        (pooled, axes([("rows", 0)]), "unsafe"),
        (images, (*axes([("input", 2)]), *axes([("input", 3)], buckets=(16, 32))), "unsafe"),
        (drawn, axes([("rows", 0)]), "unknown"),
    ],
)
def test_padding_that_harms_or_may_is_no_change(program, padding, word):
    place = get_definition(torch.nn.Conv2d.forward) if program is images else place_in(program)
    seen = Tried(program, place, padding)
    assert seen.applied is None
    assert seen.point.outcome == "fails"
    assert word in seen.point.sentence


def test_every_mode_is_checked():
    """Batch norm depends on padding in training alone."""

    def program(compile_it):
        torch.manual_seed(0)
        model = torch.nn.BatchNorm1d(4)
        run = compile_it(model)
        with torch.no_grad():
            for training in (False, False, True, False):
                model.train(training)
                run(torch.randn(5, 4))

    place = get_definition(torch.nn.BatchNorm1d.forward)
    seen = Tried(program, place, axes([("input", 0)], buckets=(8,)))
    verdicts = [set(event.kinds) for event in seen.events.of(PaddingChecked)]
    assert verdicts[0] == {"safe"}
    assert len(verdicts) == 2
    assert "unsafe" in seen.point.sentence


def test_a_program_with_a_fixed_shape_gives_the_same_answers_at_other_sizes():
    """What is compared is what the program gets, cut back; calls of the warm-up are none of its."""

    def program(buckets):
        def score(rows):
            return rows.square().sum(1)

        torch.manual_seed(0)
        shape = cd.FixedShape(compiled(score), {"rows": 0}, buckets)
        with torch.no_grad():
            shape.warmup(torch.randn(4, 3))
            return [shape(torch.randn(rows, 3)).tolist() for rows in (5, 0, 9, 20)]

    runs = []
    for buckets in ([16], [4, 6, 9]):
        with trying(TrialPlan(check_padding=True)) as events:
            runs.append((program(buckets), events))
    (one, first), (other, second) = runs
    assert one == other
    structures = [structure for _, structure, _ in outputs_in(first)]
    assert structures == [f"float32[{rows}]" for rows in (5, 0, 9, 20)]
    assert (
        sum(sum(s.requested.values()) + s.other_batches for s in fold([second]).fixed_shapes) == 3
    )


def test_a_method_and_a_size_that_cannot_be_are_reported():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.compile(backend="eager")

        def forward(self, x):
            return x * 2

    def program(_compile_it):
        return [Model()(torch.ones(rows, 2)).sum().item() for rows in (3, 5)]

    place = get_definition(Model.forward)
    seen = Tried(program, place, axes([("x", 0)]))
    assert seen.applied == IS_METHOD
    assert seen.found == seen.expected

    seen = Tried(over_time, place_in(over_time), axes([("batch.x", 1)], buckets=(9, 9)))
    assert "ascend" in seen.applied
    assert seen.found == seen.expected


PROGRAM = """
import torch

@torch.compile(backend="eager")
def over_time(rows):
    state, states = rows.new_zeros(3), []
    for step in range(rows.size(0)):
        state = torch.tanh(state + rows[step])
        states.append(state)
    return torch.stack(states)

torch.manual_seed(0)
results = [over_time(torch.randn(number, 3)) for number in (3, 5, 6, 4, 8)]
"""


def test_the_line_that_is_shown_works_literally(tmp_path):
    """The edited program, run plainly, makes as many graphs as it has sizes, and computes the
    same."""
    arguments = 'dims={"rows": 0}, buckets=[5, 8]'
    text = rewrite(PROGRAM, [Edit("program.py", 4, "fixed_shape", ("over_time", arguments))])
    assert f"over_time = compilediag.FixedShape(over_time, {arguments})\n" in text
    runs = []
    for name, source in (("plain.py", PROGRAM), ("edited.py", text)):
        (tmp_path / name).write_text(source)
        torch._dynamo.reset()
        dynamo_utils.counters.clear()
        results = runpy.run_path(str(tmp_path / name))["results"]
        runs.append((results, dynamo_utils.counters["stats"]["unique_graphs"]))
    (plain, many), (padded, few) = runs
    assert (many, few) == (5, 2)
    assert all(map(torch.allclose, plain, padded))
