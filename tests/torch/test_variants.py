"""Wanted variants and recompiles that can be avoided, in programs whose truth is known."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import compilediag as cd

Counted = tuple[int, int, int]
"""Wanted, avoidable, undecided."""


class Held(nn.Module):
    """Reads what it holds as a Python value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Any) -> Any:
        return x * len(self.value) if self.value else x.sum()


class Filled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table: Any = None

    def forward(self, x: Any) -> Any:
        if self.table is None:
            self.table = torch.ones(3)
        return x * self.table


def compiled(function: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="eager", **options)


def train_and_eval(epochs: int = 4) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout())
    run = compiled(model)
    for _ in range(epochs):
        for training in (True, True, True, False, False):
            model.train(training)
            with torch.set_grad_enabled(training):
                run(torch.ones(2, 3))


def eval_at_the_end() -> None:
    """Whether it will come again is not seen, but there is no third mode."""
    model = nn.Dropout()
    run = compiled(model)
    for number in range(12):
        model.train(number < 9)
        run(torch.ones(3))


def flag_of_one_call() -> None:
    run = compiled(lambda x, reverse=False: x.flip(0) if reverse else x.sum())
    for number in range(12):
        run(torch.ones(3), reverse=number == 4)


def two_calls() -> None:
    run = compiled(lambda x, reverse: x.flip(0) if reverse else x.sum())
    run(torch.ones(3), False), run(torch.ones(3), True)


def none_in_the_last_call() -> None:
    run = compiled(lambda x, y=None: x.sum() if y is None else x * y)
    for number in range(8):
        run(torch.ones(3), torch.ones(3) if number < 7 else None)


def string_in_the_last_call() -> None:
    """There may be others."""
    run = compiled(lambda x, how: x.sum() if how == "sum" else x.mean())
    for number in range(8):
        run(torch.ones(3), "sum" if number < 7 else "mean")


