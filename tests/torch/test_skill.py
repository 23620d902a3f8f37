"""Proofs of the facts in SKILL.md: the test that a fact names asserts it by torch's own counters,
on the installed torch. What differs by version is said by `VERSION`."""

import random
import re
import threading
from pathlib import Path

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

PAGE = Path(__file__).resolve().parents[2] / "docs" / "skill" / "SKILL.md"
VERSION = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))


pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own
]


def test_the_page():
    """Every fact names its proof, every proof a fact; at most 200 lines."""
    text = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"\[(\w+)\]$", text, re.MULTILINE)
    proofs = [
        name[5:] for name in globals() if name.startswith("test_") and name != "test_the_page"
    ]
    assert sorted(named) == sorted(proofs)
    facts = text[text.index("\n## Facts") :]
    assert facts.count("\n- ") == len(named)
    assert len(text.splitlines()) <= 200


def graphs(function, calls, backend="eager", **options):
    """Compile a function, call it, and give torch's count of the graphs."""
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(function, backend=backend, **options)
    for arguments in calls:
        compiled(*arguments)
    return counters["stats"]["unique_graphs"]


def breaks():
    """Give torch's count of graph breaks since `graphs` began."""
    return sum(counters["graph_break"].values())


def marked(size, mark=lambda tensor: torch._dynamo.maybe_mark_dynamic(tensor, 0)):
    tensor = torch.ones(size, 4)
    mark(tensor)
    return tensor


def repeats(draw):
    """True where three compiled calls give the same number."""
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(draw, backend="eager")
    return len({float(compiled(torch.ones(()))) for _ in range(3)}) == 1


def fails(call):
    """True where a call raises."""
    try:
        call()
    except Exception:
        return True
    return False


# --- sizes ---------------------------------------------------------------------------------------


def test_size_twice():
    double = lambda x: x * 2
    assert graphs(double, [(torch.ones(n, 4),) for n in (3, 5, 7, 9)]) == 2
    assert graphs(double, [(torch.ones(n, 4),) for n in (3, 5, 7)], dynamic=False) == 3


def test_size_mark():
    double = lambda x: x * 2
    assert graphs(double, [(marked(n),) for n in (3, 5, 7)]) == 1
    assert (
        graphs(double, [(marked(3).clone(),), (marked(5).clone(),)]) == 2
    )  # of an operation: none
    assert graphs(double, [(marked(n),) for n in (3, 5, 1)]) == 2  # 0 and 1 are their own


def test_size_every_tensor():
    add = lambda x, y: (x * 2, y * 2)
    assert graphs(add, [(marked(n), torch.ones(n, 4)) for n in (3, 5)]) == 2
    assert graphs(add, [(marked(n), marked(n)) for n in (3, 5)]) == 1


def test_size_unbacked():
    from torch._dynamo.decorators import mark_unbacked

    unbacked = lambda n: marked(n, lambda tensor: mark_unbacked(tensor, 0))
    assert graphs(lambda x: x * 2, [(unbacked(n),) for n in (3, 1, 16, 2)]) == 1
    branch = lambda x: x * 2 if x.shape[0] > 4 else x
    assert fails(lambda: graphs(branch, [(unbacked(3),)], fullgraph=True))


def test_size_shared():
    if VERSION >= (2, 13):
        from torch._dynamo.decorators import mark_unbacked

        mark = lambda tensor: mark_unbacked(tensor, 0, shape_id="batch")
        add = lambda x, y: x + y
        assert graphs(add, [(marked(n, mark), marked(n, mark)) for n in (3, 1, 8)]) == 1


def test_size_loop():
    def scan(x):
        total = x[0]
        for t in range(1, x.shape[0]):
            total = total + x[t]
        return total

    assert graphs(scan, [(marked(n),) for n in (3, 5, 7)]) == 3


def test_size_branch():
    branch = lambda x: x * 2 if x.shape[0] > 4 else x + 1
    assert graphs(branch, [(marked(n),) for n in (3, 4, 5, 6)]) == 2


