"""Calls of compiled callables: how often in a step, with which shapes, and what work that was."""

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from built_receipt import built
from msgspec.structs import replace
from timelines import timeline
from torch.overrides import TorchFunctionMode

from compilediag.compare.diff import compare
from compilediag.diagnosis.figures.invocations import (
    MAX_SHAPES,
    build_invocations_section,
    compute_work,
    list_invocations,
)
from compilediag.errors import ConfigurationsNotComparable
from compilediag.receipt.schema.invocations import PerStep, Throughput
from compilediag.runs.watch import watch
from compilediag.timeline.invocations import Calls
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness.collectors import invocations
from compilediag_harness.collectors.invocations import (
    MAX_TENSORS,
    ShapeReader,
    format_shapes,
    get_first_sizes,
)
from compilediag_harness.shapes.side_effects import preserve_eagerly
from compilediag_harness.torch_internals import torch_calls
from compilediag_harness.wire import CompiledCallsMade, Location, StepsEnded

MODEL = Location("/home/user/app.py", 7, "Model.forward")
LOSS = Location("/home/user/app.py", 30, "loss")


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any, mask: Any = None) -> Any:
        return self.layer(x)


# --- shapes ---


def shapes(*args: Any, **kwargs: Any) -> str:
    return format_shapes(ShapeReader(torch).read(args, kwargs))


def test_shapes_are_those_of_tensors() -> None:
    """By position, by name, and one container deep; other values say nothing."""
    x, y = torch.ones(2, 3), torch.ones(())
    assert shapes() == ""
    assert shapes(x, "secret", 7, None, y) == "[2, 3], []"
    assert shapes(torch.nn.Parameter(x), mask=y) == "[2, 3], mask=[]"
    assert shapes([x, y], (x,), {"ids": x, 3: x}) == "[2, 3], [], [2, 3], ids=[2, 3]"
    assert shapes(batch={"ids": x, "deep": [x]}) == "batch.ids=[2, 3]"


def test_shapes_are_bounded() -> None:
    """A call with a thousand tensors costs what one with sixteen does."""
    assert shapes(*[torch.ones(1)] * 40) == ", ".join(["[1]"] * MAX_TENSORS + ["..."])
    assert shapes([torch.ones(1)] * 1000).endswith(", ...")


def test_samples_and_elements_are_of_the_first_tensor_with_sizes() -> None:
    """A scalar before it, such as a temperature, is none."""
    read = ShapeReader(torch).read((torch.ones(()), torch.ones(8, 16)), {"mask": torch.ones(3)})
    assert get_first_sizes(read) == (8, 16)
    none = ShapeReader(torch).read((torch.ones(()),), {})
    assert (get_first_sizes(none), get_first_sizes(None)) == ((), ())


def test_nobody_s_code_is_asked() -> None:
    """Neither the program's torch-function modes nor its subclasses see that a shape is read."""
    asked: list[Any] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append(func)
            return func(*args, **(kwargs or {}))

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    class Items(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            asked.append("iterated")
            return super().__iter__()

    x, mine = torch.ones(2), torch.ones(3).as_subclass(Mine)
    asked.clear()
    with Mode():
        text = shapes(x, mine, Items([x]))
    assert (text, asked) == ("[2], [Mine]", [])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_a_shape() -> None:
    """A nested tensor has none: that is told, and nothing raises."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert shapes(nested) == "[nested]"
    assert get_first_sizes(ShapeReader(torch).read((nested,), {})) == ()


# --- calls ---


def test_one_batched_call_a_step() -> None:
    """What the seed's test asserts: the model is called once a step, and a loop is found out."""
    compiled = torch.compile(Model(), backend="eager")
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)

    @torch.compile(backend="eager")
    def score(x: Any) -> Any:
        return x.square().mean()

    with watch() as seen:
        for _ in range(5):
            x = compiled(torch.ones(8, 4), mask=torch.ones(8))
            for part in x.detach().split(2):
                score(part)
            score(x.detach())
            x.sum().backward()
            optimizer.step()
    model, scores = seen.invocation("Model.forward"), seen.invocation("score")
    assert (model.calls, model.per_step.steps) == (5, 5)
    assert (model.per_step.min, model.per_step.median, model.per_step.max) == (1, 1, 1)
    assert [(item.shapes, item.count) for item in model.shapes] == [("[8, 4], mask=[8]", 5)]
    assert (model.samples, model.elements) == (40, 160)
    assert str(model.file).endswith("test_invocations.py")
    assert (scores.per_step.min, scores.per_step.max) == (5, 5)
    assert {item.shapes: item.count for item in scores.shapes} == {"[2, 4]": 20, "[8, 4]": 5}
    throughput = seen.receipt.throughput
    assert (throughput.samples, throughput.elements) == (80, 320), "the loss is called more often"
    with pytest.raises(LookupError, match=r"no callable named 'other'.*Model\.forward"):
        seen.invocation("other")


