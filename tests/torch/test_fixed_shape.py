"""`FixedShape`: batches of any size at a few sizes, with the results of the callable itself."""

import dataclasses
import functools
import inspect
import threading
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounter

from compilediag.rules.bucket_plan import PlanLimits, make_bucket_plans
from compilediag.runs.watch import watch
from compilediag.timeline.fixed_shapes import collect_fixed_shapes
from compilediag_harness.base.session import Session
from compilediag_harness.shapes import shape_log
from compilediag_harness.shapes.dims import CompiledAfterWarmup, ShapeUnusable
from compilediag_harness.shapes.fixed_shape import FixedShape
from compilediag_harness.shapes.side_effects import preserve_eagerly
from compilediag_harness.torch_internals import torch_calls
from compilediag_harness.wire import FixedShapeUsed

nn = torch.nn
WIDTH = 4


class Pair(NamedTuple):
    ids: Any
    obs: Any


@dataclasses.dataclass(frozen=True)
class Batch:
    obs: Any
    scale: float
    extra: dict[str, Any]


def batch(rows: int, width: int = WIDTH) -> Any:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))


class Seen:
    """A callable that remembers the shapes it was given."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, x: Any) -> Any:
        self.shapes.append(tuple(x.shape))
        return x * 2.0


def fixed_of(function: Any, buckets: Any = (4, 8), **settings: Any) -> FixedShape:
    """With the outputs given, so that the callable is only called for batches."""
    return FixedShape(function, {"x": 0}, list(buckets), out_dims={"": 0}, **settings)


# --- sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 8, 9, 21])
def test_every_size_has_the_result_of_the_callable(rows: int, grad: bool) -> None:
    """Empty, single, exact, padded and split batches."""
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, 2)
    fixed = FixedShape(model, {"input": 0}, [4, 8])
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(fixed(batch(rows)), model(batch(rows)))


def test_only_the_sizes_are_run() -> None:
    """Whatever comes, the callable sees the sizes and nothing else, of an empty batch nothing; a
    split is the cheapest."""
    seen = Seen()
    fixed = fixed_of(seen)
    with torch.no_grad():
        fixed(batch(2))
        seen.shapes.clear()
        for rows in (0, 1, 4, 5, 12, 20):
            fixed(batch(rows))
    assert [shape[0] for shape in seen.shapes] == [4, 4, 8, 8, 4, 8, 8, 4]


def test_an_empty_batch_has_a_backward_pass() -> None:
    """A loop that sums and calls backward goes on."""
    fixed = FixedShape(nn.Linear(WIDTH, 2), {"input": 0}, [4])
    fixed(batch(0)).sum().backward()


def test_results_stay_when_the_next_batch_comes() -> None:
    """The padded buffer is used again: a result that is a view of it must not change."""
    fixed = fixed_of(lambda x: x[:, :2], [4])
    with torch.no_grad():
        first = fixed(batch(3))
        kept = first.clone()
        fixed(torch.zeros(4, WIDTH))
    assert torch.equal(first, kept)


def test_results_made_in_inference_mode_are_usable_outside() -> None:
    """The buffers outlive the mode they were made in."""
    fixed = fixed_of(lambda x: x + 1.0)
    with torch.inference_mode():
        fixed(batch(3))
    with torch.no_grad():
        torch.testing.assert_close(fixed(batch(2)), batch(2) + 1.0)
    with torch.inference_mode():
        torch.testing.assert_close(fixed(batch(4)), batch(4) + 1.0)


def test_padded_inputs_stay_where_they_are() -> None:
    """One buffer a size, marked so for CUDA graphs; with gradients a tensor a call."""
    addresses: list[tuple[int, int]] = []

    def note(x: Any) -> Any:
        addresses.append((x.shape[0], x.data_ptr()))
        return x + 0.0

    fixed = fixed_of(note)
    with torch.no_grad():
        for rows in (1, 6, 2, 8, 3, 5):
            fixed(batch(rows))
    assert len(set(addresses[1:])) == 2


def test_two_forward_passes_before_their_backward_passes() -> None:
    """Autograd keeps the padded input of the first; the second must not write to it."""
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, 1)
    fixed = FixedShape(model, {"input": 0}, [4])
    losses = [fixed(batch(rows)).sum() for rows in (2, 3)]
    torch.stack(losses).sum().backward()
    weight = (batch(2).sum(0) + batch(3).sum(0))[None]
    torch.testing.assert_close(model.weight.grad, weight)


@pytest.mark.parametrize("rows", [3, 11])
def test_gradients_are_those_of_the_callable(rows: int) -> None:
    """Of parameters and of the batch, padded and split."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 1))
    fixed = FixedShape(model, {"input": 0}, [4, 8])
    found: list[list[Any]] = []
    for function in (fixed, model):
        rows_given = batch(rows).requires_grad_()
        inputs = [rows_given, *model.parameters()]
        found.append(list(torch.autograd.grad(function(rows_given).square().sum(), inputs)))
    torch.testing.assert_close(found[0], found[1])


