"""Advice is a claim: a recipe is printed where its facts hold, and followed to the letter it
removes what it stands under; where one of them fails there is none, and the sentence says why."""

import contextlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import utils

import compilediag
from compilediag.diagnosis.findings import Finding
from compilediag.views.findings import build_card
from compilediag.views.style import PLAIN

sys.path.insert(0, str(Path(__file__).parents[2]))
from tools.advice.following import follow

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"

NUMBER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.level = {first}
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        return {use}


def main():
    net, results = torch.compile(Net(), backend="eager"{options}), []
    for value in {values}:
        {change}
        results.append(net(torch.ones(4, 6)))
    return results
"""

ARGUMENTS = """
def step({parameters}):
    {body}


def main():
    compiled, results = torch.compile(step, backend="eager"{options}), []
    for n in {values}:
        {before}
        results.append(compiled({passed}))
    return results
"""

HELD = """
def make(rows):
    def scaled(x):
        return x * rows

    def replace(size):
        nonlocal rows
        rows = torch.ones(size, 1)

    return scaled, replace


def main():
    scaled, replace = make(torch.ones(2, 1))
    compiled, results = torch.compile(scaled, backend="eager"), []
    for size in (2, 3, 4):
        replace(size)
        results.append(compiled(torch.ones(1, 4)))
    return results
"""

FILLED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        {fill}
        return {read}


def main():
    net, results = torch.compile(nn.Sequential(Net()), backend="eager"), []
    for size in {sizes}:
        results.append(net(torch.ones(size, 6)))
    return results
"""


EDGES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.edges, self.rows = None, 0

    def find(self, rows):
        if self.edges is None or self.rows != rows:
            self.rows = rows
            self.edges = torch.ones(rows, 3).nonzero()
        return self.edges

    def forward(self, x):
        return x * self.find(x.shape[0]).sum()


def main():
    net = torch.compile(Net(), backend="eager")
    return [net(torch.ones(n, 2)) for n in (4, 4, 6)]