def test_size_stance():
    torch.compiler.set_stance("eager_then_compile")
    try:
        seen = graphs(lambda x: x * 2, [(torch.ones(n, 4),) for n in (3, 5, 7)])
        assert seen == 1 or VERSION < (2, 13)  # 2.7: one or two
    finally:
        torch.compiler.set_stance("default")


def test_size_source():
    with torch.compiler.config.patch(dynamic_sources="L['x']"):
        seen = graphs(lambda x: x * 2, [(torch.ones(n, 4),) for n in (3, 5, 7)])
    assert seen == 1 or VERSION < (2, 13)  # 2.7: one or two, by when it is set


def test_size_convolution():
    convolve = nn.Conv2d(1, 1, 3)
    image = lambda n: (marked_image(n),)

    def marked_image(n):
        images = torch.ones(n, 1, 8, 8)
        torch._dynamo.maybe_mark_dynamic(images, 0)
        return images

    assert graphs(convolve, [image(n) for n in (3, 5, 15)]) == 1
    assert graphs(convolve, [image(n) for n in (3, 16)]) == 2
    from torch._dynamo.decorators import mark_unbacked

    def unbacked(n):
        images = torch.ones(n, 1, 8, 8)
        mark_unbacked(images, 0)
        return (images,)

    if VERSION >= (2, 13):
        assert graphs(convolve, [unbacked(n) for n in (3, 16, 1)]) == 1
    if (2, 13) <= VERSION < (2, 14):
        wide = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1))
        with pytest.raises(AssertionError, match="expected size"):
            torch.compile(wide)(*unbacked(20))


def test_size_parameter():
    scale = lambda p: p * 2
    calls = [(nn.Parameter(torch.ones(n)),) for n in (3, 5, 7, 9)]
    assert graphs(scale, calls) == 4
    with torch._dynamo.config.patch(force_parameter_static_shapes=False):
        assert graphs(scale, calls) == 2


# --- numbers and flags ---------------------------------------------------------------------------


def test_number_float():
    scale = lambda x, s: x * s
    assert graphs(scale, [(torch.ones(4), v) for v in (0.1, 0.2)]) == 2
    assert graphs(scale, [(torch.ones(4), torch.tensor(v)) for v in (0.1, 0.2, 0.3)]) == 1


def test_number_dynamic():
    inputs = []

    def backend(module, example):
        inputs.append(len(example))
        return module.forward

    scale = lambda x, s: x * s
    graphs(scale, [(torch.ones(4, 4), 0.5)], backend=backend)
    graphs(scale, [(torch.ones(4, 4), 0.5)], backend=backend, dynamic=True)
    assert inputs[1] > inputs[0]  # sizes, and the float


def test_number_float64():
    def lowest(low, x):
        low.copy_(torch.minimum(low, x.min()))
        return low * 1.0

    def seen(shape, dtype):
        torch._dynamo.reset()
        compiled = torch.compile(lowest, backend="aot_eager")
        low = torch.full(shape, 9.0, dtype=dtype)
        return [float(compiled(low, torch.full((4,), v, dtype=dtype))) for v in (3.0, 2.0, 1.0)]

    assert seen((1,), torch.float64) == seen((), torch.float32) == [3.0, 2.0, 1.0]
    assert (seen((), torch.float64) == [3.0, 2.0, 1.0]) == (VERSION >= (2, 15))


def test_number_math():
    import math

    assert graphs(lambda x: x * math.sqrt(2.0), [(torch.ones(4),)], fullgraph=True) == 1
    scale = lambda x, s: x * math.sqrt(s)
    assert fails(lambda: graphs(scale, [(torch.ones(4), torch.tensor(2.0))], fullgraph=True))
    assert graphs(lambda x, s: x * s.sqrt(), [(torch.ones(4), torch.tensor(2.0))], fullgraph=True)


