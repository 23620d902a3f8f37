"""Calls made again when a recorded process is over: with which inputs, what comes out, and that
the program notices nothing."""

import collections
import dataclasses
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import pytest
import torch
from attached import watched
from command_line import captured

from compilediag.readers.journal import read_run
from compilediag.runs.supervised.child import make_child_environment
from compilediag.timeline.timeline import fold
from compilediag_harness import wire
from compilediag_harness.base.session import Session
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.shapes import side_effects
from compilediag_harness.torch_internals import torch_api, torch_replay
from compilediag_harness.torch_internals.torch_replay import CallModes
from compilediag_harness.trials import forked, trial, varied_calls
from compilediag_harness.trials.kept_calls import CallKeeper, KeptCall, KeptCallable, is_tensor

pytestmark = [pytest.mark.filterwarnings("ignore")]

needs_fork = pytest.mark.skipif(
    torch.version.cuda is not None, reason="a build for CUDA has threads that a fork has not"
)
"""For calls beyond the run, and whatever asserts that no call was left out."""


def vary(calls, boundaries=(), vary_s=60.0, *, beyond=False):
    """What came out of the varied calls of a block, by kind of call and variation; `beyond`: of
    those alone that are beyond what the block does, without which the others are."""
    plan = wire.RecordingPlan(seed=1, vary_s=vary_s, boundaries=tuple(boundaries))
    torch.manual_seed(1)
    with watched(trial=wire.TrialPlan(recording=plan)) as events:
        calls()
    made = events.of(wire.CallVaried)
    assert len({(one.function, one.call, one.variation) for one in made}) == len(made)
    asked = {
        (one.call, one.variation): one
        for one in made
        if one.variation.startswith(wire.BEYOND) == beyond
    }
    return asked, events.of(wire.VaryingEnded), events


def list_differing(one, other, *, beyond=False):
    """The variations that differ between two states of a program."""
    first, second = (vary(state, beyond=beyond)[0] for state in (one, other))
    assert first.keys() == second.keys()
    return {
        label
        for label, its in first.items()
        if (its.structure, its.digest, its.raised is None)
        != (second[label].structure, second[label].digest, second[label].raised is None)
    }


def call_with(function, *calls, backend="eager", **options):
    def run():
        compiled = torch.compile(function, backend=backend, **options)
        for args in calls:
            compiled(*args)

    return run


@pytest.fixture(autouse=True)
def compile_seconds(monkeypatch):
    """torch counts those of all tests before, and they make the limit longer."""
    monkeypatch.setattr(torch_replay, "read_compile_seconds", lambda: 0.0)


OWN = os.getpid()


def wait_in_fork(x):
    torch._dynamo.graph_break()
    time.sleep(0 if os.getpid() == OWN else 60)
    return x


SIZES = [(torch.arange(12.0).reshape(n, -1),) for n in (3, 4, 6)]
KIND = "gradients; float32[2d]"


def test_a_function_that_is_wrong_for_one_size_alone_differs_there():
    """Every call of the run gives the same: only a size that it did not have shows."""

    def before(x):
        return x - x.mean(0)

    def after(x):
        return x - x.mean(0) if len(x) > 1 else x

    differing = list_differing(call_with(before, *SIZES), call_with(after, *SIZES))
    assert differing == {(KIND, "size 6 → 1"), (KIND, "size 6 → 1, own backend")}


def test_a_call_as_it_was_tells_what_it_is_given_before_it_writes_to_it():
    def add(x, count):
        return x.add_(count)

    made, _, _ = vary(call_with(add, (torch.zeros(3, 2), 2)))
    given = {label: one.given for (_, label), one in made.items() if one.given}
    assert given == {"as it was": ("x: float32[3,2]", "count: int")}
    one = made[KIND, "as it was"]
    assert one.given_digests[0].magnitude != one.digest[0].magnitude


def test_a_loss_whose_backward_pass_the_call_runs_is_compared_without_gradients():
    layer = torch.nn.Linear(4, 1)

    def train(x):
        loss = layer(x).square().mean()
        loss.backward()
        return loss

    made, _, _ = vary(call_with(train, *[(torch.ones(rows, 4),) for rows in (3, 5, 6)]))
    shown = {label: one for (_, label), one in made.items() if label in ("as it was", "size 6 → 2")}
    assert all(one.raised is None for one in shown.values())
    assert all(wire.GRAPH_USED_UP in one.structure for one in shown.values())


def test_a_gradient_that_is_lost_shows_where_the_run_wants_none():
    def before(x, scale):
        return x.sin() * scale

    def after(x, scale):
        return x.detach().sin() * scale

    calls = [(torch.ones(3, 2), torch.tensor(2.0))]
    differing = list_differing(call_with(before, *calls), call_with(after, *calls))
    assert {label for _, label in differing} == {"a gradient of x"}


def test_the_gradient_of_an_argument_is_the_same_whatever_its_dtype():
    def double(x):
        return x.float().sin()

    x = torch.ones(3, 2)
    made = [vary(call_with(double, (its,)))[0] for its in (x, x.double())]
    one, other = (next(i for (_, label), i in its.items() if "of x" in label) for its in made)
    assert one.structure == other.structure
    assert one.digest == other.digest


def test_sizes_go_along_all_dimensions_that_varied_together():
    """Also those of an argument that only some calls have; what never varied stays."""

    def add(x, y, weight, mask=None):
        z = (x + y) @ weight
        return z if mask is None else z * mask

    calls = [(torch.ones(n, 4), torch.ones(n, 4), torch.ones(4, 4)) for n in (2, 3, 4)]
    made, _, _ = vary(call_with(add, *calls, (*calls[-1], torch.ones(4, 1))))
    labels = {label for kind, label in made if kind.count("float32") == 4}
    sizes = {f"size 4 → {size}" for size in (1, 2, 3, 5, 8, 16, 17)}
    own = {f"size 4 → {size}, own backend" for size in (1, 5)}
    paths = "x", "y", "weight", "mask"
    gradients = {"gradients off", *(f"a gradient of {path}" for path in paths)}
    values = {
        f"values of {path} {change}" for path in paths for change in ("negated", "zero", "reversed")
    }
    # With other features `weight` cannot be multiplied.
    features = {"dimension 1 of x: 4 → 5", "dimension 1 of x: 4 → 8"}
    assert labels == {"as it was", "mask = None", *values, *gradients, *sizes, *own, *features}
    assert {one.number for (kind, _), one in made.items() if kind.count("float32") == 4} == {3}
    assert {label for (_, label), its in made.items() if its.raised} == features
    assert all(
        "float32[17,4]" in its.structure for (_, label), its in made.items() if "17" in label
    )


