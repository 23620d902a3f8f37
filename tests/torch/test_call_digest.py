"""Digests of what calls return: what they see, what they take for rounding, and that nothing waits
for a device while they are made."""

import dataclasses
import math
import types

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from compilediag_harness.trials.call_digest import CPU_CHUNK, CallDigester, DigestBatch

RTOL = 1.3e-6
"""Of float32, as `torch.testing.assert_close` has it."""


def digest(value):
    """The digest of one value."""
    (made,) = DigestBatch([CallDigester(torch).begin(value)]).read()
    return made


def is_close(one, other):
    """True if two values are the same within the tolerance of a certificate."""
    values = zip(dataclasses.astuple(one)[:3], dataclasses.astuple(other)[:3], strict=True)
    within = (abs(left - right) <= 4 * RTOL * (1 + abs(left)) for left, right in values)
    return one.exact == other.exact and all(within)


def same(one, other):
    return is_close(digest(one), digest(other))


def changed(tensor, index, by):
    tensor = tensor.clone()
    tensor.view(-1)[index] += by
    return tensor


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("size", [100_000, 3 * CPU_CHUNK + 5])
@pytest.mark.parametrize("make", [torch.randn, torch.ones, torch.rand])
def test_one_changed_element_is_seen(make, size):
    values = make(size)
    assert all(not same(values, changed(values, index, 1.0)) for index in (0, 777, size - 1))


def test_what_all_elements_share_does_not_hide_what_one_has_alone():
    values = torch.ones(1_000_000)
    assert not same(values, changed(values, 777, 1.0))
    assert same(values, values * (1 + 1e-7))


def test_a_small_value_is_seen_beside_large_ones():
    logits = torch.randn(8, 1000, 50)
    assert not same((torch.tensor(2.3), logits), (torch.tensor(2.3001), logits))
    assert not same((logits, 2.3), (logits, 2.3001))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_are_compared_exactly(dtype):
    values = torch.randint(0, 2, (50, 4)).to(dtype)
    assert same(values, values.clone())
    other = values.clone()
    other[7, 1] = ~other[7, 1] if dtype == torch.bool else other[7, 1] + 1
    assert not same(values, other)
    assert not same(values, values.flip(0))


def test_integers_have_an_order():
    assert not same((1, 2), (2, 1))
    assert not same(
        (torch.arange(3), torch.ones(3).long()), (torch.ones(3).long(), torch.arange(3))
    )


def test_great_integers_wrap_around():
    least, most = -(2**63), 2**63 - 1
    values = torch.tensor([least, most, -1, 5])
    assert not same(values, torch.tensor([least, most - 1, -1, 5]))
    assert same(most, torch.tensor(most))