def test_number_attribute():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, x):
            self.calls.add_(1)
            return x * self.calls

    calls = [(torch.ones(4),)] * 5
    expected = (5, 5) if VERSION >= (2, 13) else (2, 1)
    assert (graphs(Counted(), calls), graphs(Counted(), calls, dynamic=True)) == expected
    assert graphs(Buffered(), calls) == 1
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        assert graphs(Counted(), calls) == 2


def test_number_alias():
    length = torch.zeros((), dtype=torch.long)
    before, copied = length, length.clone()
    length.add_(3)
    assert (int(before), int(copied)) == (3, 0)


def test_number_operand():
    drop = nn.functional.dropout
    if VERSION >= (2, 13):
        assert fails(lambda: graphs(drop, [(torch.ones(4), torch.tensor(0.5))], fullgraph=True))


def test_number_learning_rate():
    def trained(rate):
        weight = nn.Parameter(torch.ones(4))
        weight.grad = torch.ones(4)
        optimizer = torch.optim.Adam([weight], lr=rate)
        torch._dynamo.reset()
        counters.clear()
        step = torch.compile(optimizer.step, backend="eager")
        for factor in (1.0, 0.9, 0.8, 0.7):
            for group in optimizer.param_groups:
                if isinstance(rate, float):
                    group["lr"] = rate * factor
                else:
                    group["lr"].fill_(0.1 * factor)
            step()
        return counters["stats"]["unique_graphs"]

    assert (trained(0.1), trained(torch.tensor(0.1))) == (2, 1)


def test_flag_where():
    choose = lambda x, flag: torch.where(flag, x * 2, x + 1)
    calls = [(torch.ones(4), torch.tensor(flag)) for flag in (True, False)]
    assert graphs(choose, calls, fullgraph=True) == 1
    python = lambda x, flag: x * 2 if flag else x + 1
    assert fails(lambda: graphs(python, calls, fullgraph=True))
    assert graphs(python, [(torch.ones(4), True), (torch.ones(4), False)] * 3) == 2  # bounded


def test_flag_cond():
    choose = lambda x, flag: torch.cond(flag, lambda x: x * 2, lambda x: x.clone(), (x,))
    calls = [(torch.ones(4), torch.tensor(flag)) for flag in (True, False)]
    assert graphs(choose, calls, fullgraph=True) == 1
    alias = lambda x, flag: torch.cond(flag, lambda x: x * 2, lambda x: x, (x,))
    assert fails(lambda: graphs(alias, calls, fullgraph=True)) == (VERSION >= (2, 13))


def test_flag_cond_gradient():
    used, unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def choose(x, flag):
        return torch.cond(flag, used.forward, unused.forward, (x,)).sum()

    torch._dynamo.reset()
    torch.compile(choose, backend="aot_eager")(torch.ones(2, 4), torch.tensor(True)).backward()
    assert unused.weight.grad is not None
    assert not unused.weight.grad.any()