def test_without_a_size_that_varied_those_of_integers_and_declared_ones_are_varied():
    """One graph serves all larger sizes of one dimension."""

    def embed(tokens, x):
        return torch.nn.functional.one_hot(tokens, 9).float().sum() + x.sum(0)

    tokens, x = torch.arange(6).reshape(2, 3), torch.ones(4, 5, requires_grad=True)
    plain, _, _ = vary(call_with(embed, (tokens, x)))
    torch._dynamo.maybe_mark_dynamic(x, 1)
    declared, _, _ = vary(call_with(embed, (tokens, x)))
    labels = [label for _, label in plain]
    assert labels[4:6] == ["size 2 → 3", "dimension 1 of tokens: 3 → 4"]
    assert "dimension 1 of tokens: 3 → 17, own backend" not in labels
    assert {label for _, label in declared} - set(labels) == {
        *(f"dimension 1 of x: 5 → {size}" for size in (1, 2, 4, 6, 10, 16, 17)),
        *(f"dimension 1 of x: 5 → {size}, own backend" for size in (1, 6)),
    }
    assert [one.raised for one in declared.values()] == [None] * len(declared)
    assert [one.compiles for (_, its), one in plain.items() if its == "size 2 → 17"] == [0]


def test_numbers_flags_and_none_take_what_was_seen_and_others():
    def scale(x, factor, count, flip, name):
        x = x * factor + count
        return -x if flip else x

    x = torch.ones(4)
    calls = (x, 2.0, 1, False, "a"), (x, 3.0, 1, False, "b"), (x, 0.0, 1, True, None)
    made, _, _ = vary(call_with(scale, *calls, dynamic=False))
    named = re.compile("values of (?!x)|.* = ")
    labels = {label for kind, label in made if not kind.endswith("#2") and named.match(label)}
    assert labels == {
        *("factor = 2.0", "factor = 0.0", "flip = True", "name = 'a'", "name = None"),
        *("values of factor negated", "values of factor zero", "values of factor + 0.1"),
        *("values of factor × 1e6", "values of count + 1", "values of count zero"),
        "values of flip inverted",
    }
    assert all(its.raised is None for its in made.values())


def test_a_number_that_became_a_tensor_is_given_the_same_values():
    """A clamp that the run never needed is missed there."""

    def right(x, temperature, count):
        return x / max(temperature, 1e-5) + count

    def wrong(x, temperature, count):
        return x / temperature + count

    numbers, tensors = (0.5, 3), (torch.tensor([0.5]), torch.tensor(3))
    x = torch.arange(1.0, 5.0)
    old, _, _ = vary(call_with(right, (x, *numbers)))
    new, _, _ = vary(call_with(wrong, (x, *tensors)))
    (first,), (second,) = ({kind for kind, _ in made} for made in (old, new))
    labels = {label for _, label in old if "values of" in label}
    assert labels == {label for _, label in new if "values of" in label}
    assert {its for its in labels if old[first, its].digest != new[second, its].digest} == {
        "values of temperature negated",
        "values of temperature zero",
    }


def test_a_mask_that_hid_nothing_is_inverted():
    x, mask = torch.arange(4.0), torch.zeros(4, dtype=torch.bool)
    differing = list_differing(
        call_with(lambda x, mask: x.masked_fill(mask, 9.0), (x, mask)),
        call_with(lambda x, mask: x + 0 * mask, (x, mask)),
    )
    assert differing == {("gradients; float32[1d], bool[1d]", "values of mask inverted")}