@pytest.mark.parametrize("size", [64, 2000])
def test_another_order_is_seen(size):
    values = torch.randn(size, size // 8)
    assert not same(values, values.flip(0))
    assert not same(values, values[:, torch.randperm(size // 8)])
    assert not same((values, values + 1), (values + 1, values))
    # Of whole chunks, too.
    long = torch.randn(2, CPU_CHUNK)
    assert not same(long, long.flip(0))


def test_rounding_is_within_the_tolerance():
    values = torch.randn(1000, 300) + 0.5
    assert same(values, values * (1 + 1e-7))
    exact = values.double()
    assert same((values @ values.T[:, :64]), (exact @ exact.T[:, :64]).float())
    assert same(values.sum(0), values.flip(0).sum(0))


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf, 3e38])
def test_what_is_not_finite_is_compared_by_place_and_sign(special):
    values = torch.randn(20, 20)
    one, other = values.clone(), values.clone()
    one[3, 4] = special
    other[3, 5] = special
    assert same(one, one.clone())
    assert not same(one, other)
    assert not same(one, values)
    assert not same(one, torch.where(one == -math.inf, 0.0, -one) * torch.tensor(-1.0) * 1.01)
    signed = one.clone()
    signed[3, 4] = math.nan if special == math.inf else math.inf if special < 0 else -math.inf
    assert not same(one, signed)
    one, other = torch.zeros(20), torch.zeros(20)
    one[3] = other[4] = special
    assert not same(one, other)


def test_the_other_elements_are_compared_beside_what_is_not_finite():
    one = torch.randn(20, 20)
    one[3, 4] = math.nan
    assert not same(one, changed(one, 0, 1.0))


@pytest.mark.parametrize("mask", [-1e4, -65504.0, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("shape", [(4, 8, 64, 64), (2, 8, 256, 256)])
def test_a_mask_does_not_hide_what_lies_beside_it(mask, shape):
    logits = torch.randn(shape)
    hidden = torch.rand(shape) < 0.5
    hidden.view(-1)[777] = False
    masked = logits.masked_fill(hidden, mask)
    assert not same(masked, changed(masked, 777, 0.1))
    assert same(masked, torch.where(hidden, masked, masked * (1 + 1e-7)))
    moved = hidden.clone().view(-1)
    where = int(hidden.view(-1).nonzero()[5])
    moved[where], moved[777] = False, True
    assert not same(masked, logits.masked_fill(moved.view(shape), mask))


@pytest.mark.parametrize("size", [1e3, 1e5, 1e9, 1e15])
def test_large_values_are_compared_within_the_tolerance(size):
    """Whatever their size is, and beside small ones too."""
    values = torch.randn(500, 100) * size
    few = torch.where(torch.rand(500, 100) < 0.01, values, torch.randn(500, 100))
    for one in (values, few):
        assert same(one, one * (1 + 1e-7))
        assert not same(one, one * (1 + 1e-3))
        biggest = int(one.abs().argmax())
        assert not same(one, changed(one, biggest, 0.1 * float(one.view(-1)[biggest])))
        assert not same(one, changed(one, biggest, -2 * float(one.view(-1)[biggest])))


def test_numbers_are_tensors_of_one_element():
    """Python's numbers, and shapes () and (1,)."""
    for number in (2.5, -1e30, math.nan, math.inf, 7, True):
        tensor = torch.tensor(number)
        assert same(number, tensor), number
        assert same(number, tensor.reshape(1)), number
    assert not same(2.5, torch.tensor(2.6))


def test_layouts_and_views_have_no_part_in_it():
    values = torch.randn(32, 48, dtype=torch.complex64)
    assert same(values, values.t().contiguous().t())
    assert same(values.conj(), values.conj().resolve_conj())
    assert not same(values, values.conj())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2])
def test_other_floating_types(dtype):
    values = torch.randn(1000).to(dtype)
    assert same(values, values.clone())
    assert not same(values, changed(values.float(), 5, 2.0).to(dtype))


def test_the_structure_names_containers_and_leaves():
    begin = CallDigester(torch).begin
    value = (torch.zeros(4, 8), torch.zeros(1, dtype=torch.int64), None, {"a": [1, 2.0], "b": "x"})
    text = "(float32[4,8], int64[], None, dict(['a']=list([0]=int, [1]=float), ['b']=str))"
    assert begin(value).structure == text
    trained = torch.zeros(4, 8, requires_grad=True)
    assert begin(trained).structure == begin(torch.zeros(4, 8)).structure == "float32[4,8]"
    sparse = torch.eye(3).to_sparse()
    assert begin([sparse, object()]).structure == "list([0]=opaque:Tensor, [1]=opaque:object)"
    assert not same("x", "y")


class Cache:
    """As transformers has it: attributes alone."""

    def __init__(self, scale):
        self.layers, self.seen = [types.SimpleNamespace(keys=torch.ones(2, 3) * scale)], 2


class Slotted:
    __slots__ = ("__dict__", "rows")


class Counts(dict):
    pass


def test_objects_that_hold_attributes_alone_are_looked_into():
    text = "Cache{.layers=list([0]=SimpleNamespace{.keys=float32[2,3]}), .seen=int}"
    assert CallDigester(torch).begin(Cache(1)).structure == text
    assert same(Cache(1), Cache(1))
    assert not same(Cache(1), Cache(2))
    for value in (Slotted(), Counts(), torch.nn.Linear(1, 1), print, Cache):
        kind = type(value).__name__
        assert CallDigester(torch).begin(value).structure == f"opaque:{kind}"
    cyclic = Cache(1)
    cyclic.own = cyclic
    assert "opaque:Cache" in CallDigester(torch).begin(cyclic).structure


def test_digests_are_the_same_in_every_process():
    """Texts have no hash of this process's own."""
    made = digest(("text", torch.arange(5), 1.5))
    assert made.exact == -5362158810938486738, made.exact


class NothingIsRead(TorchDispatchMode):
    """Raises where an operation waits for a device, or copies from one to another."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, kwargs = str(function), kwargs or {}
        self.seen.append(name)
        assert "_local_scalar_dense" not in name
        assert "item" not in name
        assert "nonzero" not in name
        assert not ("_to_copy" in name and kwargs.get("device") is not None), kwargs
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        assert not ("copy_" in name and len({tensor.device for tensor in tensors}) > 1)
        return function(*args, **kwargs)


OUTPUTS = (torch.randn(300, 7), torch.arange(9), torch.ones(3).half(), 2.5, [torch.tensor(True)])


def test_nothing_waits_for_a_device():
    digester = CallDigester(torch)
    with NothingIsRead() as mode, torch.no_grad():
        folded = digester.fold(OUTPUTS)
    assert len(mode.seen) > 30
    assert DigestBatch([folded]).read() == [digest(OUTPUTS)]


class Doubled(torch.overrides.TorchFunctionMode):
    """A mode of the program's that changes results."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if isinstance(result, torch.Tensor) else result


def test_the_program_s_modes_and_autocast_see_nothing():
    plain = digest(OUTPUTS)
    digester = CallDigester(torch)
    with NothingIsRead() as mode, Doubled(), torch.autocast("cpu", torch.bfloat16):
        made = digester.begin(OUTPUTS)
    assert not mode.seen
    assert DigestBatch([made]).read() == [plain]


def test_under_inference_mode_and_after_it():
    digester = CallDigester(torch)
    plain = digest(OUTPUTS)
    with torch.inference_mode():
        first = digester.begin(OUTPUTS)
    trained = torch.randn(4, requires_grad=True)
    second = digester.begin((trained, *OUTPUTS[1:]))
    assert DigestBatch([first, digester.begin(OUTPUTS)]).read() == [plain, plain]
    assert second.structure.startswith("(float32[4]")


def test_no_reference_to_the_value_is_held():
    big = torch.randn(100_000)
    pending = CallDigester(torch).begin((big, big[5:]))
    assert all(part.numbers.untyped_storage().nbytes() <= 64 * 8 for part in pending.parts)


def test_digests_are_read_in_their_order():
    digester = CallDigester(torch)
    values = [
        torch.randn(3),
        1,
        (),
        (torch.arange(4), torch.randn(2)),
        "x",
        torch.randn(CPU_CHUNK * 2),
    ]
    batch = DigestBatch([digester.begin(value) for value in values])
    assert batch.is_ready()
    assert batch.read() == [digest(value) for value in values]


def test_what_a_dtensor_holds_here_is_compared(monkeypatch):
    """Its own kernels are those of a subclass: the local tensor is plain."""

    class DTensor(torch.Tensor):
        def to_local(self):
            return self.as_subclass(torch.Tensor)

    value = torch.randn(3).as_subclass(DTensor)
    assert CallDigester(torch).begin(value).structure == "DTensor:float32[3]"
    assert not same(value, changed(value, 0, 1.0))


def test_nothing_is_done_while_a_graph_is_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    class OnDevice(torch.Tensor):
        is_cuda = True

    pending = CallDigester(torch).begin(torch.ones(2).as_subclass(OnDevice))
    assert pending.structure == "not compared: a CUDA graph is captured"
    assert not pending.parts
