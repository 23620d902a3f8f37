"""What a program that forks, fails or closes its files meets of us: nothing, and right counts."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import captured, compilediag

pytestmark = pytest.mark.usefixtures("forked")

FORKS = """
import os
import torch

@torch.compile(backend="eager", dynamic=False)
def double(x):
    return x * 2

double(torch.ones(2)); double(torch.ones(3))
child = os.fork()
double(torch.ones(4 if child else 5))
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
CLOSES = """
import os
import torch

double = torch.compile(lambda x: x * 2, backend="eager", dynamic=True)
double(torch.ones(2))
os.closerange(3, os.sysconf("SC_OPEN_MAX"))
double(torch.ones(3))
"""
FAILURES = {
    "recompile": """
torch._dynamo.config.error_on_recompile = True
f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
f(torch.ones(2)); f(torch.ones(3))
""",
    "limit": """
torch._dynamo.config.recompile_limit = 1
torch._dynamo.config.fail_on_recompile_limit_hit = True
f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
f(torch.ones(2)); f(torch.ones(3)); f(torch.ones(4))
""",
    "break": """
def g(x):
    torch._dynamo.graph_break()
    return x
torch.compile(g, backend="eager", fullgraph=True)(torch.ones(2))
""",
    "backend": """
def bad(graph, inputs):
    raise ValueError("no")
torch.compile(lambda x: x + 1, backend=bad)(torch.ones(2))
""",
    "constraint": """
x = torch.ones(4)
torch._dynamo.mark_dynamic(x, 0)
torch.compile(lambda x: x + torch.ones(4), backend="eager")(x)
""",
    "backward": """
layer = torch.nn.Linear(2, 2)
def hook(gradient):
    raise RuntimeError("in a hook")
layer.weight.register_hook(hook)
torch.compile(layer, backend="eager")(torch.ones(2, 2)).sum().backward()
""",
    "optimizer": """
class Fails(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})
    def step(self):
        raise RuntimeError("in a step")
Fails(torch.nn.Linear(2, 2).parameters()).step()
""",
    "loader": """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        raise KeyError("in a loader")
list(torch.utils.data.DataLoader(Data()))
""",
    "save": """
class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("in a save")
torch.save(Unpicklable(), "x.pt")
""",
}


def run(folder: Path, source: str) -> dict[str, Any]:
    """The receipt of a program."""
    (folder / "program.py").write_text(source)
    done = compilediag("run", "--quiet", "-o", "out", "program.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out" / "receipt.json").read_text())


def test_a_fork_counts_from_its_fork_on(tmp_path: Path) -> None:
    """Parent and child recompile once more each: torch's totals of the child hold its parent's."""
    receipt = run(tmp_path, FORKS)
    assert (receipt["verdict"], receipt["completeness"]["reasons"]) == ("findings", [])
    assert receipt["compile"]["recompiles"] == 3


@pytest.mark.usefixtures("own_interpreter")
def test_a_program_that_closes_all_files_is_seen_to_its_end(tmp_path: Path) -> None:
    """As programs do that become daemons: the journal goes on, and nothing of ours fails."""
    receipt = run(tmp_path, CLOSES)
    assert (receipt["verdict"], receipt["completeness"]["reasons"]) == ("clean", [])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame cannot be taken out of a traceback")
@pytest.mark.parametrize("name", FAILURES)
def test_a_traceback_has_no_frame_of_ours(name: str, tmp_path: Path) -> None:
    """Errors that come through a function of torch's in whose place one of ours stands."""
    (tmp_path / "program.py").write_text("import torch\n" + FAILURES[name])
    plain = captured(sys.executable, "program.py", cwd=tmp_path)
    ours = compilediag("run", "--quiet", "-o", "out", "program.py", cwd=tmp_path)
    assert plain.returncode == ours.returncode == 1
    assert _text(ours.stderr) == _text(plain.stderr)


def _text(stream: str) -> str:
    """Without times, process ids and addresses."""
    return re.sub(r"^[A-Z]\d{4} [\d:.]+ \d+|0x[0-9a-f]+", "", stream, flags=re.MULTILINE)