def test_a_number_that_is_not_finite_is_left_as_none():
    """A journal has no such number."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.total = 1.0

        def forward(self, x):
            self.total = self.total * 2e200
            return x

    made, _, _ = vary(call_with(Model(), *[(torch.ones(2),)] * 2))
    assert {its.numbers for its in made.values() if its.variation == "as it was"} == {
        (("total", None),)
    }


def test_a_height_and_a_width_that_were_equal_in_every_call_differ():
    def right(x):
        return x / x.shape[1] + torch.arange(x.shape[2])

    def wrong(x):
        return x / x.shape[2] + torch.arange(x.shape[2])

    calls = [(torch.ones(2, n, n),) for n in (3, 4, 5)]
    differing = list_differing(call_with(right, *calls), call_with(wrong, *calls))
    sizes = {f"dimension {dim} of x: 5 → {size}" for dim in (1, 2) for size in (6, 10)}
    assert differing == {("gradients; float32[3d]", label) for label in sizes}


def test_whether_a_result_is_in_the_memory_of_another_tensor():
    """What the caller writes into it later is written there, too."""
    table = torch.ones(1, 3)
    kinds = {
        (): lambda x: table.repeat(len(x), 1) + 0 * x,
        ("what it returns is expanded",): lambda x: table.expand(len(x), 3),
        ("what it returns is in the memory of x",): lambda x: x.view(3, 2),
    }
    for words, function in kinds.items():
        made, _, _ = vary(call_with(function, (torch.ones(2, 3),)))
        assert [its.memory for (_, label), its in made.items() if label == "as it was"] == [words]


def test_a_tensor_that_the_object_holds_and_the_program_changes_is_another_one():
    """Not a cache that has another shape in the other state."""

    def count(rows, longer=0):
        class Fired(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.since = torch.zeros(4 + longer)

            def forward(self, x):
                dead = self.since >= 2
                self.since += 1
                return x + dead[:4] if rows is None else x + rows

        def run():
            compiled = torch.compile(Fired(), backend="eager")
            for _ in range(4):
                compiled(torch.ones(4))

        return run

    kind = "training, gradients; float32[1d]"
    differing = list_differing(count(None), count(torch.tensor([0.0, 1.0]).repeat(2) * 0 + 1))
    changes = ("negated", "zero")
    assert {(kind, f"values of .since [4] {change}") for change in changes} <= differing
    longer, _, _ = vary(count(None, longer=1))
    assert (kind, "values of .since [5] zero") in longer


def test_indices_are_out_of_order_and_doubled():
    x, index = torch.arange(3.0), torch.arange(3)
    differing = list_differing(
        call_with(lambda x, index: x.index_add(0, index, x), (x, index)),
        call_with(lambda x, index: x + x + 0 * index, (x, index)),
    )
    labels = {label for _, label in differing}
    assert {f"values of index {change}" for change in ("zero", "reversed")} <= labels
    assert not any("of x" in label or label == "as it was" for label in labels)


def test_modules_are_called_in_the_other_mode():
    class Model(torch.nn.Module):
        def __init__(self, rate):
            super().__init__()
            self.rate = rate

        def forward(self, x):
            return x * 2 if self.training else x * self.rate

    calls = [call_with(Model(rate), (torch.ones(3),)) for rate in (3, 4)]
    assert list_differing(*calls) == {("training, gradients; float32[1d]", "evaluation")}


def test_a_count_that_the_program_changes_is_another_one():
    """Number or tensor; a size that the object keeps is none. What it ends with is compared."""

    class Store:
        def __init__(self, step, wrap):
            self.step, self.wrap, self.size = step, wrap, 5

        def insert(self, x):
            self.step = (self.step + 1) % (self.size if self.wrap else 99)
            return x * self.size

    def store(step, wrap):
        def run():
            insert = torch.compile(Store(step, wrap).insert, backend="eager")
            for _ in range(4):
                insert(torch.ones(2))

        return run

    old, new, wrong = (
        {label: its for (_, label), its in vary(store(*its))[0].items()}
        for its in ((0, True), (torch.tensor(0), True), (torch.tensor(0), False))
    )
    assert old.keys() == new.keys() == wrong.keys()
    changes = {f"values of .step {change}" for change in ("+ 1", "zero", "× 1e6")}
    assert {its for its in old if ".step" in its or ".size" in its} == changes
    assert all(old[its].numbers == new[its].numbers for its in old)
    assert {its for its in old if old[its].numbers != wrong[its].numbers} == {
        "values of .step + 1",
        "values of .step × 1e6",
    }
    assert old["values of .step + 1"].numbers == (("step", 0.0),)
    assert wrong["values of .step + 1"].numbers == (("step", 5.0),)


def test_counts_of_which_some_are_used_up_are_tried():
    class Codes:
        def __init__(self, right):
            self.ages, self.right = torch.arange(1.0, 5.0), right

        def refill(self, x):
            self.ages = self.ages + 1
            old = self.ages < 2
            if self.right:
                return torch.where(old, x[old.cumsum(0) - 1], x)
            return torch.where(old, x, x)

    def call(right):
        def run():
            refill = torch.compile(Codes(right).refill, backend="eager")
            for _ in range(3):
                refill(torch.arange(4.0))

        return run

    differing = list_differing(call(True), call(False))
    assert {label for _, label in differing} == {"values of .ages [4] every other zero"}


def test_the_height_that_no_call_varied_is_varied():
    grid = torch.arange(4.0)
    differing = list_differing(
        call_with(lambda x: x + torch.arange(x.shape[1]), (torch.ones(2, 4),)),
        call_with(lambda x: x + grid, (torch.ones(2, 4),)),
    )
    assert differing == {(KIND, f"dimension 1 of x: 4 → {size}") for size in (5, 8)}


def list_beyond(one, other):
    """The variations beyond what two states of a program do that differ, without that begin."""
    differing = list_differing(one, other, beyond=True)
    return {label.removeprefix(wire.BEYOND) for _, label in differing}


def test_what_a_call_writes_to_and_what_it_replaces():
    class Average(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("written", "hidden", "replaced", "read"):
                self.register_buffer(name, torch.ones(2))

        def forward(self, x):
            self.written += 1
            self.hidden.data[0] = 5
            self.replaced = self.replaced + 1
            return x * self.read

    made, _, _ = vary(call_with(Average(), (torch.ones(3, 2),)))
    as_it_was = made[f"training, {KIND}", "as it was"]
    assert {*as_it_was.written} == {"module 0 written", "module 0 hidden"}
    assert as_it_was.replaced == ("module 0 replaced",)
    left = dict(as_it_was.numbers)
    assert left.keys() == {f"module 0 {its} [2]" for its in ("written", "hidden", "replaced")}
    assert left["module 0 written [2]"] == left["module 0 replaced [2]"] > 0


def test_what_a_call_that_returns_something_writes_into_its_buffers_is_compared():
    class Average(torch.nn.Module):
        def __init__(self, right):
            super().__init__()
            self.right = right
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x):
            self.mean.lerp_(x.mean(0), 0.1 if self.right or len(x) != 2 else 0.2)
            return x + 1

    states = [
        call_with(Average(right), *[(torch.ones(n, 2),) for n in (3, 4, 6)])
        for right in (True, False)
    ]
    old, new = (vary(state)[0] for state in states)
    unlike = {label for label in old if old[label].numbers != new[label].numbers}
    assert unlike == {(f"training, {KIND}", "size 6 → 2")}


@needs_fork
def test_a_dimension_less_and_another_dtype_are_beyond_the_run():
    def right(x, gamma):
        return x.pow(gamma.to(x.dtype)).sum(-1)

    def wrong(x, gamma):
        return x.pow(gamma.to(x.dtype)).sum(2)

    def widened(x, gamma):
        return x.pow(gamma * torch.ones(1)).sum(-1)

    calls = [(torch.rand(n, 3, 3), torch.tensor(2.0)) for n in (2, 3)]
    old = call_with(right, *calls)
    less = {"x without its first dimension"}
    assert list_beyond(old, call_with(wrong, *calls)) == less
    made = [vary(state, beyond=True)[0] for state in (old, call_with(widened, *calls))]
    label = "gradients; float32[3d], float32[0d]", f"{wire.BEYOND}bfloat16"
    assert [its[label].structure.partition(",")[0] for its in made] == ["(bfloat16[3", "(float32[3"]


@needs_fork
def test_whole_numbers_farther_away_and_none_are_beyond_the_run():
    def right(x, count, mask=None):
        return x * count if mask is None else x * count + mask

    def wrong(x, count, mask=None):
        return x * min(count, 4) + (1 if mask is None else mask)

    calls = [(torch.rand(n, 3), 2, torch.rand(3)) for n in (2, 3)]
    old = call_with(right, *calls)
    far = {"values of count + 10", "mask = None"}
    assert list_beyond(old, call_with(wrong, *calls)) == far
    assert not list_beyond(old, old)


@needs_fork
def test_several_sizes_of_one_at_once_are_beyond_the_run():
    def right(x, offset):
        return x - offset

    def wrong(x, offset):
        return x - offset if x.numel() > x.shape[1] else x

    calls = [(torch.ones(n, 2, 3, 4), torch.ones(())) for n in (2, 3)]
    differing = list_beyond(call_with(right, *calls), call_with(wrong, *calls))
    assert differing == {"every size 1 but dimension 1 of x"}


@needs_fork
def test_the_size_of_one_tensor_for_that_of_another_shows_beyond_the_run():
    def right(query, keys):
        return query.sum() * keys.mean(0) * len(keys)

    def wrong(query, keys):
        return query.sum() * keys.mean(0) * len(query)

    calls = [(torch.ones(n, 2), torch.ones(n, 2)) for n in (3, 4)]
    differing = list_beyond(call_with(right, *calls), call_with(wrong, *calls))
    assert differing >= {"size 4 of query → 5", "size 4 of keys → 8"}
    assert all(" of " in label or "dimension" in label for label in differing)


@needs_fork
def test_two_tensors_of_the_same_size_are_others_beside_the_rest():
    """Keys and values of a batch of one beside a cache of two, which a copy spreads over it."""

    def right(query, keys, values, cache):
        cache = cache.clone()
        cache[:] = keys + values
        return query.sum() * cache

    def wrong(query, keys, values, cache):
        return (
            query.sum() * (keys + values)
            if len(keys + values) == 1
            else right(query, keys, values, cache)
        )

    calls = [tuple(torch.rand(n, 3) for _ in range(4)) for n in (2, 3)]
    differing = list_beyond(call_with(right, *calls), call_with(wrong, *calls))
    assert differing == {"size 3 of keys → 1, size 3 of values → 1"}


@needs_fork
def test_two_independent_sizes_are_others_at_once():
    def right(x):
        return x + 1

    def wrong(x):
        return x + 1 if len(x) > 1 or x.shape[1] == 4 else x

    calls = [(torch.ones(n, 4),) for n in (2, 3)]
    differing = list_beyond(call_with(right, *calls), call_with(wrong, *calls))
    assert differing == {f"size 3 → 1, dimension 1 of x: 4 → {its}" for its in (1, 5)}


def test_an_error_of_the_program_for_a_larger_size_is_told_from_others():
    """A bound that the program says, not what an operation makes of it; nor one below its own."""

    def bounded(x):
        if len(x) > 6:
            raise ValueError("at most 6 rows")
        assert len(x) != 2
        return x + torch.zeros(8, 1)[: len(x)] if len(x) < 12 else x + torch.zeros(8, 1)

    made = vary(call_with(bounded, *SIZES))[0]
    refused = {label for (_, label), its in made.items() if its.is_refused}
    assert refused == {f"size 6 → {its}" for its in (7, 12, 16, 17, "7, own backend")}
    assert (made[KIND, "size 6 → 2"].raised or "").startswith("AssertionError: ")


@needs_fork
def test_what_no_call_changes_is_another_one_in_all_modules_of_a_class():
    class Part(torch.nn.Module):
        def __init__(self, reads):
            super().__init__()
            self.dilation, self.scaled, self.reads = (1, 1), True, reads
            self.register_buffer("ages", torch.arange(3.0))

        def forward(self, x):
            if self.reads:
                x = x / self.dilation[0] + self.ages[0] - int(self.scaled)
            return x if self.reads else x - 1

    def call(reads):
        return call_with(torch.nn.Sequential(Part(reads), Part(reads)), (torch.ones(2, 3),))

    parts = {"Part.dilation + 1", "Part.scaled inverted", "Part.ages [3] reversed"}
    differing = list_beyond(call(True), call(False))
    assert differing >= parts
    assert not list_beyond(call(True), call(True))
    read = vary(call(True), beyond=True)[0]
    assert read[f"training, {KIND}", f"{wire.BEYOND}Part.reads inverted"].raised is None


@needs_fork
def test_a_cache_that_is_made_large_enough_at_once_is_not_compared_with_one_that_grows():
    """Whichever module holds it, and in whatever kind of call it has grown."""

    class Positions(torch.nn.Module):
        def __init__(self, rows):
            super().__init__()
            self.table, self.scale = self.build(rows), torch.ones(2)

        def build(self, rows):
            return torch.arange(2.0 * rows).reshape(-1, 2)

        def forward(self, x, mask=None):
            if len(self.table) < len(x):
                self.table = self.build(len(x))
            x = x * self.scale + self.table[: len(x)]
            return x if mask is None else x * mask

    calls = (torch.ones(4, 2),), (torch.ones(3, 2), torch.ones(3, 2))
    labels = [
        {label for _, label in vary(call_with(Positions(rows), *calls), beyond=True)[0]}
        for rows in (1, 9)
    ]
    assert f"{wire.BEYOND}Positions.scale [2] reversed" in labels[0] & labels[1]
    assert f"{wire.BEYOND}Positions.table [4, 2] reversed" in labels[0] - labels[1]
    assert f"{wire.BEYOND}Positions.table [9, 2] reversed" in labels[1]


@needs_fork
def test_sizes_past_a_table_and_past_a_small_integer_are_beyond_the_run():
    table = torch.arange(200.0)

    def right(x):
        return x + torch.arange(len(x)).float()[:, None]

    def bounded(x):
        return x + table[: len(x), None]

    def small(x):
        return x + torch.arange(len(x)).to(torch.int8).float()[:, None]

    old = call_with(right, *SIZES)
    assert list_beyond(old, call_with(bounded, *SIZES)) == {
        "size 6 → 257",
        "size 6 → 2049",
    }
    assert list_beyond(old, call_with(small, *SIZES)) == {
        "size 6 → 257",
        "size 6 → 2049",
    }


@pytest.mark.parametrize("problem", ["time", "memory", "crash"])
@needs_fork
def test_a_call_beyond_the_run_that_crashes_or_needs_too_much_is_said(problem, monkeypatch):
    monkeypatch.setattr(varied_calls, "APART_S", 1.0)
    problems = {
        "time": lambda: time.sleep(60),
        "memory": lambda: torch.empty(1 << 34),
        "crash": os.abort,
    }

    @torch.compiler.disable
    def check(x):
        if len(x) > 256:
            problems[problem]()

    def add(x):
        check(x)
        return x + 1

    made, ended, _ = vary(call_with(add, *SIZES), beyond=True)
    by_label = {label.removeprefix(wire.BEYOND): its for (_, label), its in made.items()}
    assert by_label["bfloat16"].raised is None
    if problem == "crash":
        assert by_label["size 6 → 257"].raised == "the process ended by signal 6"
        assert ended[0].left_out == ()
    else:
        assert "size 6 → 257" not in by_label
        said = "beyond the run, for which no time was left, or no memory"
        assert said in ended[0].left_out[-1]
    assert (KIND, "size 6 → 1") in vary(call_with(add, *SIZES))[0]


def test_watched_lines_that_only_calls_with_other_inputs_run(tmp_path):
    """Traced by Dynamo or run by the interpreter; one whose call fails is looked for again."""
    script = tmp_path / "branching.py"
    script.write_text(BRANCHING)
    watched_lines = wire.WatchedLines(str(script), (3, 5, 7))
    plan = wire.RecordingPlan(seed=1, vary_s=60.0, lines=(watched_lines,))
    with watched(trial=wire.TrialPlan(recording=plan)) as events:
        namespace = runpy.run_path(str(script))
        torch.compile(namespace["f"], backend="eager")(torch.ones(3))
    assert [its.run for its in events.of(wire.LinesRun)] == [(7,)]
    ran = {its.variation: its.lines for its in events.of(wire.CallVaried) if its.lines}
    assert ran == {
        "values of x negated": (wire.WatchedLines(str(script), (3,)),),
        "size 3 → 2": (wire.WatchedLines(str(script), (5,)),),
    }


BRANCHING = """\
def f(x):
    if x.sum() < 0:
        return x - 1
    if x.shape[0] == 2:
        x = x * 3
    if x.sum() > 0:
        x = x + 1
    return x
