"""The code that `compilediag plan` prints runs: sizes of a real run, one compile a bucket."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from command_line import compilediag

from compilediag import cli

pytestmark = pytest.mark.usefixtures("forked")

torch = pytest.importorskip("torch")


FUNCTIONS = """
import torch

def score(queries, mask):
    return (queries.relu() * mask[:, None]).sum(1)

def shifted(tokens):
    return tokens * 2 + 1

class Policy(torch.nn.Module):
    def forward(self, obs):
        return obs["all"].sum(1)
"""

DRIVER = """
def compiled(function):
    return torch.compile(function, backend="eager", dynamic=False)

score, shifted, policy = map(compiled, (score, shifted, Policy()))
with torch.no_grad():
    for rows in (3, 5, 6, 20, 21, 24) * 2:
        score(torch.randn(rows, 4), torch.ones(rows))
    for rows, length in ((2, 7), (2, 9), (5, 7), (5, 30)):
        shifted(torch.zeros(rows, length, dtype=torch.long))
    for rows in (3, 40, 41):
        policy({"all": torch.randn(rows, 4)})
"""

BATCHES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "score": lambda rows: (torch.randn(rows, 4), torch.ones(rows)),
    "shifted": lambda rows, length: (torch.zeros(rows, length, dtype=torch.long),),
    "policy": lambda rows: ({"all": torch.randn(rows, 4)},),
}
"""A batch of given sizes, by the name that the printed code gives to the callable."""


@pytest.fixture(scope="module")
def receipt(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The receipt of a program that calls three callables with varying sizes."""
    folder = tmp_path_factory.mktemp("planned")
    program = folder / "program.py"
    program.write_text(FUNCTIONS + DRIVER, encoding="utf-8")
    words = ("run", "--output", "run", str(program))
    done = compilediag(*words, cwd=folder, COMPILEDIAG_EVERY_STEP="1")
    assert done.returncode == 0, done.stderr
    return str(folder / "run" / "receipt.json")


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_the_printed_code_compiles_once_a_bucket(receipt, name: str, capsys, monkeypatch) -> None:
    """Copied as it is; then every call of the run finds its graph, with the same results."""
    from torch._dynamo.testing import CompileCounter

    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(["plan", receipt, "-k", "4"]) == 0
    code = printed(capsys.readouterr().out, name)
    assert cli.main(["plan", receipt, "-k", "4", "--json"]) == 0
    (told,) = [
        item
        for item in json.loads(capsys.readouterr().out)["plans"]
        if name in item["name"].lower()
    ]

    program: dict[str, Any] = {}
    exec(FUNCTIONS, program)
    plain = program["Policy"]() if name == "policy" else program[name]
    torch._dynamo.reset()
    counted = CompileCounter()
    batches = [BATCHES[name](*sizes) for sizes in told["sizes"]]
    program[name] = torch.compile(plain, backend=counted, dynamic=False)
    program["example"] = batches[0]
    with torch.no_grad():
        exec(code.replace("warmup(example)", "warmup(*example)"), program)
        fixed = program[name]
        assert counted.frame_count == math.prod(len(sizes) for sizes in fixed.buckets) > 1
        for batch in batches:
            torch.testing.assert_close(fixed(*batch), plain(*batch))
    assert (counted.frame_count, fixed.late_compiles) == (
        math.prod(len(sizes) for sizes in fixed.buckets),
        0,
    )
    torch._dynamo.reset()


def printed(screen: str, name: str) -> str:
    """The lines that are to be copied."""
    lines = [line.strip() for line in screen.splitlines()]
    start = next(at for at, line in enumerate(lines) if line.startswith(f"{name} = cd.FixedShape"))
    return "\n".join(("import compilediag as cd", *lines[start : start + 2]))
