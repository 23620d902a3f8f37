"""Each edit for a graph break, followed: torch compiles one graph of the edited function, which it
does not of the function as it was, and results and gradients are the same on both sides."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

from compilediag.fixes.codemods.edit import Edit, edited

pytest.importorskip("libcst")

HEAD = "import time\nimport torch\nimport torch.nn.functional as F\n\n"

CASES = {
    "branch": (
        "branch",
        """
def f(x):
    norm = x.norm()
    if norm > 1:  # here
        x = x * (1 / norm)
    return x * 3
""",
    ),
    "return": (
        "branch",
        """
def f(x):
    total = x.sum()
    if not total > 0:  # here
        return x.tanh(), total
    return x.square(), total
""",
    ),
    "both sides": (
        "branch",
        """
def f(x):
    if x.mean() > 0:  # here
        shift = 2.0
        y = x.abs().sqrt() + shift
    else:
        shift = 0.5
        y = x / x.sum() - shift
    return y * 2
""",
    ),
    "expression": (
        "branch",
        """
def f(x):
    return F.relu(x) if x.sum() > 0 else (x - 1).exp()  # here
""",
    ),
    "error": (
        "branch",
        """
def f(x):
    if x.isnan().any() or x.max() > 99:  # here
        raise ValueError(f"not in range: {x}")
    return x * 2
""",
    ),
    "assert": (
        "branch",
        """
def f(x):
    assert x.max() < 99, f"too large: {x}"  # here
    return x * 2
""",
    ),
    "number": (
        "as_tensor",
        """
def f(x):
    scale = x.abs().max().item()  # here
    return x / scale + 1
""",
    ),
    "cast": (
        "as_tensor",
        """
def f(x):
    return x * float(x[0]) + 1  # here
""",
    ),
    "index": (
        "as_tensor",
        """
def f(x):
    for place in torch.tensor([2, 0]):
        x = x + x[place.item()].tanh()  # here
    return x
""",
    ),
    "chain": (
        "branch",
        """
def f(x):
    if x.sum() > 3:  # here
        y = x * 2
    elif x.max() > 0:
        y = x + 1
    else:
        y = x.abs()
    return y * 3
""",
    ),
    "list": (
        "as_tensor",
        """
def f(x):
    seen = []
    for row in (x * 2, x + 1):
        seen.append(row.sum().item())  # here
    return x * (sum(seen) / len(seen))
""",
    ),
    "masked write": (
        "masked",
        """
def f(x):
    y, mask = x * 2, x > 0
    y[mask] = x[mask] * 3 - 1  # here
    return y
""",
    ),
    "masked in place": (
        "masked",
        """
def f(x):
    y = x * 2
    y[y < 0] *= 3  # here
    return y
""",
    ),
    "masked": (
        "masked",
        """
def f(x):
    mask = x > 0
    return (x[mask] * 2).mean() + x.max()  # here
""",
    ),
    "masked loss": (
        "masked",
        """
def f(x):
    mask, y = x > -1, x.detach() + 1
    return F.mse_loss(x[mask], y[mask])  # here
""",
    ),
    "clock": (
        "message",
        """
def f(x):
    x = x.sin()
    start = time.perf_counter()  # here
    x = x * 2
    print("took", time.perf_counter() - start)
    return x
""",
    ),
    "disabled": (
        "without_disable",
        """
@torch.compiler.disable
def helper(x):
    return x.tanh()

def f(x):
    return helper(x.sin()) * 2  # here
""",
    ),
}
CODE = {"disabled": ("helper",), "chain": ("8", "10")}

Function = Callable[[torch.Tensor], Any]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def function_of(text: str, path: Path) -> Function:
    path.write_text(text, encoding="utf-8")
    linecache.checkcache(str(path))
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    return names["f"]


def graphs_of(function: Function, values: list[float]) -> int:
    """How many graphs torch makes of it."""
    graphs: list[torch.fx.GraphModule] = []

    def counting(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch.compile(function, backend=counting)(torch.tensor(values))  # pyright: ignore[reportUnknownMemberType]
    torch._dynamo.reset()
    return len(graphs)


def results(function: Function, values: list[float]) -> list[torch.Tensor]:
    """What it returns, and the gradient."""
    x = torch.tensor(values, requires_grad=True)
    returned = function(x)
    outputs: list[torch.Tensor] = [*returned] if isinstance(returned, tuple) else [returned]
    torch.stack([each.sum() for each in outputs]).sum().backward()  # pyright: ignore[reportUnknownMemberType]
    assert x.grad is not None
    return [*(each.detach() for each in outputs), x.grad]


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of what is edited
@pytest.mark.parametrize("name", CASES)
def test_an_edited_function_is_one_graph_with_the_same_results(name: str, tmp_path: Path) -> None:
    kind, body = CASES[name]
    text = HEAD + body
    line = next(i for i, each in enumerate(text.splitlines(), 1) if each.endswith("# here"))
    before = function_of(text, tmp_path / "before.py")
    new = edited(text, [Edit("f.py", line, kind, CODE.get(name, ()))])
    after = function_of(new, tmp_path / "after.py")
    values = [[1.0, 2.0, 0.5], [-1.0, -2.0, 0.25], [0.5, -0.25, 0.125], [3.0, 0.5, -1.0]]
    assert graphs_of(before, values[0]) != 1
    assert graphs_of(after, values[0]) == 1
    compiled = torch.compile(after, backend="eager", fullgraph=True)  # pyright: ignore[reportUnknownMemberType]
    for each in values:
        expected, found = results(before, each), results(compiled, each)
        torch.testing.assert_close(found, expected, equal_nan=False)


def test_a_side_that_is_not_taken_gives_no_gradient(tmp_path: Path) -> None:
    """At 0, where the side that is not taken is not finite."""
    body = "    norm = x.sum()\n    if norm > 0:  # here\n        x = x / norm\n    return x\n"
    text = f"{HEAD}def f(x):\n{body}"
    new = edited(text, [Edit("f.py", text[: text.index("# here")].count("\n") + 1, "branch")])
    after = function_of(new, tmp_path / "after.py")
    assert all(each.isfinite().all() for each in results(after, [0.0, 0.0]))


def test_what_was_an_error_is_one(tmp_path: Path) -> None:
    kind, body = CASES["error"]
    text = HEAD + body
    line = next(i for i, each in enumerate(text.splitlines(), 1) if each.endswith("# here"))
    new = edited(text, [Edit("f.py", line, kind)])
    compiled = torch.compile(function_of(new, tmp_path / "f.py"), backend="eager")  # pyright: ignore[reportUnknownMemberType]
    for wrong in (float("nan"), 100.0):
        with pytest.raises(RuntimeError, match="ValueError: not in range"):
            compiled(torch.tensor([wrong, 1.0]))
