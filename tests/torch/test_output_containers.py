"""What a `FixedShape` takes apart and puts together again, and what it refuses."""

import collections
import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree

from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.fixed_shape import FixedShape

ROWS, WIDTH = 3, 4


def batch(rows: int = ROWS) -> Any:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(rows))


def named_x(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same with a parameter called x."""

    def call(x: Any) -> Any:
        return function(x)

    return call


class Plain:
    """An object that is registered nowhere."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows


class Pair:
    """Registered with torch's pytree, by its members."""

    def __init__(self, one: Any, other: Any) -> None:
        self.one, self.other = one, other


def _members(pair: Any) -> tuple[list[Any], None]:
    return [pair.one, pair.other], None


_pytree.register_pytree_node(Pair, _members, lambda items, _: Pair(*items))


class Counted:
    """Registered, with the number of its rows besides."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows


_pytree.register_pytree_node(
    Counted, lambda it: ([it.rows], len(it.rows)), lambda items, _: Counted(*items)
)


@dataclasses.dataclass
class Cached:
    """A dataclass with an attribute that is no field."""

    rows: Any

    def __post_init__(self) -> None:
        self.twice = self.rows * 2


class Boxes(list[Any]):
    """A list with an attribute."""

    mask: Any = None


def boxes(x: Any) -> Boxes:
    made = Boxes([x])
    made.mask = x[:, 0] > 0
    return made


OPAQUE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "distribution": (lambda x: torch.distributions.Normal(x, 1.0), "torch.distributions.normal"),
    "object": (Plain, "Plain"),
    "object, deep": (lambda x: [{"a": (x, Plain(x))}], r"output '0.a.1' is a \S+Plain"),
    "set": (lambda x: {x}, "builtins.set"),
    "generator": (lambda x: (row for row in x), "builtins.generator"),
    "closure": (lambda x: lambda: x, "builtins.function"),
    "partial": (lambda x: functools.partial(torch.add, x), "functools.partial"),
    "array": (lambda x: x.numpy(), "numpy.ndarray"),
    "bound method": (lambda x: x.add, "builtins.builtin_function_or_method"),
    "sparse": (lambda x: x.to_sparse(), "torch.sparse_coo"),
    "module": (lambda x: torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
}


@pytest.mark.parametrize("kind", OPAQUE)
@pytest.mark.parametrize("by", ["check", "warmup", "call", "given"])
def test_what_cannot_be_looked_into_is_refused(kind: str, by: str) -> None:
    """Its type is named, and what to do; it never comes back padded."""
    function, named = OPAQUE[kind]
    given = {"": 0} if by == "given" else None
    fixed = FixedShape(named_x(function), {"x": 0}, [4, 8], out_dims=given)
    how = {"check": fixed.check, "warmup": fixed.warmup}.get(by, fixed)
    with torch.no_grad(), pytest.raises(ShapeUnusable, match=f"{named}.*return its tensors"):
        how(batch())


def test_a_later_output_is_refused_too() -> None:
    """Where the first was a tensor, or a plain value."""
    for first, later, message in (
        (lambda x: x, Plain, r"is a \S+Plain where it was a tensor at first"),
        (lambda x: (1, x), lambda x: (Plain(x), x), r"output '0' is a \S+Plain"),
        (lambda x: (1, x), lambda x: (x, x), r"output '0' is a torch.Tensor"),
        (lambda x: [x], lambda x: types.SimpleNamespace(a=x), "another structure than at first"),
    ):
        now: list[Callable[[Any], Any]] = [first]
        fixed = FixedShape(lambda x, now=now: now[0](x), {"x": 0}, [4, 8])
        with torch.no_grad():
            fixed(batch())
            now[0] = later
            with pytest.raises(ShapeUnusable, match=message):
                fixed(batch())


UNDERSTOOD: dict[str, tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]] = {
    "namespace": (lambda x: types.SimpleNamespace(a=x, b=[x]), lambda it: [it.a, *it.b]),
    "dataclass and more": (Cached, lambda it: [it.rows, it.twice]),
    "deque": (lambda x: collections.deque([x], 2), list),
    "default": (lambda x: collections.defaultdict(list, a=x), lambda it: [it["a"]]),
    "user dict": (lambda x: collections.UserDict(a=x), lambda it: [it["a"]]),
    "list and attribute": (boxes, lambda it: [it[0], it.mask]),
    "registered": (lambda x: Pair(x, {"deep": x * 2}), lambda it: [it.one, it.other["deep"]]),
    "torch's": (lambda x: x.sort(-1), lambda it: [it.values, it.indices]),
    "plain values": (lambda x: (x, {1, "a"}, x.dtype, None, range(3)), lambda it: [it[0]]),
}


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("rows", [1, 3, 8, 11])
def test_what_can_be_looked_into_is_cut_and_keeps_its_type(kind: str, rows: int) -> None:
    """Padded, exact and split; every tensor in it has as many rows as came."""
    function, tensors = UNDERSTOOD[kind]
    fixed = FixedShape(named_x(function), {"x": 0}, [4, 8])
    with torch.no_grad():
        assert fixed.check(batch()).safe
        found, expected = fixed(batch(rows)), function(batch(rows))
    assert type(found) is type(expected)
    for one, other in zip(tensors(found), tensors(expected), strict=True):
        assert torch.equal(one, other)


def test_a_container_that_keeps_its_size_is_refused() -> None:
    """Put together again with other rows it would be another than the callable made."""
    fixed = FixedShape(named_x(Counted), {"x": 0}, [4, 8])
    with torch.no_grad(), pytest.raises(ShapeUnusable, match="another structure at rows=8"):
        fixed(batch())


def test_tensors_that_are_no_members_are_refused() -> None:
    """An attribute of a tensor, or of a registered container, would stay padded."""

    def hidden(x: Any) -> Any:
        pair = Pair(x, 1)
        pair.aside = x[:, 0]  # type: ignore[attr-defined]
        return pair

    def on_a_tensor(x: Any) -> Any:
        result = x * 2
        result.aside = x[:, 0]
        return result

    for function in (hidden, on_a_tensor):
        fixed = FixedShape(function, {"x": 0}, [4, 8])
        with torch.no_grad(), pytest.raises(ShapeUnusable, match="holds a tensor at 'aside'"):
            fixed(batch())


def test_a_dimension_that_follows_the_batch_at_some_sizes_only_is_refused() -> None:
    """At the two sizes that are tried it looks constant; at a third it would stay padded."""
    fixed = FixedShape(lambda x: torch.ones(max(16, len(x))), {"x": 0}, [4, 8, 32])
    with torch.no_grad():
        assert len(fixed(batch())) == 16
        with pytest.raises(ShapeUnusable, match=r"the shape \[32\], not \[16\]"):
            fixed(batch(20))


def test_registered_containers_go_in() -> None:
    """Their members have paths, as those of a dict; without names for them, positions."""

    def add(pair: Any) -> Any:
        return pair.one + pair.other

    fixed = FixedShape(add, {"pair": 0}, [4, 8])
    with torch.no_grad():
        for rows in (1, 3, 8, 11):
            assert torch.equal(fixed(Pair(batch(rows), batch(rows))), 2 * batch(rows))
    only_one = FixedShape(add, {"pair.0": 0}, [4])
    with torch.no_grad():
        assert only_one(Pair(batch(3), torch.ones(WIDTH))).shape == (3, WIDTH)


def test_outputs_of_transformers() -> None:
    """A ModelOutput keeps its class, its attributes and its items."""
    pytest.importorskip("transformers")
    from transformers.modeling_outputs import BaseModelOutput

    def encode(x: Any) -> Any:
        return BaseModelOutput(last_hidden_state=x * 2, hidden_states=(x, x + 1))

    fixed = FixedShape(encode, {"x": 0}, [4, 8])
    with torch.no_grad():
        assert set(fixed.check(batch()).outputs) >= {"last_hidden_state", "hidden_states.1"}
        found = fixed(batch())
    assert type(found) is BaseModelOutput
    assert found["last_hidden_state"] is found.last_hidden_state
    assert torch.equal(found.last_hidden_state, batch() * 2)
    assert torch.equal(found.hidden_states[1], batch() + 1)
    taken = FixedShape(lambda given: given.last_hidden_state + 1, {"given": 0}, [4, 8])
    with torch.no_grad():
        assert torch.equal(taken(BaseModelOutput(last_hidden_state=batch())), batch() + 1)


@pytest.mark.filterwarnings("ignore")
def test_tensor_dicts() -> None:
    """In and out, with the batch size of what came."""
    tensordict = pytest.importorskip("tensordict")

    def step(data: Any) -> Any:
        inner = tensordict.TensorDict({"y": data["x"] + 1}, [len(data["x"])])
        return tensordict.TensorDict({"x": data["x"] * 2, "inner": inner}, [len(data["x"])])

    fixed = FixedShape(step, {"data": 0}, [4, 8])
    with torch.no_grad():
        for rows in (1, 3, 8, 11):
            given = tensordict.TensorDict({"x": batch(rows)}, [rows])
            found = fixed(given)
            assert type(found) is tensordict.TensorDict
            assert found.batch_size == found["inner"].batch_size == torch.Size([rows])
            assert torch.equal(found["inner", "y"], batch(rows) + 1)
            assert given.batch_size == torch.Size([rows])
        assert fixed.check(tensordict.TensorDict({"x": batch()}, [ROWS])).safe