def test_threads_have_buffers_of_their_own() -> None:
    """Two threads at the same time: no rows of the other."""
    both = threading.Barrier(2, timeout=60)

    def wait(x: Any) -> Any:
        both.wait()
        return x + 0.0

    fixed = fixed_of(wait, [4], clone=None)
    found: dict[int, Any] = {}

    def run(rows: int) -> None:
        with torch.no_grad():
            found[rows] = fixed(batch(rows))

    threads = [threading.Thread(target=run, args=(rows,)) for rows in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(found[2], batch(2))
    assert torch.equal(found[3], batch(3))


def test_trials_in_two_threads_leave_compiling_as_it_was() -> None:
    """torch has one stance for all threads: trials that overlap once left `force_eager` behind,
    and nothing in the process compiled again."""
    before = torch_calls.get_stance()
    first, second = preserve_eagerly(torch, torch.sin), preserve_eagerly(torch, torch.cos)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch_calls.get_stance() == "force_eager"
    second.__exit__(None, None, None)
    assert torch_calls.get_stance() == before == "default"


# --- containers -------------------------------------------------------------------------------


def score(data: Batch, pair: Pair, flag: bool = True) -> dict[str, Any]:
    total = data.obs * data.scale + data.extra["bias"] + pair.obs
    return {"score": total.sum(-1), "pair": Pair(pair.ids + 1, (total, flag))}


def arguments(rows: int) -> tuple[Batch, Pair]:
    data = Batch(batch(rows), 0.5, {"bias": torch.arange(float(WIDTH)), "many": [batch(rows)]})
    return data, Pair(torch.arange(rows), batch(rows))


@pytest.mark.parametrize("rows", [0, 1, 3, 8, 19])
def test_containers_go_in_and_come_out(rows: int) -> None:
    """Dataclasses, named tuples, dicts and lists; prefixes stand for what is below them."""
    fixed = FixedShape(score, {"data.obs": 0, "data.extra.many": 0, "pair": 0}, [4, 8])
    expected, result = score(*arguments(rows)), fixed(*arguments(rows))
    assert isinstance(result["pair"], Pair)
    torch.testing.assert_close(result["score"], expected["score"])
    assert torch.equal(result["pair"].ids, expected["pair"].ids)
    torch.testing.assert_close(result["pair"].obs[0], expected["pair"].obs[0])
    assert result["pair"].obs[1] is True


def test_split_batches_need_outputs_with_rows() -> None:
    """One value for two parts is none for the whole; it is named, with the way out."""
    fixed = FixedShape(lambda x: {"loss": x.sum(), "n": x}, {"x": 0}, [4])
    with pytest.raises(ShapeUnusable, match=r"output 'loss' has no rows, so its 2 values"):
        fixed(batch(5))
    with pytest.raises(ShapeUnusable, match=r"output 'loss' has no rows, so an empty batch"):
        fixed(batch(0))


def test_ordered_containers_keep_their_type() -> None:
    """What comes back is what the callable gave."""
    fixed = FixedShape(lambda x: OrderedDict(a=x, b=[x, 1, None]), {"x": 0}, [4])
    result = fixed(batch(2))
    assert type(result) is OrderedDict
    assert result["b"][1:] == [1, None]


def test_two_axes_are_padded_together() -> None:
    """Rows and tokens: each to its own size, the last row and the last token repeated."""
    given: list[Any] = []

    def embed(tokens: Any, real: Any) -> Any:
        given.append((tokens.clone(), real.clone()))
        return tokens[:, :, None].float().expand(-1, -1, 3)

    fixed = FixedShape(embed, {"tokens": {"B": 0, "T": 1}}, {"B": [2, 4], "T": [4, 6]}, mask="real")
    tokens = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15]])
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            result = fixed(tokens)
        padded, real = given[-1]
        assert padded.tolist()[1] == [6, 7, 8, 9, 10, 10]
        assert padded.tolist()[3] == [11, 12, 13, 14, 15, 15]
        assert real.tolist() == [True, True, True, False]
        assert torch.equal(result, tokens[:, :, None].float().expand(-1, -1, 3))


