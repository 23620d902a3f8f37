"""What is computed before the call instead of in it: one graph of the edited program, no break, and
the same results and random numbers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

from compilediag.fixes.codemods.edit import Edit, edited  # noqa: E402
from tests.support.edited_program import Ran, run_program  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore")]

TEXT = """\
@torch.compile(backend=backend)
def loss(prediction, target, reduction="mean"):
    error = (prediction - target) ** 2
    if reduction == "mean":
        return error.mean()
    if reduction == "sum":
        return error.sum()
    return error.max()
for reduction in ("mean", "sum", "max", "mean"):
    prediction = torch.arange(6.0, requires_grad=True)
    value = loss(prediction, torch.ones(6), reduction=reduction)
    value.backward()
    results += [value, prediction.grad]
"""

PLAIN = """\
def score(values, kind):
    return values.tanh() if not kind.startswith("h") else values / 3
compiled = torch.compile(score, backend=backend)
for kind in ("soft", "hard", "h2"):
    results.append(compiled(torch.arange(4.0), kind))
"""

TABLE = """\
GAINS = {"low": 0.1, "high": 2.5}
@torch.compile(backend=backend)
def scaled(x, name, training):
    if training:
        x = x + 1.0
    return x * GAINS[name]
for name in ("low", "high", "low"):
    results.append(scaled(torch.arange(4.0), name, True))
"""

MEMBER = """\
import enum
Mode = enum.Enum("Mode", ["PLAIN", "SHARP"])
class Request:
    def __init__(self, mode, bias):
        self.mode, self.bias = mode, bias
@torch.compile(backend=backend)
def score(x, request):
    x = x + 0.5
    if request.mode is Mode.SHARP:
        x = x * x
    if request.bias is not None:
        x = x + request.bias
    return x
for mode, bias in ((Mode.PLAIN, None), (Mode.SHARP, None)):
    results.append(score(torch.arange(3.0), Request(mode, bias)))
"""

NONE = MEMBER.replace("(Mode.SHARP, None)", "(Mode.PLAIN, torch.ones(3))")

MODULE = """\
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
    def forward(self, x, mode="plain"):
        x = self.linear(x)
        return x.tanh() if mode == "tanh" else x * 2.0
torch.manual_seed(0)
model = Model()
compiled = torch.compile(model, backend=backend)
for mode in ("plain", "tanh"):
    results.append(compiled(torch.ones(3), mode=mode))
results += model.parameters()
"""

CHOICE = """\
def brighter(image):
    return image + 0.25
def inverted(image):
    return 1.0 - image
@torch.compile(backend=backend)
def augment(image, change, kind):
    image = change(image)
    return getattr(torch, kind)(image)
for change, kind in ((brighter, "tanh"), (inverted, "sin"), (brighter, "relu"), (inverted, "sin")):
    image = torch.arange(3.0, requires_grad=True)
    value = augment(image, change, kind)
    value.sum().backward()
    results += [value, image.grad]
"""

BY_SIZE = """\
def scale(rows):
    if rows.size(0) == 6:
        return rows * 0.5
    return rows * 0.25
@torch.compile(backend=backend, dynamic=True)
def scaled(rows):
    return scale(rows).sum(), rows.mean() if rows.shape[0] > 4 else rows.amax()
for number in (3, 5, 6, 4):
    results += scaled(torch.arange(2.0 * number).reshape(number, 2))
"""

OF_LISTS = """\
@torch.compile(backend=backend)
def fuse(features):
    total = torch.zeros_like(features[0])
    highest = features[0]
    for feature in features:
        total = total + feature.cos()
        highest = torch.maximum(highest, total)
    return total / len(features), highest
for number in (2, 3, 1, 4):
    results += fuse([torch.arange(3.0) + at for at in range(number)])
