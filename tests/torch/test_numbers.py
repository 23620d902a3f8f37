"""Compiled calls beside the same calls eager: other numbers are found at their callable, correct
ones are none, and the program computes what it computes without."""

import json
import os
import subprocess
import sys

import pytest
import torch
from attached import watched

from compilediag.fixes.numbers.first_difference import is_still_different, judge_calls
from compilediag.fixes.numbers.narrow import VARIABLE, narrow_difference
from compilediag.rules.environment_variables import format_export
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import SettingChange, TrialPlan

pytestmark = [pytest.mark.filterwarnings("ignore")]


def wrong(graph, inputs):
    for node in graph.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.abs
    graph.recompile()
    return graph.forward


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return torch.nn.functional.dropout(self.norm(self.linear(x)), 0.5)


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


def program(backend):
    torch.manual_seed(0)
    encoder, head = Encoder(), Head()
    first = torch.compile(encoder, backend="aot_eager")
    second = torch.compile(head, backend=backend)
    for _ in range(3):
        out = second(first(torch.randn(4, 8)))
    return out.tolist(), encoder.norm.running_mean.tolist()


def shadowed(backend, *settings):
    with watched(trial=TrialPlan(seed=1, outputs=True, shadow=True, settings=settings)) as events:
        result = program(backend)
    return fold([events]), result


def test_the_callable_with_other_numbers_is_found_and_nothing_is_disturbed():
    """The one after it in the chain is given other numbers, and is not blamed."""
    timeline, result = shadowed(wrong)
    numbers = judge_calls(timeline)
    assert [each.function.function for each in numbers.differences] == ["Head.forward"]
    assert (numbers.differences[0].record.call, numbers.differences[0].record.step) == (0, 0)
    with watched(trial=TrialPlan(seed=1, outputs=True)):
        assert program(wrong) == result


def test_a_correct_program_has_no_difference():
    """Random numbers and buffers in it too."""
    numbers = judge_calls(shadowed("eager")[0])
    assert (numbers.same, numbers.section.unstable, numbers.section.undetermined) == (True, 0, 0)
    assert numbers.section.calls == 6


WRONG_PASS = """
import torch
import torch._inductor.config as config
from torch._inductor.custom_graph_pass import CustomGraphPass

aten = torch.ops.aten


class Wrong(CustomGraphPass):
    def __call__(self, graph):
        for node in graph.find_nodes(op="call_function", target=aten.relu.default):
            node.target = aten.abs.default

    def uuid(self):
        return b"wrong"


def embed(x):
    return torch.tanh(x * 2)


def head(x):
    return torch.relu(x)


def program():
    torch.manual_seed(0)
    one, two = torch.compile(embed), torch.compile(head)
    with config.patch(post_grad_custom_post_pass=Wrong()):
        return [two(one(torch.randn(4, 4))).sum().item() for _ in range(2)]


if __name__ == "__main__":
    print(program())
"""


def test_a_pass_of_inductor_is_found_and_the_line_followed(tmp_path, monkeypatch):
    """The frame and the layer, by the search of `--bisect-numerics`; then the printed line, in a
    plain process: it gives eager's numbers."""
    config = pytest.importorskip("torch._dynamo.config")
    if not hasattr(config, "debug_backend_override"):
        pytest.skip("this torch has no such option")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches"))
    file = tmp_path / "wrong_pass.py"
    file.write_text(WRONG_PASS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import wrong_pass  # pyright: ignore[reportMissingImports]

    def run(*settings):
        with watched(
            trial=TrialPlan(seed=1, outputs=True, shadow=True, settings=settings)
        ) as events:
            wrong_pass.program()
        return fold([events])

    before = config.debug_backend_override
    first = judge_calls(run()).differences[0]
    assert first.function.function == "head"

    def differs(value):
        change = SettingChange("torch._dynamo.config", "debug_backend_override", value)
        return is_still_different(first, run(change))

    try:
        found = narrow_difference(["1"], ["0"], differs)
    finally:
        config.debug_backend_override = before
    assert (found.layer, found.frames, found.problem) == ("backend", ("1",), None)

    line = format_export(VARIABLE, found.override)
    eager = "import torch, wrong_pass; torch.compiler.set_stance('force_eager'); "
    printed = [
        subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "PYTHON": sys.executable, "EAGER": eager},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for command in (
            f'{line}; "$PYTHON" {file.name}',
            '"$PYTHON" -c "$EAGER print(wrong_pass.program())"',
            f'"$PYTHON" {file.name}',
        )
    ]
    fixed, right, broken = map(json.loads, printed)
    assert fixed == pytest.approx(right, rel=1e-4)
    assert broken != pytest.approx(right, rel=1e-4)