def test_outputs_follow_an_axis_by_two_sizes_never_by_number() -> None:
    """A dimension of the size's own number is not taken for one of rows; a transposed one is."""
    fixed = FixedShape(lambda x: (torch.eye(4), x.T), {"x": 0}, [4, 8])
    eye, transposed = fixed(batch(3))
    assert eye.shape == (4, 4)
    assert torch.equal(transposed, batch(3).T)


def test_finding_out_leaves_no_trace() -> None:
    """Running statistics and random states are as after the batch alone."""
    torch.manual_seed(0)
    norm, plain = nn.BatchNorm1d(WIDTH), nn.BatchNorm1d(WIDTH)
    fixed = FixedShape(norm, {"input": 0}, [4])
    torch.manual_seed(1)
    fixed(batch(4))
    drawn = torch.rand(1)
    torch.manual_seed(1)
    plain(batch(4))
    assert torch.equal(drawn, torch.rand(1))
    assert torch.equal(norm.running_mean, plain.running_mean)


# --- padding ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pad", "expected"), [("repeat", 7.0), (0, 0.0), ({"x": 2.5}, 2.5), ({"other": 1}, 7.0)]
)
@pytest.mark.parametrize("grad", [False, True])
def test_padding_is_what_was_asked_for(pad: Any, expected: float, grad: bool) -> None:
    """The last row, or a value by leaf; what an earlier batch left behind is cleared."""
    given: list[list[float]] = []

    def note(x: Any) -> Any:
        given.append(x[:, 0].tolist())
        return x

    fixed = fixed_of(note, [8], pad=pad)
    with torch.set_grad_enabled(grad):
        fixed(torch.full((6, 1), 9.0))
        fixed(torch.full((3, 1), 7.0))
    assert given[-1] == [7.0] * 3 + [expected] * 5


def test_seed_per_chunk_repeats_what_a_batch_draws() -> None:
    """Equal batches draw the same, parts of one batch differently, the program as if none had."""
    fixed = FixedShape(lambda x: nn.functional.dropout(x, 0.5), {"x": 0}, [4], seed_per_chunk=11)
    rows = torch.ones(8, WIDTH)
    torch.manual_seed(3)
    first = fixed(rows)
    drawn = torch.rand(3)
    assert torch.equal(first, fixed(rows))
    assert not torch.equal(first[:4], first[4:])
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(3))


# --- what is wrapped --------------------------------------------------------------------------


def test_a_module_shows_through() -> None:
    """Attributes, parameters and state are the module's; what returns it returns the wrapper."""
    model = nn.Linear(WIDTH, 2)
    fixed = FixedShape(model, {"input": 0}, [4])
    assert fixed.state_dict().keys() == model.state_dict().keys()
    assert next(iter(fixed.parameters())) is model.weight
    assert fixed.eval() is fixed
    assert model.training is fixed.training is False
    fixed.note = 3
    assert model.note == 3
    assert fixed.wrapped is model
    with pytest.raises(AttributeError, match="absent"):
        _ = fixed.absent


def test_partials_and_bound_methods_are_callables_too() -> None:
    """Names of their parameters are known."""

    class Scorer:
        def score(self, factor: float, x: Any) -> Any:
            return x * factor

    fixed = FixedShape(functools.partial(Scorer().score, 2.0), {"x": 0}, [4])
    assert torch.equal(fixed(batch(3)), batch(3) * 2.0)