def test_flag_cond_number():
    def choose(x, flag):
        doubled = lambda x: (x * 2, torch.tensor(1))
        y, n = torch.cond(flag, doubled, lambda x: (x.clone(), torch.tensor(2)), (x,))
        return y.sum() + n * 0

    x = torch.ones(4, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(choose, backend="aot_eager")
    failed = fails(lambda: compiled(x, torch.tensor(True)).backward())
    assert failed == (VERSION >= (2, 13))


def test_none_then_tensor():
    add = lambda x, state: x * 2 if state is None else x * 2 + state
    assert graphs(add, [(torch.ones(4), None)] + [(torch.ones(4), torch.ones(4))] * 3) == 2
    assert (
        graphs(add, [(torch.ones(4), torch.zeros(4))] + [(torch.ones(4), torch.ones(4))] * 3) == 1
    )


# --- containers and objects ----------------------------------------------------------------------


def test_list_grows():
    total = lambda values: sum(values) * 2
    calls = [([torch.ones(4)] * n,) for n in (1, 2, 3, 4)]
    assert graphs(total, calls) == graphs(total, calls, dynamic=True) == 4


def test_cache_slice():
    def slice_write(cache, row, start):
        cache[start : start + 1] = row
        return cache * 1

    def index_write(cache, row, start):
        return cache.index_copy_(0, start, row) * 1

    rows = [(torch.zeros(8, 4), torch.ones(1, 4), n) for n in (2, 3, 4)]
    assert graphs(slice_write, rows) == 2
    tensors = [(cache, row, torch.tensor([n])) for cache, row, n in rows]
    assert graphs(index_write, tensors, fullgraph=True) == 1


def test_function_swapped():
    apply = lambda x, function: function(x)
    calls = [(torch.ones(4), lambda x: x * 2), (torch.ones(4), lambda x: x + 1)]
    assert graphs(apply, calls) == 2


def test_alias_arguments():
    add, x = lambda x, y: x * 2 + y, torch.ones(4)
    assert graphs(add, [(x, torch.ones(4)), (x, x)]) == 2
    assert graphs(add, [(x, torch.ones(4)), (x, x.clone())]) == 1


def test_backend_object():
    def compile_anew(fresh):
        torch._dynamo.reset()
        counters.clear()
        function, shared = (lambda x: x * 2), (lambda module, example: module.forward)
        for _ in range(3):
            backend = (lambda module, example: module.forward) if fresh else shared
            torch.compile(function, backend=backend)(torch.ones(4))
        return counters["stats"]["unique_graphs"]

    assert (compile_anew(True), compile_anew(False)) == (3, 1)


def test_hook_late():
    model, seen = nn.Linear(4, 4), []
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    compiled(torch.ones(2, 4))
    model.register_forward_hook(lambda *_: seen.append(1))
    compiled(torch.ones(2, 4))
    assert seen == []
    torch._dynamo.reset()
    compiled(torch.ones(2, 4))
    assert seen == [1]


# --- breaks --------------------------------------------------------------------------------------


def test_break_item():
    scale = lambda x: x * x.sum().item()
    graphs(scale, [(torch.ones(4),)])
    assert breaks() == 1
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        graphs(scale, [(torch.ones(4),)])
        assert breaks() == 0


def test_break_fullgraph():
    scale = lambda x: x * x.sum().item()
    if VERSION >= (2, 13):
        assert graphs(scale, [(torch.ones(4),)], fullgraph=True) == 1
    else:
        assert fails(lambda: graphs(scale, [(torch.ones(4),)], fullgraph=True))


def test_break_disabled():
    helper = torch.compiler.disable(lambda x: x + 1)
    assert graphs(lambda x: helper(x * 2) * 3, [(torch.ones(4),)]) == 2
    assert breaks() == 1


def test_break_nonzero():
    chosen = lambda x: x[x > 0] * 2
    graphs(chosen, [(torch.ones(4),)])
    assert breaks() == 1
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        graphs(chosen, [(torch.ones(4),)])
        assert breaks() == 0
    masked = lambda x: torch.where(x > 0, x * 2, 0)
    assert graphs(masked, [(torch.ones(4),)], fullgraph=True) == 1


def test_break_logger():
    import logging

    def logged(x):
        logging.getLogger("a").info("step")
        return x * 2

    graphs(logged, [(torch.ones(4),)])
    assert breaks() >= 1


def test_break_guarded():
    def shown(x):
        if not torch.compiler.is_compiling():
            print("x")
        return x * 2

    assert graphs(shown, [(torch.ones(4),)], fullgraph=True) == 1


def test_break_assert():
    def checked(x):
        if x.min() < 0:
            raise ValueError("negative")
        return x * 2

    def asserted(x):
        torch._assert_async(x.min() >= 0)
        return x * 2

    assert fails(lambda: graphs(checked, [(torch.ones(4),)], fullgraph=True))
    assert graphs(asserted, [(torch.ones(4),)], fullgraph=True) == 1


def test_break_print():
    def shown(x):
        print("x")
        return x * 2

    graphs(shown, [(torch.ones(4),)])
    assert breaks() == 1


def test_break_random():
    drawn = lambda x: x * random.random()
    failed = fails(lambda: graphs(drawn, [(torch.ones(4),)], fullgraph=True))
    assert failed == (VERSION < (2, 15))
    random.seed(0)
    draws = [random.uniform(0, 1) for _ in range(2)]
    random.seed(0)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * random.uniform(0, 1), backend="eager", fullgraph=True)
    seen = [float(compiled(torch.ones((), dtype=torch.float64))) for _ in range(2)]
    assert all(abs(a - b) < 1e-12 for a, b in zip(seen, draws, strict=True))