"""


def test_the_other_grad_mode_shows_what_gradients_alone_show():
    """A `detach` changes no output; what fails with gradients is seen from calls without."""
    layer = torch.nn.Linear(2, 2)

    def right(x):
        return layer(x)

    def detached(x):
        return layer(x.detach() * 1) if x.requires_grad else layer(x).detach()

    def failing(x):
        y = layer(x)
        if torch.is_grad_enabled():
            raise ValueError("with gradients")
        return y

    def run(function):
        def run():
            with torch.no_grad():
                torch.compile(function, backend="eager")(torch.ones(3, 2))

        return run

    on = {("training, no gradients; float32[2d]", "gradients on")}
    assert list_differing(run(right), run(failing)) == on
    assert list_differing(run(right), run(detached)) == on
    made, _, _ = vary(run(failing))
    assert "with gradients" in made[on.pop()].raised


def test_a_gradient_is_wanted_of_each_argument():
    """One that is cut for an argument that had none in the run."""
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    differing = list_differing(
        call_with(lambda x, y: x * y, (x, y)), call_with(lambda x, y: x * y.detach(), (x, y))
    )
    assert {label for _, label in differing} == {"a gradient of y"}


def test_an_input_that_other_operations_gave_keeps_its_gradient():
    def run(function):
        def run():
            w = torch.ones(2, requires_grad=True)
            torch.compile(function, backend="eager")(w * 2).sum().backward()

        return run

    def right(x):
        return x.add_(1) * 2

    def wrong(x):
        return x.add_(1).detach() * 2 + 0 * x

    differing = list_differing(run(right), run(wrong))
    assert ("gradients; float32[1d]", "as it was") in differing


class Normalised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3, momentum=0.5)
        self.seen = []

    def forward(self, x):
        self.seen.append(len(x))
        return self.norm(x) + self.norm.running_mean + len(self.seen)


def test_every_call_begins_in_the_state_of_the_end():
    """In the mode that it was kept in, though the module has another at the end; what a variation
    gives does not depend on those before it."""
    model = Normalised()
    compiled = torch.compile(model, backend="eager")

    def run():
        model.train()
        compiled(torch.ones(4, 3))
        model.eval()
        compiled(torch.ones(4, 3))

    made, _, _ = vary(run)
    assert {kind for kind, _ in made} == {f"{mode}, {KIND}" for mode in ("training", "evaluation")}
    kind = f"training, {KIND}"
    assert made[kind, "size 4 → 5"].digest == made[kind, "size 4 → 5, own backend"].digest
    assert made[kind, "size 4 → 5"].digest != made[kind, "size 4 → 2"].digest
    assert made[kind, "as it was"].digest != made[f"evaluation, {KIND}", "as it was"].digest
    assert model.seen == [4, 4]


def test_what_is_written_into_an_argument_is_compared():
    def right(x):
        x.add_(1)

    def wrong(x):
        x.add_(1 if x.shape[0] != 2 else 2)

    x, y = torch.zeros(4, 2), torch.zeros(4, 2)
    differing = list_differing(call_with(right, (x,)), call_with(wrong, (y,)))
    assert differing == {(KIND, "size 4 → 2")}
    assert x.equal(torch.ones(4, 2))  # by the run, and by no varied call


def test_what_a_call_that_returns_nothing_writes_into_modules_is_compared():
    def average(rate):
        def update(model, averaged, decay):
            with torch.no_grad():
                for old, new in zip(averaged.parameters(), model.parameters(), strict=True):
                    old.lerp_(new, rate(decay))

        torch.manual_seed(2)
        return call_with(update, (torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), 0.5))

    def right(decay):
        return 1 - decay

    assert not list_differing(average(right), average(lambda decay: 1.0 - decay))
    differing = list_differing(average(right), average(lambda decay: 0.5))
    changes = ("negated", "zero", "+ 0.1", "× 1e6")
    assert {label for _, label in differing} == {f"values of decay {its}" for its in changes}


def test_what_a_call_that_returns_nothing_writes_into_its_object_is_compared():
    class Store:
        def __init__(self, factor):
            self.rows, self.factor = torch.zeros(3), factor

        def insert(self, x):
            self.rows.copy_(x if x.sum() > 0 else x * self.factor)

    calls = [call_with(Store(factor).insert, (torch.ones(3),)) for factor in (2, 3)]
    assert list_differing(*calls) == {("gradients; float32[1d]", "values of x negated")}


def test_what_a_call_leaves_in_containers_is_compared():
    def fill(x, cache, rows):
        cache["last"] = x + 1
        rows.append(len(x))
        rows[0] = 1000
        return x

    def wrong(x, cache, rows):
        cache["last"] = x + (1 if len(x) != 2 else 2)
        rows.append(len(x))
        rows[0] = 1000
        return x

    def less(x, cache, rows):
        cache["last"] = x + 1
        if len(x) != 2:
            rows.append(len(x))
        rows[0] = 1000
        return x

    def call(function):
        return call_with(function, (torch.zeros(4, 2), {"first": torch.ones(1)}, [1000]))

    for other in (wrong, less):
        differing = list_differing(call(fill), call(other))
        assert {label for _, label in differing} == {"size 4 → 2"}, other
    assert not list_differing(call(fill), call(fill))


@needs_fork
def test_functions_modules_and_methods_are_called_compiled():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x)

        @torch.compile(backend="eager")
        def loss(self, x):
            return self.layer(x).sum()

    def run():
        model, other, third = Model(), Model(), Model()
        model.loss(torch.ones(3, 2))
        other.compile(backend="eager")
        other(torch.ones(3, 2))
        with torch.no_grad():
            torch.compile(third, backend="eager")(torch.ones(5, 2))

    _, ended, events = vary(run)
    made = events.of(wire.CallVaried)
    assert not ended[0].left_out
    assert {(its.function.function.rpartition(".")[2], its.call) for its in made} == {
        ("loss", f"training, {KIND}"),
        ("forward", f"training, {KIND}"),
        ("forward", f"training, no {KIND}"),
    }
    assert sum(its.compiles for its in made if its.variation == "as it was") == 3
    assert all(its.raised is None for its in made if "dimension 1" not in its.variation)


@needs_fork
def test_a_boundary_is_called_in_place_of_the_compiled_calls_inside_it():
    model = torch.compile(torch.nn.Linear(2, 2), backend="eager")

    class Trainer:
        def step(self, x, *, scale=1.0):
            x = x[:2] * scale
            return model(x)

    trainer = Trainer()

    def run():
        for size in (3, 4):
            trainer.step(torch.ones(size, 2), scale=2.0)
        model(torch.ones(9, 2))

    place = get_definition(Trainer.step)
    _, ended, events = vary(run, [place])
    assert not ended[0].left_out
    made = events.of(wire.CallVaried)
    labels = {its.variation for its in made if its.function == place}
    assert {"size 4 → 1", "size 4 → 17", "values of scale + 0.1", "gradients off"} <= labels
    at = {its.function.function for its in made if "9 →" in its.variation}
    assert at == {"Linear.forward"}, at
    callers = {seen.callers[:1]: seen.parameters[:1] for seen in events.of(wire.CallersSeen)}
    assert callers[(place,)] == (("self", "x", "scale"),)


def test_what_the_object_of_a_boundary_holds_is_varied_and_compared():
    """A count of `self` is no argument of a method that is not compiled itself, and what a call
    writes may be in a module that `self` holds."""

    class Trainer:
        def __init__(self):
            self.steps, self.model = 0, torch.nn.Linear(2, 2)
            self.compiled = torch.compile(self.model, backend="eager")

        def step(self, x):
            self.steps += 1
            loss = (self.compiled(x) * min(self.steps, 20)).sum()
            with torch.no_grad():
                self.model.bias += loss

    trainer = Trainer()

    def run():
        for _ in range(3):
            trainer.step(torch.ones(4, 2))

    made, _, _ = vary(run, [get_definition(Trainer.step)])
    by_label = {label: its for (_, label), its in made.items()}
    far = by_label["values of .steps × 1e6"]
    assert far.digest != by_label["as it was"].digest
    assert "bias']=float32[2]" in far.structure


def test_a_kind_that_comes_late_is_kept_though_not_every_call_is_looked_at():
    def run():
        compiled = torch.compile(torch.nn.Linear(2, 2), backend="eager")
        for _ in range(70):
            compiled(torch.ones(3, 2))
        with torch.no_grad():
            compiled(torch.ones(5, 2))
        compiled(torch.ones(4, 2))

    made, _, _ = vary(run)
    assert (f"training, no {KIND}", "size 5 → 4") in made
    assert (f"training, {KIND}", "size 4 → 5") in made


def test_what_is_left_out_is_said():
    def total(rows):
        return sum(rows)

    def many(x, mode):
        return x * len(mode)

    def run():
        compiled = torch.compile(total, backend="eager")
        compiled(iter([torch.ones(2)]))
        other = torch.compile(many, backend="eager")
        for count in range(10):
            other(torch.ones(2), [None] * count)

    made, ended, _ = vary(run)
    text = "\n".join(ended[0].left_out)
    assert "rows is an iterator, which a call uses up" in text
    assert "kinds of calls after the first 8" in text
    assert not any("total" in its.function.function for its in made.values())


@needs_fork
def test_a_call_that_fails_is_an_outcome():
    def check(x):
        assert x.shape[0] != 1, "too few"
        torch._dynamo.graph_break()
        return x if x.shape[0] != 2 else sys.exit(4)

    made, ended, _ = vary(call_with(check, (torch.ones(3, 2),)))
    assert made[KIND, "size 3 → 1"].raised.startswith(("AssertionError", "RuntimeError"))
    assert made[KIND, "size 3 → 2"].raised == "SystemExit: 4"
    assert made[KIND, "size 3 → 17"].raised is None
    assert not ended[0].left_out


@pytest.fixture
def forking(monkeypatch):
    """Calls are made in a fork, whatever threads autograd has by the tests before: they need none
    of them."""
    monkeypatch.setattr(forked, "can_fork", lambda *_: True)


def test_where_autograd_cannot_run_in_a_fork_there_is_none(tmp_path, monkeypatch):
    """As of a build for CUDA without a device, behind a backward of the program."""

    def fail(*_, **__):
        raise RuntimeError("Unable to handle autograd's threading")

    monkeypatch.setattr(torch.Tensor, "backward", fail)
    assert not forked.can_fork(torch, str(tmp_path / "tried"))


def test_a_crash_of_the_process_is_an_outcome_too(forking):
    def crash(x):
        torch._dynamo.graph_break()
        if x.shape[0] == 2:
            os.abort()
        return x

    made, ended, _ = vary(call_with(crash, (torch.ones(3, 2),)))
    assert made[KIND, "size 3 → 2"].raised == "the process ended by signal 6"
    assert "size 3 → 2: the process ended by signal 6" in ended[0].left_out[-1]
    assert (KIND, "size 3 → 4") in made
    assert (KIND, "size 3 → 16") not in made


def test_a_fault_of_ours_is_one_and_no_end_of_the_process(monkeypatch):
    def fail(*_):
        raise RuntimeError("ours")

    monkeypatch.setattr(varied_calls, "list_variations", fail)
    events = list[wire.Event]()
    session = Session(events.append)
    keeper = CallKeeper(session, torch, wire.RecordingPlan(seed=1, vary_s=60.0))
    kept = KeptCallable(wire.Location("f.py", 1, "f"), None, frozenset(), ())
    kept.kinds[0] = KeptCall("kind", (), {}, CallModes())
    keeper.callables[0] = kept
    varied_calls.vary_calls(session, torch, keeper, 60.0, 0.0)
    fault, ended = events
    assert fault.where == "recording: varied calls"
    assert "ours" in fault.error
    assert not ended.left_out


def test_in_a_process_group_nothing_is_called(tmp_path):
    distributed = torch.distributed
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        made, ended, _ = vary(call_with(torch.sin, (torch.ones(3),)))
    finally:
        distributed.destroy_process_group()
    assert not made
    assert ended[0].left_out[0].startswith("every call: processes of torch.distributed wait")


def test_the_limit_of_seconds_holds(forking, monkeypatch):
    """For a call that does not end, and for calls that take long together: three times as long."""
    monkeypatch.setattr(forked, "GRACE_S", 0.5)
    made, ended, _ = vary(call_with(wait_in_fork, (torch.ones(5, 2),)), vary_s=2.0)
    assert ended[0].seconds < 10
    assert not made
    assert "takes too long" in ended[0].left_out[-1]


@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "the time limit of the run")]
)
def test_a_signal_leaves_out_what_is_to_come(number, why, forking, monkeypatch):
    """The process itself goes on to its end; what it does at the signal is as it was."""
    real = forked._wait

    def wait(child, deadline):
        timer = threading.Timer(0.5, os.kill, (os.getpid(), number))
        timer.start()
        try:
            return real(child, deadline)
        finally:
            timer.cancel()

    monkeypatch.setattr(forked, "_wait", wait)
    handler = signal.signal(number, signal.SIG_IGN)
    try:
        made, ended, _ = vary(call_with(wait_in_fork, (torch.ones(5, 2),)))
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, handler)
    assert not made
    assert (ended[0].interrupted, ended[0].timed_out) == (why == "Ctrl-C", why != "Ctrl-C")
    assert ended[0].left_out[-1].endswith(f": {why}")


def test_ctrl_c_ends_the_calls_without_a_fork_too(monkeypatch, tmp_path):
    """It is not taken for what the program raises with other inputs."""
    monkeypatch.setattr(forked, "can_fork", lambda *_: False)
    calls = tmp_path / "calls"  # a file: it is not put back

    def call(x):
        torch._dynamo.graph_break()
        with open(calls, "a") as stream:
            stream.write("x")
        if calls.stat().st_size > 1:
            signal.raise_signal(signal.SIGINT)
        return x

    made, ended, _ = vary(call_with(call, (torch.ones(5, 2),)))
    assert not made
    assert calls.read_text() == "xx"
    assert ended[0].interrupted


def test_calls_for_which_no_time_is_left_are_counted():
    def wait(x):
        torch._dynamo.graph_break()
        time.sleep(0.3)
        return x

    made, ended, _ = vary(call_with(wait, (torch.ones(5, 2),)), vary_s=1.0)
    assert (KIND, "as it was") in made
    assert any("for which no time was left in" in text for text in ended[0].left_out)


@needs_fork
def test_calls_beyond_the_run_for_which_no_time_is_left_are_counted(monkeypatch):
    """They have a share of it."""
    monkeypatch.setattr(varied_calls, "APART_SHARE", 0.0)
    _, ended, _ = vary(call_with(lambda x: x * 2, (torch.ones(5, 2),)))
    assert "beyond the run, for which no time was left" in ended[0].left_out[-1]


@needs_fork
def test_a_program_that_compiles_for_long_has_more_time(monkeypatch):
    """But none is left for its own backend where that would take as long again."""

    def wait(x):
        torch._dynamo.graph_break()
        time.sleep(0.2)
        return x

    monkeypatch.setattr(torch_replay, "read_compile_seconds", lambda: 20.0)
    monkeypatch.setattr(varied_calls, "COMPILES", 1.0)
    made, ended, _ = vary(call_with(wait, (torch.ones(5, 2),)), vary_s=0.1)
    assert (KIND, "size 5 → 1") in made
    assert (KIND, "size 5 → 1, own backend") not in made
    assert "2 of 26 calls, for which no time was left in 20 s" in ended[0].left_out[-1]


def test_without_a_fork_the_process_itself_makes_the_calls(monkeypatch, capfd):
    """And is as it was before: values, gradients, generators, options, counters of the program."""
    monkeypatch.setattr(forked, "can_fork", lambda *_: False)
    model = Normalised()
    compiled = torch.compile(model, backend="eager")
    state = []

    def run():
        compiled(torch.randn(4, 3)).sum().backward()
        state.append((dict(model.state_dict()), model.norm.weight.grad.clone()))
        state.append((torch.get_rng_state(), torch._dynamo.config.recompile_limit))

    made, ended, events = vary(run)
    assert "beyond the run, which need a fork" in ended[0].left_out[-1]
    assert len(made) > 8
    assert {label for (_, label), its in made.items() if its.raised} <= {
        *(f"dimension 1 of x: 3 → {size}" for size in (4, 6)),  # another number of features
        "size 4 → 1",  # batch norm takes no such batch
        "size 4 → 1, own backend",
    }
    assert capfd.readouterr() == ("", "")
    tensors, gradient = state[0]
    assert all(value.equal(tensors[name]) for name, value in model.state_dict().items())
    assert model.norm.weight.grad.equal(gradient)
    assert model.seen == [4]
    assert torch.get_rng_state().equal(state[1][0])
    assert torch._dynamo.config.recompile_limit == state[1][1]
    assert len(events.of(wire.Compiled)) == 1


PROGRAM = """
    import atexit, logging, os, sys
    import torch
    from torch._dynamo.utils import counters

    torch.set_num_threads(2)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    calls = []

    @torch.compile
    def step(x):
        return model(x).softmax(-1)

    @torch.compiler.disable
    def note(x):
        calls.append(len(x))
        print("noted", len(x), flush=True)
        os.write(2, b"noted\\n")
        logging.error("noted %d", len(x))

    @torch.compile(backend="eager")
    def told(x):
        note(x)
        return x + 1

    @atexit.register
    def show():
        print(dict(counters["stats"]), dict(counters["frames"]), calls)

    for size in (500, 600, 700):
        step(torch.ones(size, 64)).sum().backward()
        told(torch.ones(size, 2))
    sys.exit(3)