def test_the_users_exception_is_the_users() -> None:
    """What the callable raises comes out as it is."""

    def fail(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        FixedShape(fail, {"x": 0}, [4])(batch(3))


# --- bad input --------------------------------------------------------------------------------

BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"buckets": []}, "buckets of 'rows' is empty"),
    ({"buckets": [8, 4]}, r"must ascend without repeats: \[4, 8\]"),
    ({"buckets": [4, 4]}, "must ascend without repeats"),
    ({"buckets": [1, 4]}, "holds 1: a size is an integer from 2 on"),
    ({"buckets": [4.0]}, "holds 4.0"),
    ({"buckets": 64}, r"must be a list of sizes such as \[8, 64, 512\], not 64"),
    ({"buckets": "powers"}, "'powers': write \"powers_of_two:512\""),
    ({"buckets": {"B": [4]}}, "buckets names 'B', which is not an axis"),
    ({"dims": {"x": {"B": 0, "T": 1}}}, r'several axes: give sizes for each, buckets=\{"B"'),
    ({"dims": {"x": {"B": 0, "T": 1}}, "buckets": {"B": [4]}}, "no sizes for the axis 'T'"),
    ({"dims": {}}, "dims must name at least one argument"),
    ({"dims": {"x": "0"}}, "the dimension of 'x' must be given as in"),
    ({"pad": "zeros"}, "pad must be \"repeat\" or a number, not 'zeros'"),
    ({"pad": {"x": None}}, "pad of 'x' must be"),
    ({"overflow": "truncate"}, "overflow must be"),
    ({"max_graphs": 1}, "2 combinations of sizes are more than max_graphs=1"),
    ({"fn": 3}, "wraps a callable, not a int"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS)
def test_bad_settings_say_what_to_write(settings: dict[str, Any], message: str) -> None:
    """When it is made, not in the first call."""
    given = {"fn": lambda x: x, "dims": {"x": 0}, "buckets": [4, 8], **settings}
    with pytest.raises(ShapeUnusable, match=message):
        FixedShape(**given)


def two(x: Any, y: Any = None, k: Any = 1) -> Any:
    return x


@pytest.mark.parametrize(
    ("dims", "first", "second", "message"),
    [
        ({"z": 0}, (batch(2),), None, "dims names 'z', but the call has: x"),
        ({"x": 2}, (batch(2),), None, r"argument 'x' has no dimension 2: its shape is \[2, 4\]"),
        ({"x": 0}, (3.0,), None, "argument 'x' is named in dims but is a float"),
        ({"x": 0, "y": 0}, (batch(2), batch(3)), None, "'y' has 3 .* but 'x' has 2"),
        ({"x": 0}, (batch(2), None, 1), (batch(2), None, 2), "'k' was 1 and is now 2"),
        ({"x": 0}, (batch(2), None, 1), (batch(2), None, True), "'k' was 1 and is now True"),
        ({"x": 0}, (batch(2), batch(3)), (batch(2), batch(5)), r"'y' was a tensor \[3, 4\] of"),
        (
            {"x": 0},
            (batch(2),),
            (batch(2).double(),),
            r"'x' was a tensor \[\*, 4\] of torch.float32",
        ),
        ({"x": 0}, (batch(2),), (batch(2, 5),), r"'x' was a tensor \[\*, 4\]"),
        ({"x": 0}, (batch(2),), (batch(2), batch(2)), "this call has 'y', other than the first"),
    ],
)
def test_bad_calls_name_the_argument(dims: Any, first: Any, second: Any, message: str) -> None:
    """Dimensions that do not exist, tensors that disagree, leaves that change."""
    fixed = FixedShape(two, dims, [4])
    if second is not None:
        fixed(*first)
        first = second
    with pytest.raises(ShapeUnusable, match=message):
        fixed(*first)


