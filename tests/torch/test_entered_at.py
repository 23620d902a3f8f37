"""The program's own line above what is compiled, recorded while torch compiles it."""

import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from foreign_library import installed, line_of

import compilediag as cd
from compilediag.receipt.schema.compiles import FindingRecord, UserCallRecord
from compilediag.views.finding import render_finding
from compilediag.views.style import RenderOptions
from compilediag.views.verdict import render


@pytest.fixture
def library(tmp_path: Path) -> Iterator[ModuleType]:
    """A fresh one for each test, as Dynamo keeps what it knows of a code object."""
    torch._dynamo.reset()
    with installed(tmp_path) as module:
        yield module


def here(marker: str) -> int:
    """The line of this file that ends with a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {marker}"))


def call_of(found: FindingRecord) -> UserCallRecord:
    assert found.entered_at.file.endswith("test_entered_at.py")
    return found.entered_at


def passed_in(call: UserCallRecord) -> dict[str, str]:
    return {item.parameter: item.expression for item in call.arguments}


def finding(seen: Any, rule: str) -> FindingRecord:
    return next(item for item in seen.receipt.findings if item.rule.startswith(rule))


def test_a_recompile_in_a_library(library: ModuleType) -> None:
    """The guard's line is the library's; the call and the expression that it passes are ours,
    through a decorator of the library's too."""
    model = torch.compile(library.Pooling(), backend="eager", dynamic=False)
    with cd.watch() as seen:
        for rows in (2, 3, 4):
            batch = {"values": torch.ones(rows, 4)}
            values = batch["values"]
            model(values, 2)  # pooled
    found = finding(seen, "CD105")
    assert "foreignlib" in found.location.file
    call = call_of(found)
    assert (call.line, call.function) == (here("pooled"), "test_a_recompile_in_a_library")
    assert call.text == "model(values, 2)"
    assert found.count == 2


def test_what_is_passed(library: ModuleType) -> None:
    """An expression that is no name, for the parameter of the library's function."""
    scatter = torch.compile(library.scatter, backend="eager", dynamic=False)
    with cd.watch() as seen:
        for rows in (2, 3, 4):
            data = {"x": torch.ones(rows)}
            scatter(data["x"], count=2)
    found = finding(seen, "CD105")
    assert call_of(found).text == 'scatter(data["x"], count=2)'
    assert passed_in(call_of(found)) == {"values": 'data["x"]', "count": "2"}
    screen = render(seen.receipt)
    own, library_line = (screen.find(text) for text in (Path(__file__).name, "foreignlib/"))
    assert 0 < own < library_line
    assert re.search(r"▸ \d+ │ +scatter\(data\[\"x\"\], count=2\)\n", screen)


def test_a_library_that_owns_the_loop(library: ModuleType) -> None:
    """The innermost line of ours is the call of its trainer."""
    trainer = library.Trainer(library.Pooling())
    with cd.watch() as seen:
        trainer.fit(torch.ones(rows, 4) for rows in (2, 3, 4))  # fit
    call = call_of(finding(seen, "CD105"))
    assert (call.line, call.arguments) == (here("fit"), ())


def test_a_break_in_a_library(library: ModuleType) -> None:
    """And what is left of the function, which torch compiles as one of its own."""
    model = torch.compile(library.Printing(), backend="eager")
    values = torch.ones(3)
    with cd.watch() as seen:
        model(values)  # broken
    call = call_of(finding(seen, "CD2"))
    assert (call.line, call.text) == (here("broken"), "model(values)")
    sites = seen.receipt.compile.breaks
    assert [site.line for site in sites] == [line_of("graph_break()")]
    assert sites[0].entered_at == call
    calls = {item.entered_at.text for item in seen.receipt.compile.events if item.entered_at}
    assert calls == {"model(values)"}