"""


def run_program(tmp_path, vary_s):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    environment, run = dict(os.environ), tmp_path / "run"
    if vary_s:
        run.mkdir()
        environment = make_child_environment(environment, str(run))
        recording = wire.RecordingPlan(seed=1, vary_s=vary_s)
        plan = wire.TrialPlan(recording=recording)
        (tmp_path / "plan.json").write_text(json.dumps(dataclasses.asdict(plan)))
        environment["COMPILEDIAG_TRIAL"] = str(tmp_path / "plan.json")
    program = [sys.executable, "program.py"]
    done: subprocess.CompletedProcess[str] = captured(*program, cwd=tmp_path, env=environment)
    return done, fold([journal.events for journal in read_run(str(run))]) if vary_s else None


@needs_fork
def test_the_program_notices_nothing(tmp_path):
    """Two threads, the default backend: output, exit code and Dynamo's counters are those of a
    plain run, and no call made again reaches a file or the journal but by its outcome."""
    plain, _ = run_program(tmp_path, 0)
    recorded, timeline = run_program(tmp_path, 60.0)
    assert recorded.returncode == plain.returncode == 3
    assert recorded.stdout == plain.stdout
    # Of a build for CUDA torch says, with the time and the process, that there is no device.
    stamp = re.compile(r"^(W\d+ )[\d:.]+ \d+ ", re.MULTILINE)
    assert stamp.sub(r"\1", recorded.stderr) == stamp.sub(r"\1", plain.stderr)
    assert recorded.stderr.count("noted") == 6
    made = timeline.varied_calls
    assert {"size 700 → 1, own backend", "size 700 → 701, own backend"} <= {
        m.variation for m in made
    }
    assert {its.raised for its in made if "dimension 1" not in its.variation} == {None}
    # The graphs of the program serve a size that it had made dynamic.
    assert {m.compiles for m in made if m.variation == "size 700 → 701, own backend"} == {0}
    assert len(timeline.processes) == 1
    assert not timeline.varying_ends[0].left_out


def test_a_branch_on_data_that_no_call_took_is_taken_where_values_are_negated_or_zero():
    def before(x, scale):
        return x * scale if x.mean() > 0 else x - 1

    def after(x, scale):
        return torch.where(x.mean() > 0, x * scale, x + 1)

    calls = [(torch.ones(2, 3), torch.ones(1))]
    differing = list_differing(call_with(before, *calls), call_with(after, *calls))
    assert {label for _, label in differing} == {"values of x negated", "values of x zero"}


@needs_fork
def test_a_branch_on_what_layers_give_is_taken_where_their_parameters_are_negated():
    class Branching(torch.nn.Module):
        def __init__(self, below):
            super().__init__()
            self.bias, self.below = torch.nn.Parameter(torch.full((3,), 9.0)), below

        def forward(self, x):
            h = torch.tanh(x) + self.bias
            return torch.where(h.mean() > 0, h * 2, h - self.below)

    calls = [(torch.rand(n, 3),) for n in (2, 3)]
    old = call_with(Branching(1.0), *calls)
    assert list_beyond(old, call_with(Branching(0.0), *calls)) == {"all parameters negated"}


def test_a_call_begins_with_the_small_state_that_it_found():
    """A count that moves out of the call, and a buffer that grew, are as they were then."""

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.count, self.rows = 0, torch.zeros(0, 2)

        def forward(self, x):
            self.count += 1
            self.rows = torch.cat([self.rows, x[:1]])
            return x * self.count + len(self.rows)

    def counted(x, count):
        return x * count + count

    x = torch.ones(2, 2)
    before, _, _ = vary(call_with(Counting(), *[(x,)] * 5))
    after, _, _ = vary(call_with(counted, *[(x, torch.tensor(float(n))) for n in range(1, 6)]))
    old, new = (
        {label: its.digest for (_, label), its in made.items() if "size" in label}
        for made in (before, after)
    )
    assert old
    assert old == new


def test_a_tensor_without_memory_of_its_own_is_no_fault():
    """A sparse buffer, as Whisper's `alignment_heads`, has no bytes to copy: calls are kept."""

    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("heads", torch.eye(3).bool().to_sparse(), persistent=False)

        def forward(self, x):
            return x * 2

    made, _, events = vary(call_with(Heads(), *SIZES))
    assert not events.of(wire.FaultOccurred)
    assert any("size" in label for _, label in made)