def test_large_batches_can_be_refused() -> None:
    """Never cut off: split, or an error with both ways out."""
    with pytest.raises(ShapeUnusable, match=r"9 in 'rows', the largest size is 8: add a larger"):
        fixed_of(Seen(), overflow="error")(batch(9))
    long = FixedShape(two, {"x": {"B": 0, "T": 1}}, {"B": [2], "T": [3]})
    with pytest.raises(ShapeUnusable, match=r"4 in 'T', the largest size is 3.*only 'B' can"):
        long(batch(2))


@pytest.mark.parametrize("grad", [False, True])
def test_arguments_changed_in_place_are_refused(grad: bool) -> None:
    """The change would be lost in the padded copy."""
    fixed = FixedShape(lambda x: x.add_(1.0), {"x": 0}, [4], out_dims={"": 0})
    with (
        torch.set_grad_enabled(grad),
        pytest.raises(ShapeUnusable, match="'x' is changed in place"),
    ):
        fixed(batch(3))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.repeat(2, 1), r"\[8, 4\] at rows=4 and \[16, 4\] at 8: padding cannot be cut"),
        (lambda x: (x, x.shape[0]), "output '1' is 4 at rows=4 and 8 at 8: return it as a tensor"),
        (lambda x: [x] * x.shape[0], "another structure at rows=8 than at 4"),
    ],
)
def test_outputs_that_cannot_be_cut_back_are_named(function: Any, message: str) -> None:
    """Sizes that are not those of the batch are never guessed at."""
    with pytest.raises(ShapeUnusable, match=message):
        FixedShape(function, {"x": 0}, [4, 8])(batch(3))


def test_a_callable_that_needs_certain_sizes_can_say_its_outputs() -> None:
    """Where it cannot run at a second size, out_dims gives what that would have shown."""

    def fours(x: Any) -> Any:
        return x.reshape(4, 2).reshape(8)

    with pytest.raises(ShapeUnusable, match=r"fails at \{'rows': 7\}.* say it with out_dims"):
        FixedShape(fours, {"x": 0}, [8])(torch.ones(5))
    assert FixedShape(fours, {"x": 0}, [8], out_dims={"": 0})(torch.ones(5)).shape == (5,)


# --- sizes from what was seen -----------------------------------------------------------------


def test_sizes_are_chosen_from_what_was_observed() -> None:
    """Until then "auto" waits, and is marked."""
    fixed = FixedShape(Seen(), {"x": 0}, "auto", out_dims={"": 0})
    with pytest.raises(ShapeUnusable, match=r'"auto": tell sizes with observe'):
        fixed(batch(3))
    fixed.observe([3, 3, 3, 7, 20])
    assert fixed.fit(2) == fixed.buckets[0]
    assert fixed.buckets[0][-1] == 20
    assert fixed(batch(3)).shape == (3, WIDTH)


@pytest.mark.parametrize(
    ("rule", "sizes"), [("powers_of_two:20", (2, 4, 8, 16, 32)), ("multiples_of_8:20", (8, 16, 24))]
)
def test_sizes_can_be_given_by_rule(rule: str, sizes: tuple[int, ...]) -> None:
    """Common grids need no list."""
    assert fixed_of(Seen(), [2]).buckets == ((2,),)
    assert FixedShape(Seen(), {"x": 0}, rule).buckets == (sizes,)


def test_sessions_are_told_the_real_sizes_and_whether_calls_have_a_price() -> None:
    """Checks and warm-ups are not among the calls; a split batch is several."""
    events: list[Any] = []
    session = Session(events.append, origin=0.0)
    shape_log.sinks.install(session)
    try:
        plain = FixedShape(torch.sin, {"0": 0}, [4, 8])
        priced = FixedShape(torch.sin, {"0": 0}, [4, 8], cost=lambda size: size)
        fitted = FixedShape(torch.sin, {"0": 0})
        fitted.observe([3])
        fitted.fit(1, cost=lambda size: size)
        for fixed in (plain, priced, fitted):
            fixed.warmup(batch(2))
            fixed(batch(3))
        plain(batch(11))
        shape_log.sinks.finish(session)
    finally:
        shape_log.sinks.uninstall(session)
    used = [event for event in events if isinstance(event, FixedShapeUsed)]
    first, second, third = sorted({event.number for event in used})
    received = {(event.number, event.priced) for event in used}
    assert received == {(first, False), (second, True), (third, True)}
    calls: Counter[Any] = Counter()
    for event in (event for event in used if event.number == first):
        for sizes, run, count in zip(event.sizes, event.run, event.counts, strict=True):
            calls[sizes, run] += count
    assert calls == {((3,), (4,)): 2, ((8,), (8,)): 1}
    (run,) = collect_fixed_shapes(0, [event for event in used if event.number == first])
    assert (run.requested, run.dims) == ({(3,): 1, (11,): 1}, (("0:0",),))