"""


def number(use: str, values: Any, change: str = "net.level = value", options: str = "") -> str:
    return NUMBER.format(use=use, values=values, first=values[0], change=change, options=options)


def arguments(
    parameters: str, body: str, passed: str, values: Any, before: str = "pass", options: str = ""
) -> str:
    return ARGUMENTS.format(
        parameters=parameters, body=body, passed=passed, values=values, before=before,
        options=options,
    )  # fmt: skip


def filled(made: str, fill: str, read: str, sizes: Any = (4, 4, 4)) -> str:
    return FILLED.format(made=made, fill=fill, read=read, sizes=sizes)


OPTIMIZER = """
class Signed(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["average"] = torch.zeros_like(p)
                state["average"].mul_(0.9).add_(p.grad)
                p.add_(state["average"].sign(), alpha=-group["lr"])


def main():
    net, results = nn.Linear(4, 1), []
    nn.init.ones_(net.weight), nn.init.ones_(net.bias)
    step = torch.compile(Signed(net.parameters(), {"lr": 0.1}).step, backend="eager")
    for _ in range(3):
        net(torch.ones(2, 4)).sum().backward()
        step()
        results.append(net.weight.detach().clone())
    return results
"""
CARRIED = "z = (x * 2, print(end=''), y)[0]\n    return z + y.sum()"
"""Dynamo gives what it computed before the break a name of its own."""

REMOVED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.first.gain = self.second.gain = 2

    def forward(self, x):
        x = self.first(x) * self.first.gain
        return self.second(x) * self.second.gain


def main():
    net, results = Net(), []
    layers = net.first, net.second
    hooks = [layer.register_forward_pre_hook(lambda *_: None) for layer in layers]
    compiled = torch.compile(net, backend="eager")
    for turn in range(3):
        results.append(compiled(torch.ones(2, 4)))
        for layer, hook in zip(layers, hooks):
            hook.remove()
            layer.gain = 3
    return results
"""

INTS, FLOATS = (1, 2, 3, 4, 5), (0.1, 0.2, 0.3)
UNSET = "self.mask = None\n        self.width = 0"
SET = "if self.mask is None:\n            self.mask = torch.ones(6)\n            self.width = 6"

CASES = {
    # A number that changes, by what the code does with it.
    "int computed with": (number("x * self.level", INTS), "dynamic_source", "L['self'].level"),
    "int of an operator": (number("x.roll(self.level, 0)", (2, 3, 4)), "dynamic_source", "level"),
    "int that a loop needs": (number("sum(x * i for i in range(self.level))", INTS), None, "range"),
    "int of math": (number("x * math.log(self.level)", INTS), None, "math.log"),
    "float computed with": (number("x * self.level", FLOATS), None, "let a tensor hold it"),
    "p of dropout": (number("F.dropout(x, self.level, False)", FLOATS), None, "F.dropout takes it"),
    "alpha of add": (number("torch.add(x, x, alpha=self.level)", FLOATS), None, "torch.add takes"),
    "label smoothing": (
        number("F.cross_entropy(x, x.long()[:, 0], label_smoothing=self.level)", FLOATS),
        None,
        "F.cross_entropy takes it as a number",
    ),
    "a number that torch.nn reads": (
        number("self.drop(x)", FLOATS, "net.drop.p = value"), None, "F.dropout takes it",
    ),
    "a flag": (number("x if self.level else -x", (False, True)), None, "a condition reads it"),
    "float argument": (
        arguments("x, scale", "return x * scale", "torch.ones(4), n", FLOATS),
        "tensor_argument",
        "pass torch.tensor(n, dtype=torch.float32) for `scale`",
    ),
    # Sizes.
    "each argument in its own dimension": (
        arguments("x, y", "return x.sum() + y.sum()", "a, b", (3, 5, 7, 9),
                  "a, b = torch.ones(n, 2), torch.ones(2, n)"),
        "mark_dynamic",
        "maybe_mark_dynamic(a, 0), torch._dynamo.maybe_mark_dynamic(b, 1)",
    ),
    "dynamic=False, any size works": (
        arguments("x", "return x.sum() / x.shape[0]", "a", (3, 5, 7), "a = torch.ones(n, 2)",
                  ", dynamic=False"),
        "mark_dynamic",
        "maybe_mark_dynamic(a, 0)",
    ),
    "dynamic=False, a loop": (
        arguments("x", "return sum(x[i] for i in range(x.shape[0]))", "a", (3, 5, 7),
                  "a = torch.ones(n, 2)", ", dynamic=False"),
        None,
        "pad to",
    ),
    "a length that is asked whether it is a multiple": (
        arguments("x", "whole = (x.shape[0] / 4).is_integer(); return x * 2 if whole else x", "a",
                  (4, 6, 7, 9), "a = torch.ones(n, 2)"),
        None,
        "for each size of `x.size()[0]`, because case.py:7 takes it as a number",
    ),
    "sizes on several sides of a condition": (
        arguments("x", "for i in range(20, 90):\n        x = x * 2 if x.shape[0] % i else x\n    "
                  "x = x if x.shape[0] % 3 else x + 1\n    "
                  "return x * 2 if x.shape[0] % 5 else -x", "a", (7, 10, 9, 15),
                  "a = torch.ones(n, 2)"),
        None,
        "for each side of the code's conditions on the size of `x`",
    ),
    "a size that meets one that stays": (
        arguments("x, mask=None", "return x * 2 if mask is None else x.masked_fill(~mask, 0.0)",
                  "a, b", (3, 4, 6),
                  "a, b = torch.ones(n, 2), torch.ones(4, 2).bool() if n == 4 else None"),
        None,
        "torch guards on `x.size()[0]` for case.py:7",
    ),
    "a number on both sides of a condition": (
        arguments("x, n", "return x * 2 if n % 3 else x", "torch.ones(4), n", (1, 2, 3, 4)),
        None,
        "a graph for the first value of `n`, then one for each side of the condition at case.py:7",
    ),
    "a number for a loop behind a condition": (
        arguments("x, n", "x = x if n > 9 else x + 1\n    for i in range(n):\n        x = x * 2\n"
                  "    return x", "torch.ones(4), n", (1, 2, 3)),
        None,
        "range takes it as a number at case.py:8",
    ),
    "a captured tensor": (HELD, None, "a graph for each size of `rows`"),
    "tensors that no line names": (
        arguments("x", "return x * 2", "*[torch.ones(n, 2)]", (3, 5, 7)),
        "dynamic_source",
        "L['x']:0",
    ),
    # What the first call sets.
    "a mask and what is set beside it": (
        filled(UNSET, SET, "x * self.mask + self.width"), "first_call_eager", "mask",
    ),
    "what a first call sets that no line of the program's makes": (  # as that of a trainer
        filled("self.kind = None", "if self.kind is None:\n            self.kind = 'one'",
               "x * 2 if self.kind == 'one' else x").replace(
            "    for size in (4, 4, 4):\n        results.append(net(torch.ones(size, 6)))\n",
            "    results.extend(map(net, [torch.ones(4, 6)] * 3))\n"),
        None,
        "unset and sets it, and the second compiles again",
    ),
    "a dict that is filled": (
        filled("self.kept = {}", "if 'a' not in self.kept:\n            self.kept['a'] = 2.0",
               "x * self.kept['a']"),
        "first_call_eager",
        "kept",
    ),
    "an optimizer's state behind a break": (
        OPTIMIZER.replace(
            'step = torch.compile(Signed(net.parameters(), {"lr": 0.1}).step, backend="eager")',
            """optimizer = Signed(net.parameters(), {"lr": 0.1})

    @torch.compile(backend="eager")
    def step():
        torch._dynamo.graph_break()
        optimizer.step()
""",
        ),
        "first_call_eager",
        "the optimizer's state",
    ),
    "a cache that a break has a frame for": (EDGES, None, "remove the graph break"),
    "a mask that grows": (
        filled("self.mask = None", "if self.mask is None or self.mask.shape[0] < x.shape[0]:\n"
               "            self.mask = torch.ones(x.shape[0], 1)", "x * self.mask[: x.shape[0]]",
               (3, 5, 7, 9)),
        None,
        "",
    ),
    "a mask that grows, and a loop": (
        filled("self.mask = None", "if self.mask is None or self.mask.shape[0] < x.shape[0]:\n"
               "            self.mask = torch.ones(x.shape[0], 1)",
               "sum(x[i] * self.mask[i] for i in range(x.shape[0]))", (1, 5, 7, 9)),
        None,
        "",
    ),
    # Items of a dict, as an optimizer counts its steps.
    "a counted item": (
        arguments("x, state", "state['step'] += 1; return x * (1 - 0.9 ** state['step'])",
                  "torch.ones(4), {'step': n}", (2, 3, 4)),
        "dynamic_source",
        "L['state']['step']",
    ),
    # Variants that are wanted.
    "an optional cache": (
        arguments("x, cache=None", "return x * 2 if cache is None else x + cache",
                  "torch.ones(4), torch.ones(4) if n else None", (0, 1, 0)),
        None,
        "leave it, or warm up",
    ),
    "train and eval": (number("x * 2 if self.training else x", (True, False), "net.train(value)"),
                       None, "one graph for each mode"),
}  # fmt: skip


def load(path: Path, text: str) -> Any:
    """The module of a program, under the name of its file."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def recompiles() -> list[str]:
    """As torch itself counts them."""
    return [row.recompile_reason for row in utils.get_compilation_metrics() if row.recompile_reason]


def find_recompiles(path: Path, text: str) -> tuple[list[Finding], Any]:
    module = load(path, HEAD + text)
    with compilediag.watch() as seen:
        results = module.main()
    assert recompiles()
    return [found for found in seen.findings if found.rule < "CD12"], results


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_is_followed_and_cures(name: str, tmp_path: Path) -> None:
    """Or there is none, and what torch guards on is said with the line that needs it."""
    text, recipe, said = CASES[name]
    findings, before = find_recompiles(tmp_path / "case.py", text)
    if recipe is None:
        assert not [found for found in findings if found.fix.recipe]
        assert any(said in found.fix.summary for found in findings), findings
        return
    found = next(found for found in findings if found.fix.recipe == recipe)
    assert said in found.fix.summary
    changed, variables = follow(HEAD + text, found)
    sources = variables.get("TORCH_COMPILE_DYNAMIC_SOURCES", "")
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    with torch.compiler.config.patch(dynamic_sources=sources):
        after = load(tmp_path / "changed.py", changed).main()
    torch.testing.assert_close(after, before)
    assert recompiles() == []


def test_a_size_of_one_is_a_cause_of_its_own(tmp_path: Path) -> None:
    """A mark removes the others, which it stands under."""
    text = arguments("x", "return x * 2", "a", (3, 1, 5, 7), "a = torch.ones(n, 2)")
    findings, _ = find_recompiles(tmp_path / "case.py", text)
    marked, small = sorted(findings, key=lambda found: found.fix.recipe is None)
    assert (marked.fix.recipe, marked.count, small.count) == ("mark_dynamic", 1, 1)
    assert "sizes 0 and 1" in small.fix.summary
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    load(tmp_path / "changed.py", follow(HEAD + text, marked)[0]).main()
    assert len(recompiles()) == 1


def test_what_a_graph_for_a_batch_of_one_refuses_says_nothing_of_others(tmp_path: Path) -> None:
    """Of a UNet of diffusers: sizes were said to be on several sides of a condition."""
    text = arguments("x", "return x * 2 if x.shape[0] * x.shape[1] > 30 else x", "a",
                     ((4, 8), (6, 8), (1, 40)), "a = torch.ones(*n)")  # fmt: skip
    (marked,), _ = find_recompiles(tmp_path / "case.py", text)
    assert (marked.fix.recipe, marked.count) == ("mark_dynamic", 2)
    assert "size 0 or 1 has a graph of its own" in marked.fix.caveat
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    load(tmp_path / "changed.py", follow(HEAD + text, marked)[0]).main()
    assert len(recompiles()) == 1


def test_what_one_act_changes_of_several_modules_is_one_finding(tmp_path: Path) -> None:
    """Their parameters and their hooks, wherever `forward` reads them."""
    findings, _ = find_recompiles(tmp_path / "case.py", REMOVED)
    (found,) = findings
    assert {part.rule for part in found.about} == {"CD104", "CD115"}
    assert len(found.about) == 4


def test_another_cause_of_the_same_compile_is_named(tmp_path: Path) -> None:
    """A recipe that is followed alone would have no effect then."""
    passed = "torch.ones(3 + n, 2), n / 10"
    text = arguments("x, scale", "return x * scale", passed, (1, 2, 3))
    findings, _ = find_recompiles(tmp_path / "case.py", text)
    assert {found.fix.recipe for found in findings} == {"dynamic_source", "tensor_argument"}
    for found, other in (findings, reversed(findings)):
        said = f"this alone does not prevent the recompile: with {other.id[1:]} it does"
        assert said in found.fix.caveat


CAUSAL = """
def attend(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal={condition})


def main():
    compiled = torch.compile(attend, backend="eager")
    return [compiled(torch.ones(1, 2, n, 4)) for n in (3, 5, 6, 1)]
"""


def test_a_condition_on_a_size_is_made_a_plain_bool_where_an_operator_takes_no_other(
    tmp_path: Path,
) -> None:
    """As in Whisper's attention, whose decoder runs eager from the second prompt on."""
    condition = "x.shape[2] > 1"
    module = load(tmp_path / "case.py", HEAD + CAUSAL.format(condition=condition))
    with compilediag.watch() as seen:
        before = module.main()
    found = next(each for each in seen.findings if each.fix.recipe == "plain_bool")
    assert found.rule == "CD210"
    assert "pass a plain bool as `is_causal`: `True if … else False`" in found.fix.summary
    torch._dynamo.reset()
    plain = CAUSAL.format(condition=f"True if {condition} else False")
    module = load(tmp_path / "changed.py", HEAD + plain)
    with compilediag.watch() as seen:
        torch.testing.assert_close(module.main(), before)
    assert not seen.receipt.compile.graph_breaks


def test_a_tensor_that_grows_keeps_a_graph_for_each_side_of_its_branch(tmp_path: Path) -> None:
    """One setting and an eager first call for what the frame is compiled for three times."""
    text = filled(
        "self.mask = None",
        "if self.mask is None or self.mask.shape[0] != x.shape[0]:\n"
        "            self.mask = torch.ones(x.shape[0], 1)",
        "x * self.mask",
        (5, 7, 7, 8),
    )
    findings, before = find_recompiles(tmp_path / "case.py", text)
    found = next(found for found in findings if found.fix.recipe == "dynamic_growth")
    assert len(recompiles()) == 3
    changed, variables = follow(HEAD + text, found)
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    with torch.compiler.config.patch(dynamic_sources=variables["TORCH_COMPILE_DYNAMIC_SOURCES"]):
        after = load(tmp_path / "changed.py", changed).main()
    torch.testing.assert_close(after, before)
    assert len(recompiles()) == 1


MADE = """
import numpy as np
lib = torch.library.Library("advice_test", "FRAGMENT")
lib.define("{name}(Tensor x) -> Tensor")
lib.impl("{name}", lambda x: x * 3, "CPU")


def call(x):
    return {body}
"""
FAILING = {
    "torch.ops.advice_test.{name}(x)": "register a fake implementation",
    "x[: np.ceil(np.log(x.shape[0])).astype('int').item()]": "compute the number from Python",
    "torch.FloatTensor(x)": "write it in another form",
    "torch.add(x, x, out=x.new_empty(0))": "call it without out=",
}


@pytest.mark.parametrize("body", FAILING)
def test_only_an_operator_without_a_fake_needs_one(body: str, tmp_path: Path) -> None:
    """Not torch's own, where the arguments are what it cannot be called with."""
    name = f"triple_{abs(hash(str(tmp_path)))}"
    text = MADE.format(name=name, body=body.format(name=name))
    module = load(tmp_path / "case.py", HEAD + text)
    with compilediag.watch() as seen, contextlib.suppress(Exception):
        torch.compile(module.call, backend="eager")(torch.ones(3, dtype=torch.float64))
    (found,) = (each for each in seen.findings if each.rule == "CD210")
    assert FAILING[body] in found.fix.summary


UNKNOWN_SIZE = """
def positive(x):
    {body}


def step(x):
    return positive(x * 2)


def main():
    compiled = torch.compile({compiled}, backend="eager")
    return [compiled(torch.arange(n, dtype=torch.float32)) for n in (6, 9, 12)]
"""


@pytest.mark.parametrize(
    "body",
    [
        "for row in (x, x + 1):\n        x = x + row[row > 0].sum().item()\n    return x",
        "rows = x[x >= 0].reshape(3, -1)\n    return F.layer_norm(rows, rows.shape[1:])",
    ],
)
def test_what_breaks_behind_a_break_in_an_eager_frame_is_not_known(
    body: str, tmp_path: Path
) -> None:
    """torch gives up a frame that breaks in a loop: the setting shows the next break, and is no
    recipe. Nor is it one where the code behind the break reshapes by the unknown size."""
    text = UNKNOWN_SIZE.format(body=body, compiled="positive" if "rows" in body else "step")
    module = load(tmp_path / "case.py", HEAD + text)
    with compilediag.watch() as seen:
        module.main()
    found = next(found for found in seen.findings if "Dynamic shape" in found.title)
    assert found.fix.candidates
    assert found.fix.recipe is None
    assert not build_card(1, found, seen.receipt, PLAIN).settings  # "no edit: …"


def test_a_break_is_no_cause_of_the_recompiles_that_met_it(tmp_path: Path) -> None:
    """It causes those of the code behind it: a size is the one cause of the others."""
    body = "return x[x > 3].sum() * 2"
    text = UNKNOWN_SIZE.format(body=body, compiled="positive")
    findings, _ = find_recompiles(tmp_path / "case.py", text)
    (found,) = (found for found in findings if found.rule == "CD105")
    assert found.fix.recipe is not None
    assert "this alone" not in (found.fix.caveat or "")