def test_what_a_varied_call_overwrites_is_not_put_back(monkeypatch, forking):
    """As the output of a CUDA graph that a module keeps: torch raises where it is compared."""
    compare = side_effects.is_equal

    def compare_until_overwritten(its, before, value):
        if is_tensor(value) and value.shape == (3,):
            raise RuntimeError("CUDAGraphs: overwritten by a subsequent run.")
        return compare(its, before, value)

    class Keeping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.output = torch.ones(3)

        def forward(self, x):
            return x * 2

    monkeypatch.setattr(side_effects, "is_equal", compare_until_overwritten)
    made, _, events = vary(call_with(Keeping(), *SIZES))
    assert len(made) > 2
    assert not events.of(wire.FaultOccurred)


def test_a_call_that_could_not_be_read_is_not_half_kept(monkeypatch):
    """Else all calls that are made at the end are lost with it."""

    def fail(*_):
        raise RuntimeError("as a tensor that cannot be read")

    monkeypatch.setattr(CallKeeper, "_read_small_state", fail)
    with pytest.raises(AssertionError, match="cannot be read") as caught:
        vary(call_with(lambda x: x * 2, *SIZES))
    assert "varied calls" not in str(caught.value)


def test_what_a_dictionary_makes_of_its_items_is_not_run():
    """As that of transformers' activations makes an instance of a class."""

    class Instances(collections.OrderedDict):
        def __getitem__(self, key):
            return super().__getitem__(key)()

    class Choosing(torch.nn.Module):
        def forward(self, x):
            return x * 2

    model = Choosing()
    model.instances = Instances(one=torch.nn.Identity)
    made, _, events = vary(call_with(model, *SIZES))
    assert len(made) > 1
    assert events.of(wire.FaultOccurred) == []