def layers_frozen_one_by_one() -> None:
    """Each is a value of its own, and there is always another one."""
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    run = compiled(model)
    for number in range(12):
        if number % 3 == 2:
            model[number // 3].requires_grad_(False)
        run(torch.ones(2, 3))


def buckets() -> None:
    run, draw = compiled(lambda x: x.sum(), dynamic=False), random.Random(0)
    for _ in range(24):
        run(torch.ones(draw.choice((64, 128, 256))))


def shapes_of_parameters() -> None:
    run = compiled(lambda p, g: p - g, dynamic=False)
    for _ in range(6):
        for shape in ((4, 4), (4,), (2, 3)):
            run(torch.ones(shape), torch.ones(shape))


def prompt_and_tokens() -> None:
    run = compiled(lambda x: x.sum(), dynamic=False)
    for size in (17, *[1] * 12):
        run(torch.ones(1, size))


def flag_that_alternates() -> None:
    model = Held("")
    run = compiled(model)
    for number in range(12):
        model.value = "capture" * (number % 3 == 1)
        run(torch.ones(3))


def flag_that_turned_for_good() -> None:
    """A phase, or what is ready from then on: the run does not show it."""
    model = Held("")
    run = compiled(model)
    for number in range(12):
        model.value = "phase" * (number > 1)
        run(torch.ones(3))


def list_that_grows() -> None:
    model = Held([1])
    run = compiled(model)
    for _ in range(7):
        run(torch.ones(3))
        model.value.append(1)


def value_of_each_epoch() -> None:
    """Each serves several calls, and there is always another one."""
    model = Held("a")
    run = compiled(model)
    for number in range(15):
        model.value = "a" * (1 + number // 3)
        run(torch.ones(3))


def number_that_counts_up_to_the_limit() -> None:
    """Two calls for each number: after the limit torch compiles nothing that could be counted."""
    group = {"step": 0}
    run = compiled(lambda x, group: x * math.pow(0.9, group["step"]))
    for _ in range(30):
        group["step"] += 1
        run(torch.ones(3), group)
        run(torch.ones(3), group)


def numbers_of_a_schedule_past_the_limit() -> None:
    """They come back in each round, and only eight of them have a graph."""
    group = {"time": 0.0}
    run = compiled(lambda x, group: x * math.pow(0.9, group["time"]))
    for _ in range(3):
        for number in range(20):
            group["time"] = number / 20
            run(torch.ones(3), group)


def attribute_that_is_filled() -> None:
    run = compiled(Filled())
    for _ in range(8):
        run(torch.ones(3))


def one_odd_batch() -> None:
    run = compiled(lambda x: x.sum(), dynamic=False)
    for number in range(20):
        run(torch.ones(7 if number == 5 else 32))


def reset_between() -> None:
    run = compiled(lambda x: x.sum(), dynamic=False)
    for _ in range(2):
        torch._dynamo.reset()
        for number in range(6):
            run(torch.ones(3 + number % 2))


def a_prompt_then_tokens() -> None:
    """Late in the run, and for one graph each: torch makes one for 1 and one for all others."""
    run = compiled(lambda x: x.sum())
    for size in (5, 7, 6, 9, 8, 1, 1, 1):
        run(torch.ones(size))


def a_last_batch_of_one() -> None:
    """Nothing shows that it comes again."""
    run = compiled(lambda x: x.sum())
    for size in (5, 5, 5, 5, 5, 1):
        run(torch.ones(size))


def until_the_block_is_full() -> None:
    run = compiled(lambda x: x.sum() if x.shape[0] == 16 else x * 2)
    for size in (8, 9, 10, 12, 14, 15, 16, 16, 16):
        run(torch.ones(size))


TRUTHS: list[tuple[Callable[[], None], Counted]] = [
    (train_and_eval, (1, 0, 0)),
    (eval_at_the_end, (1, 0, 0)),
    (flag_of_one_call, (1, 0, 0)),
    (two_calls, (0, 0, 1)),
    (none_in_the_last_call, (1, 0, 0)),
    (string_in_the_last_call, (0, 0, 1)),
    (layers_frozen_one_by_one, (0, 0, 4)),
    (buckets, (2, 0, 0)),
    (shapes_of_parameters, (2, 0, 0)),
    (prompt_and_tokens, (1, 0, 0)),
    (flag_that_alternates, (1, 0, 0)),
    (flag_that_turned_for_good, (0, 0, 1)),
    (list_that_grows, (0, 6, 0)),
    (value_of_each_epoch, (0, 4, 0)),
    (number_that_counts_up_to_the_limit, (0, 7, 0)),
    (numbers_of_a_schedule_past_the_limit, (0, 0, 7)),
    # 2.7 guards what the attribute holds in a way that leaves it open.
    (attribute_that_is_filled, (0, 0, 1) if torch.__version__.startswith("2.7.") else (0, 1, 0)),
    (one_odd_batch, (0, 1, 0)),
    (a_prompt_then_tokens, (2, 0, 0)),
    (a_last_batch_of_one, (0, 0, 1)),
    (until_the_block_is_full, (2, 0, 0)),
    (reset_between, (0, 2, 0)),
]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("program", "truth"), TRUTHS, ids=lambda part: getattr(part, "__name__", "")
)
def test_truth(program: Callable[[], None], truth: Counted) -> None:
    with cd.watch() as seen:
        program()
    part = seen.receipt.compile
    assert (part.wanted, part.avoidable, part.undecided) == truth
    assert sum(truth) == part.recompiles


def test_without_a_record_of_calls_nothing_is_decided() -> None:
    """A trace has neither steps nor what served the calls."""
    with cd.watch() as seen:
        train_and_eval()
    from dataclasses import replace

    from compilediag.rules.diagnose import diagnose

    bare = replace(seen.timeline, served=(), steps=(), invocations=())
    assert set(diagnose(bare).needs.values()) == {"undecided"}


def test_a_wanted_variant_of_the_warm_up_is_no_warning() -> None:
    """Both shapes are compiled first in step 0, as in the first step of an optimizer's kernels."""
    with cd.watch() as seen:
        run = compiled(lambda p: p * 2, dynamic=False)
        for _ in range(6):
            for rows in (2, 3):
                run(torch.ones(rows))
            cd.step()
    (finding,) = seen.findings
    assert (finding.severity, seen.receipt.verdict) == ("info", "clean")
    assert "pad" not in finding.fix.summary


def test_what_changes_with_the_first_call_of_a_mode_is_a_note() -> None:
    """Evaluation has another size: it needs a graph of its own whatever its size is."""
    with cd.watch() as seen:
        run = compiled(lambda x: x.sum(), dynamic=False)
        for number in range(8):
            with torch.set_grad_enabled(number < 7):
                run(torch.ones(4 if number < 7 else 3, requires_grad=True))
    severities = {found.rule: found.severity for found in seen.findings}
    assert severities == {"CD105": "info", "CD111": "info"}
    assert seen.receipt.compile.wanted == 1


def test_the_limit_that_is_enough_for_wanted_variants() -> None:
    """Ten sizes with eight variants: torch counts that ten are enough."""
    with cd.watch() as seen:
        run = compiled(lambda x: x.sum(), dynamic=False)
        for _ in range(5):
            for rows in range(2, 12):
                run(torch.ones(rows))
    caveat = next(found.fix.caveat for found in seen.findings if found.rule == "CD152")
    assert "recompile_limit = 10 is enough" in (caveat or "")
    with torch._dynamo.config.patch(recompile_limit=10), cd.watch() as seen:
        run = compiled(lambda x: x.sum(), dynamic=False)
        for rows in range(2, 12):
            run(torch.ones(rows))
    assert (seen.receipt.compile.recompiles, seen.receipt.compile.recompile_limit_hits) == (9, 0)