def test_random_inductor():
    scale = torch.compile(lambda x: x * random.uniform(1, 2))
    random.seed(0)
    drawn = random.uniform(1, 2)
    random.seed(0)
    seen = float(scale(torch.ones(())))
    assert (abs(seen - drawn) < 1e-6) == (VERSION >= (2, 15))


def test_random_object():
    generator = random.Random(0)
    assert repeats(lambda x: x * generator.uniform(0, 1)) == (VERSION < (2, 15))
    assert repeats(lambda x: x * generator.sample(range(1000), 2)[0]) == (VERSION >= (2, 15))


def test_random_shuffle():
    def shuffled(x):
        order = list(range(1000))
        random.shuffle(order)
        return x * order[0]

    assert repeats(shuffled) == (VERSION >= (2, 15))
    assert (breaks() > 0) == (VERSION < (2, 15))


def test_break_loop():
    def looped(x):
        for _ in range(2):
            print("x")
            x = x * 2
        return x

    assert graphs(looped, [(torch.ones(4),)]) == 0  # the whole frame runs eagerly


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_break_training_step():
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compute_loss = lambda x: net(x).square().mean()

    def step(x):
        optimizer.zero_grad()
        loss = compute_loss(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    graphs(step, [(torch.ones(2, 4),)])
    assert breaks() >= 3
    assert graphs(compute_loss, [(torch.ones(2, 4),)]) == 1
    assert breaks() == 0


def test_limit_silent():
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert graphs(lambda x: x * 2, [(torch.ones(n),) for n in range(2, 14)]) == 8


# --- other properties of tensors -----------------------------------------------------------------


def test_stride_one():
    x = torch.empty_strided((1, 4), (100, 1))
    assert x.contiguous().stride() == (100, 1)
    assert x.clone(memory_format=torch.contiguous_format).stride() == (4, 1)
    dense = torch.ones(1, 4)
    double = lambda x: x * 2
    assert graphs(double, [(dense,), (x,)]) == 2


def test_inference_tensor():
    with torch.inference_mode():
        made = torch.ones(4)
    double = lambda x: x * 2
    assert graphs(double, [(torch.ones(4),), (made,)]) == 2
    with torch.inference_mode(), torch.inference_mode(False):
        inside = torch.ones(4)
    assert graphs(double, [(torch.ones(4),), (inside,)]) == 1


def test_gradient_modes():
    double = lambda x: x * 2

    def both(x):
        with torch.no_grad():
            compiled(x)
        compiled(x)

    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(double, backend="eager")
    for _ in range(3):
        both(torch.ones(4))
    assert counters["stats"]["unique_graphs"] == 2
    needs = torch.ones(4, requires_grad=True)
    assert graphs(double, [(torch.ones(4),), (needs,)]) == 2


def test_training_flag():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(model, backend="eager")
    for flag in (True, False, True, False):
        model.train(flag)
        compiled(torch.ones(2, 4))
    assert counters["stats"]["unique_graphs"] == 2


def test_config_thread():
    seen = []
    with torch._dynamo.config.patch(recompile_limit=32):
        thread = threading.Thread(target=lambda: seen.append(torch._dynamo.config.recompile_limit))
        thread.start()
        thread.join()
    assert seen == ([8] if VERSION >= (2, 12) else [32])