class Holder:
    """An object of the program's, as a cache is."""

    def __init__(self, tensor):
        self.tensor = tensor


@pytest.fixture
def as_on_a_device(monkeypatch):
    """Every tensor counts as one of a device, of which there is one."""

    def find_device(_keeper, leaf):
        return torch.device("cpu") if is_tensor(leaf) else None

    monkeypatch.setattr(CallKeeper, "_find_device", find_device)
    monkeypatch.setattr(torch_api, "is_cuda_in_use", lambda _: True)
    monkeypatch.setattr(torch.version, "cuda", None)  # no step is timed by its events
    monkeypatch.setattr(forked, "has_accelerator", lambda _: True)
    monkeypatch.setattr(forked, "can_fork", lambda *_: True)
    monkeypatch.setattr(torch_replay, "copy_to_host", lambda _, its: its.detach().clone())


def test_memory_of_a_device_is_copied_at_the_first_calls_and_at_fewer_later(as_on_a_device):
    """Of twenty calls the sixteenth is the last that is kept, as it was then."""
    function = torch.compile(lambda x: x.sum(), backend="eager")

    def run():
        x = torch.zeros(3)
        for _ in range(20):
            x += 1
            function(x)

    made, _, _ = vary(run)
    once, _, _ = vary(lambda: function(torch.full((3,), 16.0)))
    key = "gradients; float32[1d]", "as it was"
    assert (made[key].number, made[key].digest) == (15, once[key].digest)