"""

INSTANCES = """\
class Layer(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.mix = torch.nn.Linear(3, 3)
        self.kind = kind
    def forward(self, x):
        return x + getattr(torch, self.kind)(self.mix(x))
torch.manual_seed(0)
layers = [torch.compile(Layer(kind), backend=backend) for kind in ("relu", "tanh", "sin")]
for layer in layers:
    value = layer(torch.arange(6.0).reshape(2, 3))
    value.sum().backward()
    results += [value, layer.mix.weight.grad]
"""

CHECKSUM = """\
import zlib
@torch.compile(backend=backend)
def encode(x, name):
    doubled = x * 2.0
    mark = zlib.crc32(name)
    return doubled + mark % 7
for name in (b"a", b"a"):
    results.append(encode(torch.ones(2), name))
"""

DRAWN = """\
import random
@torch.compile(backend=backend)
def augment(x):
    gain = random.choice([1.0, 2.0, 3.0])
    return x * gain
random.seed(3)
for _ in range(5):
    results.append(augment(torch.ones(2)))
results.append(torch.tensor(random.random()))
"""

OPERATOR = """\
def kernel(x, limit: float):
    return (x.abs() - limit).clamp(min=0.0)
library = torch.library.Library("computed_before", "FRAGMENT")
library.define("shrink(Tensor x, float limit) -> Tensor")
torch.library.impl("computed_before::shrink", "cpu", kernel, lib=library)
@torch.compile(backend=backend)
def shrunk(x):
    return torch.ops.computed_before.shrink(x * 2.0, 0.5) + 1.0
results.append(shrunk(torch.linspace(-1, 1, 5)))
"""

GENERATOR = """\
@torch.compile(backend=backend)
def layers(x):
    for gain in (0.5, 2.0):
        x = x * gain
        yield x
results += list(layers(torch.ones(2)))
for each in layers(torch.ones(2)):
    results.append(each)
"""

APPLIED = """\
def half_up(value):
    return int(value + 0.5)
@torch.compile(backend=backend)
def quantise(values):
    scaled = values * 4.0
    return scaled.apply_(half_up) / 4.0, scaled
results += quantise(torch.linspace(-2, 2, 23))
"""

TWO_FLAGS = """\
def made():
    first = second = False
    def switch(a, b):
        nonlocal first, second
        first, second = a, b
    @torch.compile(backend=backend)
    def forward(x):
        x = x * 2.0
        if first:
            x = x * 0.5
        if second:
            x = x + 1.0
        return x
    return forward, switch
forward, switch = made()
for a, b in ((False, False), (True, False), (False, True), (True, True)):
    switch(a, b)
    results.append(forward(torch.ones(2)))
"""


HEAD = "import torch\n"


def before(line: int, *code: str) -> list[Edit]:
    return [Edit("", line + 1, "computed_before", code)]


@pytest.mark.parametrize(
    ("program", "edits"),
    [
        (TEXT, before(1, "of", "reduction")),
        (PLAIN, before(1, "of", "kind")),
        (TABLE, before(2, "of", "name")),
        (MEMBER, before(6, "of", "request.mode")),
        (NONE, before(6, "neutral", "request.bias", "3, dtype=torch.float32")),
        (MODULE, before(5, "of", "mode")),
        (INSTANCES, [Edit("", 8, "chosen_by_buffer", ("kind", "relu", "sin", "tanh"))]),
        (OF_LISTS, [Edit("", 3, "padded_list", ("features", "4"))]),
        (BY_SIZE, [Edit("", line, "branch_on_size") for line in (3, 8)]),
        (
            CHOICE,
            before(6, "one_of", "change") + before(6, "one_of", "kind", "relu", "sin", "tanh"),
        ),
        (CHECKSUM, before(5, "call", "crc32")),
        (DRAWN, before(4, "call", "choice")),
        (APPLIED, [Edit("", 7, "applied")]),
        (
            TWO_FLAGS,
            [
                Edit("", 10, "flag_as_tensor", ("first", "bool")),
                Edit("", 12, "flag_as_tensor", ("second", "bool")),
            ],
        ),
    ],
)
def test_one_graph_computes_the_same(program: str, edits: list[Edit]) -> None:
    text = HEAD + program
    was, now = run_program(text), run_program(edited(text, edits))
    assert (now.graphs, now.breaks) == (1, 0)
    assert was.graphs > 1
    same(was, now)


def same(was: Ran, now: Ran) -> None:
    assert len(was.results) == len(now.results)
    for old, new in zip(was.results, now.results, strict=True):
        torch.testing.assert_close(new, old)


def test_a_generator_is_compiled_as_a_list() -> None:
    text, edit = HEAD + GENERATOR, Edit("", 2, "generator_as_list")
    was, now = run_program(text), run_program(edited(text, [edit]))
    assert (was.graphs, now.graphs) == (0, 1)
    same(was, now)


def test_a_kernel_of_the_program_is_traced() -> None:
    was = run_program(HEAD + OPERATOR)
    text = HEAD + OPERATOR.replace("computed_before", "computed_again")  # an operator is made once
    now = run_program(edited(text, [Edit("", 9, "own_kernel", ("computed_again::shrink",))]))
    assert was.breaks == 1
    assert (now.graphs, now.breaks) == (1, 0)
    same(was, now)