# --- warm-up ----------------------------------------------------------------------------------


@pytest.fixture
def counted() -> Any:
    """A backend that counts what it compiles."""
    torch._dynamo.reset()
    yield CompileCounter()
    torch._dynamo.reset()


def test_one_compile_a_size_whatever_comes(counted: Any) -> None:
    """Also with torch's automatic dynamic shapes, which would make the second size dynamic."""
    model = nn.Linear(WIDTH, 2)
    fixed = FixedShape(torch.compile(model, backend=counted), {"input": 0}, [4, 8, 16])
    with torch.no_grad():
        for rows in range(40):
            torch.testing.assert_close(fixed(batch(rows)), model(batch(rows)))
    assert counted.frame_count == 3


def test_a_run_at_fixed_sizes_is_planned_by_what_came(counted: Any) -> None:
    """The compiled function saw 64 and 512 only; the plan is made of 20 to 90, so that a program
    that pads already can be planned again. What is called without padding is planned as before."""
    compiled = torch.compile(lambda x: x * 2, backend=counted, dynamic=False)
    other = torch.compile(lambda x: x * 3, backend=counted, dynamic=False)
    sizes = (70, 20, 90, 600)
    with watch() as seen, torch.no_grad():
        fixed = FixedShape(compiled, {"x": 0}, [64, 512])
        fixed.warmup(batch(3))
        for rows in sizes:
            fixed(batch(rows))
        for rows in (5, 6):
            other(batch(rows))
    padded, plain = seen.receipt.invocations
    assert (padded.padded_calls, plain.padded_calls) == (padded.calls, 0)
    planned, unpadded = make_bucket_plans(seen.receipt, PlanLimits(graphs=3))
    assert planned.calls == dict.fromkeys(((size,) for size in sorted(sizes)), 1)
    assert planned.fixed.buckets == ((64, 512),)
    assert planned.buckets == (20, 90, 600)
    assert (unpadded.calls, unpadded.fixed) == ({(5,): 1, (6,): 1}, None)


def test_warmup_compiles_all_and_the_rest_nothing(counted: Any) -> None:
    """The largest first; later sizes find their graph; the module is as before."""
    seen = Seen()
    model = nn.Sequential(nn.Linear(WIDTH, 2), nn.BatchNorm1d(2).eval())
    compiled = torch.compile(model, backend=counted)

    def noted(x: Any) -> Any:
        seen(x)
        return compiled(x)

    fixed = FixedShape(noted, {"x": 0}, [4, 8], out_dims={"": 0})
    with torch.no_grad():
        report = fixed.check(batch(2))
        assert not seen.shapes
        assert report.outputs[""].kind == "safe"
        assert all(path.startswith("variable seen.shapes") for path in report.harmful)
        assert fixed.warmup(batch(2), unsafe="allow") == 2
        assert [shape[0] for shape in seen.shapes] == [8, 8, 4, 4]
        for rows in (1, 5, 30):
            fixed(batch(rows))
    assert (counted.frame_count, fixed.late_compiles) == (2, 0)


def test_warmup_compiles_the_backward_too(counted: Any) -> None:
    """With gradients the backward runs as well, and leaves no gradient behind."""
    model = nn.Linear(WIDTH, 2)
    fixed = FixedShape(torch.compile(model, backend="aot_eager"), {"input": 0}, [4])
    fixed.warmup(batch(2))
    assert model.weight.grad is None
    with torch.compiler.set_stance("fail_on_recompile"):
        fixed(batch(3)).sum().backward()
    assert model.weight.grad is not None