def test_two_modules_of_one_class_are_two() -> None:
    """Their calls are not added up, and asking for "the" one is an error."""
    first, second = (torch.compile(Model(), backend="eager") for _ in range(2))
    with watch() as seen:
        first(torch.ones(2, 4))
        second(torch.ones(2, 4))
        second(torch.ones(2, 4))
    assert [item.calls for item in seen.receipt.invocations] == [1, 2]
    with pytest.raises(LookupError, match="several callables"):
        seen.invocation("Model.forward")


def test_a_call_that_begins_a_step_is_in_it() -> None:
    """Where calls mark the steps, each step holds exactly the call that began it."""
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with watch() as seen:
        for _ in range(20):
            compiled(torch.ones(3))
    assert seen.timeline.steps[-1].source == "call"
    (calls,) = seen.receipt.invocations
    assert (calls.calls, calls.per_step.min, calls.per_step.max) == (20, 1, 1)


def test_calls_in_threads_are_counted() -> None:
    """Of every thread, without losing one."""
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(3))
    with watch() as seen:
        threads = [
            threading.Thread(target=lambda: [compiled(torch.ones(3)) for _ in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [item.calls for item in seen.receipt.invocations] == [200]


def test_nothing_is_kept_of_a_call() -> None:
    """The tensors of a call are freed as in a plain run."""
    import weakref

    compiled = torch.compile(lambda x: x.sum(), backend="eager")
    compiled(torch.ones(3))
    with watch():
        x = torch.ones(3)
        alive = weakref.ref(x)
        compiled(x)
        del x
        assert alive() is None


def test_calls_beyond_the_limit_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are counted; steps count as long as each call was told by itself."""
    monkeypatch.setattr(invocations, "MAX_RECORDED", 10)
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with watch() as seen:
        for _ in range(30):
            compiled(torch.ones(3))
    (calls,) = seen.receipt.invocations
    assert (calls.calls, calls.samples) == (30, 90)
    assert (calls.per_step.steps, calls.per_step.min, calls.per_step.max) == (9, 1, 1)


def test_shapes_and_callables_beyond_the_limits_are_counted(monkeypatch) -> None:
    """Nothing is lost but the detail; what is not known is not added up."""
    # The limit is one of each record.
    monkeypatch.setattr("compilediag_harness.base.session.BATCH_S", math.inf)
    monkeypatch.setattr(invocations, "MAX_SHAPES", 3)
    monkeypatch.setattr(invocations, "MAX_CALLABLES", 1)
    compiled = torch.compile(lambda x: x.sum(), backend="eager", dynamic=True)
    other = torch.compile(lambda x: x.sum() + 1, backend="eager")
    with watch() as seen:
        for size in range(2, 10):
            compiled(torch.ones(size))
        other(torch.ones(3))
    first, rest = seen.receipt.invocations
    assert (first.calls, len(first.shapes), first.other_shapes) == (8, 3, 5)
    assert first.samples is None
    assert (rest.name, rest.calls) == ("other callables", 1)


# --- folding ---


def batch(t: float, **changes: Any) -> CompiledCallsMade:
    values: dict[str, Any] = {
        "numbers": (0, 1),
        "functions": (MODEL, LOSS),
        "shapes": ("[8, 4]", "[2]", None),
        "samples": (8, 2, None),
        "elements": (32, 2, None),
        "callables": (0, 1),
        "shape_places": (0, 1),
        "counts": (2, 1),
        "order": (0, 0, 1),
        "at": (0.0, 0.5, 1.5),
        **changes,
    }
    return CompiledCallsMade(t, **values)


def steps(count: int = 3) -> StepsEnded:
    """Steps of a second each, the first from zero to one."""
    ends = tuple(float(number + 1) for number in range(count))
    return StepsEnded(float(count), 0, "optimizer", ends, (1.0,) * count)


def test_batches_are_added_up() -> None:
    """By callable; a row of a doctored record that points nowhere adds no call."""
    more = batch(3.0, order=(0, 9), at=(2.5, 2.6), shape_places=(0, 7))
    model, loss = fold([[batch(1.0), more]]).invocations
    assert (model.function, model.calls, model.at) == (MODEL, 4, (0.0, 0.5, 2.5))
    assert (loss.calls, [item.shapes for item in loss.shapes]) == (2, ["[2]", None])


def test_calls_belong_to_the_step_they_begin_in() -> None:
    """A call at the very end of a step begins the next; those outside all steps are in none."""
    at = (0.0, 0.5, 1.0, 1.2, 3.0)
    told = batch(3.0, callables=(0,), shape_places=(0,), counts=(5,), order=(0,) * 5, at=at)
    ((_, model),) = list_invocations(fold([[told, steps()]]))
    assert model.per_step == PerStep(steps=3, min=0, median=2, max=2)
    assert (model.samples, model.elements) == (40, 160)


def test_without_steps_there_is_nothing_per_step() -> None:
    """Null, and not zero."""
    (_, model), _ = list_invocations(fold([[batch(1.0)]]))
    assert model.per_step is None


def test_the_callable_that_tells_the_work() -> None:
    """The model, and not a loss that is given more, nor something called once before it."""
    setup = Location("/home/user/app.py", 1, "setup")
    once = batch(
        0.1, numbers=(5,), functions=(setup,), callables=(5,), shape_places=(0,), counts=(1,),
        order=(), at=(),
    )  # fmt: skip
    often = batch(3.0, callables=(0, 1), shape_places=(1, 0), counts=(10, 10), order=(), at=())
    work = compute_work(fold([[once, often, steps()]]))
    assert (work.callable, work.samples, work.elements) == ("Model.forward", 20, 20)
    assert work.samples_per_s is None, "no call was told by itself"
    told = batch(3.0, counts=(2, 1))
    assert compute_work(fold([[told, steps(2)]])).samples_per_s == 8.0


def test_unknown_samples_are_no_budget() -> None:
    """Shapes that were too many to be told apart leave the work unknown."""
    told = batch(3.0, callables=(0, 0), shape_places=(0, 2), counts=(1, 1), order=(), at=())
    assert compute_work(fold([[told]])) is None
    assert compute_work(Timeline()) is None


def test_the_most_frequent_shapes_are_kept() -> None:
    """And the rest counted."""
    count = MAX_SHAPES + 4
    told = batch(
        1.0,
        shapes=tuple(f"[{size}]" for size in range(count)),
        samples=(1,) * count,
        elements=(1,) * count,
        callables=(0,) * count,
        shape_places=tuple(range(count)),
        counts=tuple(range(1, count + 1)),
        order=(),
        at=(),
    )
    made = fold([[told]])
    (model,) = build_invocations_section(made)
    assert (len(model.shapes), model.shapes[0].shapes) == (MAX_SHAPES, f"[{count - 1}]")
    assert model.other_shapes == 1 + 2 + 3 + 4


# --- budgets ---


def with_work(receipt: Any, **work: Any) -> Any:
    return replace(receipt, throughput=Throughput(**work))


def test_runs_of_different_budgets_are_not_compared() -> None:
    """`diff` says what differs; it goes on where one of the two is not known."""
    known = with_work(built(), callable="Model.forward", samples=40, elements=160)
    less = with_work(built(), callable="Model.forward", samples=32, elements=160)
    longer = with_work(built(), callable="Model.forward", samples=40, elements=320)
    with pytest.raises(
        ConfigurationsNotComparable, match=r"Model.forward was given 40 samples and 32\."
    ):
        compare(known, less)
    with pytest.raises(ConfigurationsNotComparable, match="160 elements and 320"):
        compare(known, longer)
    unknown = with_work(built())
    other = with_work(built(), callable="Other.forward", samples=1)
    for after in (known, unknown, other, replace(built(), throughput=None)):
        assert compare(known, after).counts


def test_the_process_that_tells() -> None:
    """Ranks do the same work side by side; it is not added up."""
    one = Calls(0, MODEL, 3, (), (), ())
    two = Calls(1, MODEL, 3, (), (), ())
    assert len(list_invocations(timeline(invocations=(one, two)))) == 1


def test_the_programs_stance_stays_its_own_beside_a_trial_of_ours() -> None:
    """A trial of `FixedShape` runs eager for itself, and puts back what the program had set: calls
    after it are the program's under its own stance."""
    remove = torch_calls.watch_stance(invocations.record_stance)
    assert remove is not None
    try:
        torch.compiler.set_stance("eager_on_recompile")
        before = invocations.find_eager_stance()
        assert before[0] == "eager_on_recompile"
        assert before[1].file == __file__
        with preserve_eagerly(torch, torch.sin):
            assert invocations.find_eager_stance() is None
        assert invocations.find_eager_stance() == before
        torch.compiler.set_stance("default")
        assert invocations.find_eager_stance() is None
    finally:
        torch.compiler.set_stance("default")
        remove()