def test_nothing_is_copied_while_the_program_captures_a_graph(as_on_a_device, monkeypatch):
    monkeypatch.setattr(torch_api, "is_cuda_in_use", lambda _: False)
    function = torch.compile(lambda x: x.sum(), backend="eager")
    made, (ended,), _ = vary(lambda: function(torch.ones(3)))
    assert not made
    assert "in the capture of a CUDA graph" in ended.left_out[0]


def test_no_object_of_the_program_lives_longer_where_memory_of_a_device_may_be_in_it(
    as_on_a_device,
):
    """One that is gone at the end is named; the call of one that lives is made."""
    function = torch.compile(lambda holder: holder.tensor * 2, backend="eager")
    living = Holder(torch.ones(2))
    made, _, _ = vary(lambda: function(living))
    assert made
    made, (ended,), _ = vary(lambda: function(Holder(torch.ones(2))))
    assert not made
    assert ended.left_out[0].endswith("holder is an object that is gone")


def test_settings_of_our_own_warn_of_nothing(tmp_path):
    """torch 2.11 warns that one of them turns another off; the program may make errors of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch_replay.isolate_compiles(str(tmp_path)):
            warnings.warn("of ours", stacklevel=1)


def test_a_device_that_a_call_of_ours_broke_ends_the_process_with_its_own_code(monkeypatch):
    """Finalizers of tensors would abort it."""
    active = trial.ActiveTrial(wire.TrialPlan())
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    active.end_process_if_broken()
    assert not ended
    active._is_device_broken = True
    active.end_process_if_broken()
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    active.end_process_if_broken()
    assert ended == [0, 1]