# Dynamo looks at `.grad` of the padded batch, and hides the warning that only strict filters show.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_warmup_with_an_example_that_needs_a_gradient(counted: Any) -> None:
    """Each of its backwards ends at the rows of the warm-up, and none reaches the example."""
    model = nn.Linear(WIDTH, 2)
    fixed = FixedShape(torch.compile(model, backend="aot_eager"), {"input": 0}, [4, 8])
    example = batch(2).requires_grad_()
    assert fixed.warmup(example) >= 2
    assert example.grad is None
    with torch.compiler.set_stance("fail_on_recompile"):
        fixed(batch(3).requires_grad_()).sum().backward()


# Dynamo looks at `.grad` of the padded batch, and hides the warning that only strict filters show.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("late", ["finding", "error"])
def test_a_compile_after_the_warmup_is_noticed(counted: Any, late: str) -> None:
    """Here the grad mode is another than in the warm-up."""
    fixed = FixedShape(torch.compile(lambda x: x * 2.0, backend=counted), {"x": 0}, [4])
    with torch.no_grad():
        fixed.warmup(batch(2), late=late)
        fixed(batch(3))
    assert fixed.late_compiles == 0
    rows = batch(2).requires_grad_()
    if late == "error":
        with pytest.raises(CompiledAfterWarmup, match=r"after its warm-up, at \{'rows': 4\}"):
            fixed(rows)
    else:
        fixed(rows)
    assert fixed.late_compiles == 1


def test_a_reset_of_dynamo_is_noticed(counted: Any) -> None:
    """torch forgets its graphs and our callback; what compiles again is seen all the same."""
    fixed = FixedShape(torch.compile(lambda x: x * 3.0, backend=counted), {"x": 0}, [4])
    with torch.no_grad():
        fixed.warmup(batch(2))
        torch._dynamo.reset()
        fixed(batch(2))
    assert fixed.late_compiles == 1


def test_more_sizes_than_torch_compiles_for_are_refused(counted: Any) -> None:
    """Above the limit torch runs eagerly without a word; gradients and training count apart."""
    function = torch.compile(lambda x: x * 2.0, backend=counted)
    fixed = FixedShape(function, {"x": 0}, range(2, 8))
    with torch.no_grad():
        fixed.warmup(batch(2))
    with pytest.raises(ShapeUnusable, match=r"6 sizes in 2 modes .* 12 graphs, .* 8 times"):
        fixed.warmup(batch(2))
    with pytest.raises(ShapeUnusable, match=r"12 sizes need 12 graphs.*recompile_limit = 12"):
        FixedShape(function, {"x": 0}, range(2, 14)).warmup(batch(2))


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("of", ["function", "module"])
def test_a_limit_of_the_callable_itself_is_honoured(counted: Any, of: str, fullgraph: bool) -> None:
    """`torch.compile(recompile_limit=...)`, above torch's 8 and below; torch compiles all sizes."""
    if "recompile_limit" not in inspect.signature(torch.compile).parameters:
        pytest.skip("this torch has no torch.compile(recompile_limit=...)")
    target = nn.Linear(WIDTH, 2) if of == "module" else lambda x: x * 2.0
    dims = {"input" if of == "module" else "x": 0}
    options = {"backend": counted, "fullgraph": fullgraph}
    wide = torch.compile(target, recompile_limit=12, **options)
    fixed = FixedShape(wide, dims, range(2, 14))
    with torch.no_grad():
        assert fixed.warmup(batch(2)) == 12
        fixed(batch(11))
    assert (counted.frame_count, fixed.late_compiles) == (12, 0)
    narrow = torch.compile(target, recompile_limit=2, **options)
    with pytest.raises(ShapeUnusable, match=r"3 sizes need 3 graphs, .* 2 times"):
        FixedShape(narrow, dims, [4, 8, 16]).warmup(batch(2))


def test_a_compiled_caller_runs_the_callable_itself(counted: Any) -> None:
    """Inside of compiled code nothing is padded, and no graph breaks."""
    fixed = FixedShape(torch.sin, {"0": 0}, [4])
    outer = torch.compile(lambda x: fixed(x) + 1.0, backend=counted, fullgraph=True)
    torch.testing.assert_close(outer(batch(3)), batch(3).sin() + 1.0)