def test_the_recompile_limit(library: ModuleType) -> None:
    """torch announces no start of the attempt at the limit; its call is known all the same."""
    model = torch.compile(library.scatter, backend="eager", dynamic=False)
    with cd.watch() as seen, torch._dynamo.config.patch(recompile_limit=2):
        for rows in (2, 3, 4, 5):
            values = torch.ones(rows)
            model(values, 2)  # limited
    call = call_of(finding(seen, "CD152"))
    assert (call.line, passed_in(call)) == (here("limited"), {"values": "values", "count": "2"})


def test_logging(library: ModuleType) -> None:
    """Dynamo compiles functions of `logging` under a break: the line is that of the logger's
    call."""
    logger = logging.getLogger("test_entered_at")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False

    @torch.compile(backend="eager")
    def step(x: Any) -> Any:
        x = x + 1
        logger.debug("mean %s", x.shape)  # logged
        return x * 2

    with cd.watch() as seen:
        for rows in (2, 3, 4):
            step(torch.ones(rows))
    foreign = [
        item
        for item in seen.receipt.findings
        if item.location is not None and "logging" in item.location.file
    ]
    for found in foreign:
        assert call_of(found).line == here("logged"), found
    entered = [item.entered_at for item in seen.receipt.compile.events if item.entered_at]
    assert len(entered) == len(seen.receipt.compile.events)


def test_a_thread_pool(library: ModuleType) -> None:
    """No call in the thread is ours: the finding says which thread it was."""
    model = torch.compile(library.scatter, backend="eager", dynamic=False)
    with cd.watch() as seen, ThreadPoolExecutor(1, "loader") as pool:
        sizes = [torch.ones(rows) for rows in (2, 3, 4)]
        list(pool.map(model, sizes, (2, 2, 2)))
    found = finding(seen, "CD105")
    assert found.entered_at is None
    assert found.entered_from.startswith("thread loader_0 (futures/thread.py:")
    number = seen.receipt.findings.index(found) + 1
    text = render_finding(number, found, seen.receipt, RenderOptions())
    assert "called from thread loader_0" in " ".join(text.split())


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own reading of them
def test_compiled_autograd() -> None:
    """The backward is entered where it is called; what is compiled has no file."""
    torch._dynamo.reset()
    weight = torch.ones(4, requires_grad=True)
    with cd.watch() as seen:
        for step in range(3):
            loss = (weight * 2).sum()
            for _ in range(step):
                loss = loss + weight.sigmoid().sum()
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
                loss.backward()  # backward
    calls = [item.entered_at for item in seen.receipt.compile.events]
    assert len(calls) >= 2
    for call in calls:
        assert (call.line, call.text) == (here("backward"), "loss.backward()")


def test_a_lazy_backward() -> None:
    """Compiled where `backward` is called, long after its forward."""
    torch._dynamo.reset()

    @torch.compile(backend="aot_eager", dynamic=False)
    def loss_of(x: Any) -> Any:
        return (x * x).sum()

    with cd.watch() as seen:
        x = torch.ones(3, requires_grad=True)
        loss = loss_of(x)  # forward
        loss.backward()  # lazily
    rows = {item.forward: item.entered_at for item in seen.timeline.compiles}
    forward, backward = rows[True], rows.get(False)
    assert forward.line == here("forward")
    assert backward is None or backward.line == here("lazily")


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")
def test_a_break_in_torch_itself_that_two_lines_lead_to() -> None:
    """`Variable(...)` in two methods of pointnet: torch reports one line of its own for both."""
    torch._dynamo.reset()

    @torch.compile(backend="eager")
    def added(x: Any) -> Any:
        y = x + torch.autograd.Variable(torch.ones(2))  # one
        return y * torch.autograd.Variable(torch.ones(2))  # other

    with cd.watch() as seen:
        added(torch.ones(2))
    found = finding(seen, "CD203")
    assert seen.receipt.compile.graph_breaks == 1
    assert found.location.line == here("one")
    (other,) = found.evidence["other_lines"]
    assert other[1] == here("other")
    assert re.search(rf"and from\s+\S*test_entered_at.py:{other[1]}\s", render(seen.receipt))
