"""The code on the pages of recompiles and graph breaks is run: the bad has the fault, the good has
none."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rule_pages import PAGES, list_headings, run_code_of
from torch._dynamo import utils

import compilediag

RECOMPILES = sorted(path.stem for path in PAGES.glob("CD1[01]?.md") if path.stem != "CD119")
BREAKS = sorted(path.stem for path in PAGES.glob("CD2*.md"))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    utils.counters.clear()
    yield
    torch.set_float32_matmul_precision(before)
    torch._dynamo.reset()


Run = Callable[[str, str], "list[Any]"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Imports the code as a module of its own, and gives the findings."""

    def run_code(page: str, heading: str) -> list[Any]:
        torch.manual_seed(0)
        with compilediag.watch() as seen:
            run_code_of(page, heading, tmp_path, monkeypatch)
        return seen.findings

    return run_code


def recompiles() -> list[str]:
    return [row.recompile_reason for row in utils.get_compilation_metrics() if row.recompile_reason]


quiet = pytest.mark.filterwarnings(
    "ignore:Dynamo does not know how to trace:UserWarning",
    "ignore:The .grad attribute of a Tensor:UserWarning",
    "ignore:`torch.jit:DeprecationWarning",
)


@quiet
@pytest.mark.parametrize("page", RECOMPILES)
def test_bad_code_recompiles_and_good_code_does_not(run: Run, page: str) -> None:
    """As torch counts it."""
    rules = {item.rule for item in run(page, "Bad")}
    assert page in rules
    assert recompiles()
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    for heading in list_headings(page, "Good"):
        assert [item.title for item in run(page, heading) if item.rule.startswith("CD1")] == []
        assert utils.get_compilation_metrics()
        assert recompiles() == []
        torch._dynamo.reset()
        utils.clear_compilation_metrics()


@quiet
@pytest.mark.parametrize("page", BREAKS)
def test_bad_code_breaks_and_good_code_does_not(run: Run, page: str) -> None:
    """torch's own counter, and no finding of a break."""
    assert page in {item.rule for item in run(page, "Bad")}
    torch._dynamo.reset()
    utils.counters.clear()
    told = [item.title for item in run(page, "Good") if item.rule.startswith("CD2")]
    assert told == []
    assert dict(utils.counters["graph_break"]) == {}


@quiet
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler:UserWarning")
@pytest.mark.parametrize("before", [True, False])
def test_a_step_that_a_scheduler_wrapped(before: bool) -> None:
    """Dynamo skips the scheduler's wrapper; compiled before that is made, the step is traced."""
    parameter = torch.nn.Parameter(torch.zeros(8))
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.1))
    with compilediag.watch() as seen:
        step = torch.compile(optimizer.step, backend="eager") if before else None
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        step = step or torch.compile(optimizer.step, backend="eager")
        for _ in range(2):
            parameter.grad = torch.ones(8)
            step()
            schedule.step()
    titles = [item.title for item in seen.findings if "skipped" in item.title]
    wrapped = "skipped: SGD.step (as wrapped in torch/optim/lr_scheduler.py)"
    assert titles == (
        [] if before else [f"graph break: Attempted to call function marked as {wrapped}"]
    )


@quiet
def test_the_keys_that_came_to_a_parameter_group() -> None:
    """Where torch guards on their number alone."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(8))], lr=0.1)

    @torch.compile(backend="eager")
    def count(optimizer: Any, x: Any) -> Any:
        return x * len(optimizer.param_groups[0])

    with compilediag.watch() as seen:
        count(optimizer, torch.ones(2))
        optimizer.param_groups[0] |= {"step": 1, "capturable": False}
        count(optimizer, torch.ones(2))
    (found,) = [item for item in seen.findings if item.rule == "CD116"]
    assert found.evidence["values"] == [
        ["'capturable', 'step' absent", "'capturable', 'step' present"]
    ]
    assert "two compiles" not in found.fix.summary
