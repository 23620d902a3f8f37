"""`watch()`: the whole way from a compiled call to a receipt, in one process."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import compilediag as cd
from compilediag.receipt.file import read_receipt
from compilediag.views.sentence import describe_finding
from compilediag.views.style import RenderOptions
from compilediag_harness.base import process_options


def fresh() -> Any:
    """A compiled function that nobody has called yet, and specialises on the size of its input."""
    torch._dynamo.reset()  # every test has the same code object

    def double(x: Any) -> Any:
        return x * 2

    return torch.compile(double, backend="eager", dynamic=False)


def test_a_recompile_is_seen_with_its_step() -> None:
    """Counts, step and cause, of what happens inside the block only."""
    double = fresh()
    double(torch.ones(2))
    with cd.watch() as seen:
        for size in (2, 3, 4):
            double(torch.ones(size))
    double(torch.ones(5))
    assert seen.receipt.compile.recompiles == 2
    assert seen.receipt.status == "complete"
    assert [one.step for one in seen.timeline.compiles] == [1, 2]
    assert [step.number for step in seen.timeline.steps] == [0, 1, 2]
    assert [finding.count for finding in seen.findings] == [2]


def test_calls_beside_an_optimizer_that_does_not_step() -> None:
    """Evaluation: the calls were steps, which is known only at the end, and told of each event."""
    double = fresh()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with cd.watch() as seen:
        for size in (2, 3, 4):
            double(torch.ones(size))
    assert [one.step for one in seen.timeline.compiles] == [0, 1, 2]
    assert seen.timeline.steps[-1].source == "call"
    del optimizer


def test_blocks_can_be_nested() -> None:
    """Each sees everything that happens in it."""
    double = fresh()
    with cd.watch() as outer:
        double(torch.ones(2))
        with cd.watch() as inner:
            double(torch.ones(3))
        double(torch.ones(4))
    assert outer.receipt.compile.recompiles == 2
    assert inner.receipt.compile.recompiles == 1


def test_the_programs_exception_passes_and_is_told() -> None:
    """The receipt is there all the same."""
    with pytest.raises(KeyError, match="mine"), cd.watch() as seen:
        raise KeyError("mine")
    assert seen.receipt.status == "failed"
    assert "KeyError: 'mine'" in str(seen.receipt.failure.reason)


def test_reading_too_early_is_refused() -> None:
    """A receipt of half a block would be wrong; the sentence says what to do."""
    with cd.watch() as seen, pytest.raises(RuntimeError, match="after the with block"):
        _ = seen.receipt
    assert "in progress" not in repr(seen)


def test_the_lines_of_a_run_are_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run --trace-writes` around it has a session of its own for that."""
    options = process_options.ProcessOptions(write_tracing=process_options.WriteTracingPlan())
    monkeypatch.setenv(process_options.VARIABLE, options.encode())
    double = fresh()
    with cd.watch() as seen:
        double(torch.ones(2))
        double(torch.ones(3))
    assert seen.receipt.compile.recompiles == 1
    assert seen.receipt.write_tracing is None


def test_a_watch_in_use_is_not_entered_again() -> None:
    """One object, one block at a time; afterwards it can be used again."""
    watching = cd.watch()
    with watching, pytest.raises(RuntimeError, match="in use"):
        watching.__enter__()
    with watching as seen:
        pass
    assert seen.events


def test_it_is_written_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`save` writes one file that every command can read."""
    monkeypatch.chdir(tmp_path)
    with cd.watch() as seen:
        pass
    assert list(tmp_path.iterdir()) == []
    path = seen.save(tmp_path / "receipt.json")
    assert read_receipt(path).receipt_id == seen.receipt.receipt_id


def test_what_was_seen_snapshot() -> None:
    """A part of the block, read while it goes on; the block itself goes on undisturbed."""
    double = fresh()
    with cd.watch() as seen:
        double(torch.ones(2))
        early = seen.snapshot()
        double(torch.ones(3))
        late = seen.snapshot()
    assert [part.receipt.compile.recompiles for part in (early, late, seen)] == [0, 1, 1]
    assert [part.receipt.status for part in (early, late, seen)] == ["partial"] * 2 + ["complete"]
    assert [part.calls for part in (early, late, seen)] == [1, 2, 2]
    assert [part.receipt.completeness.differences for part in (early, late)] == [(), ()]
    assert seen.snapshot().receipt.status == "complete"


def test_moments_lie_between_events() -> None:
    """`now()` is on the clock of the events."""
    double = fresh()
    with cd.watch() as seen:
        double(torch.ones(2))
        moment = seen.now()
        double(torch.ones(3))
    first, second = seen.timeline.compiles
    assert first.t < moment < second.t


def test_calls_are_counted_whether_or_not_they_compile() -> None:
    """In every thread, inside the block only."""
    double = fresh()
    double(torch.ones(2))
    with cd.watch() as seen:
        double(torch.ones(2))
        other = threading.Thread(target=double, args=(torch.ones(2),))
        other.start()
        other.join()
    double(torch.ones(2))
    assert seen.calls == 2


def test_a_root_and_a_lane(tmp_path: Path) -> None:
    """Files are told from the root, and the receipt bears the lane's name."""
    double = fresh()
    root = Path(__file__).parent
    with cd.watch(root=str(root), user_roots=[str(tmp_path)], lane="train") as seen:
        double(torch.ones(2))
    assert seen.receipt.header.configuration.name == "train"
    assert seen.receipt.compile.events[0].frame.file == Path(__file__).name
    assert str(tmp_path) in seen.timeline.user_roots


def test_a_notebook_shows_the_findings() -> None:
    """Inside of the block there is no picture yet; after it, its findings."""
    double = fresh()
    with cd.watch() as seen:
        assert seen._repr_html_() is None
        for size in (2, 3):
            double(torch.ones(size))
    html = seen._repr_html_()
    assert all(finding.rule in html for finding in seen.findings)
    assert "test_watching.py:" in html


def test_a_mode_has_its_value_in_each_graph() -> None:
    double = fresh()
    with cd.watch() as seen:
        double(torch.ones(2))
        with torch.no_grad():
            double(torch.ones(2))
    (row,) = seen.receipt.compile.varied
    assert (row.variable, [graph.value for graph in row.values]) == ("grad_mode", ["on", "off"])


_COUNTS = {"seen": 0}


def test_a_number_rises_and_a_list_grows() -> None:
    torch._dynamo.reset()
    kept = list[int]()

    def count(x: Any) -> Any:
        _COUNTS["seen"] += 1
        return x * _COUNTS["seen"]

    def keep(x: Any) -> Any:
        kept.append(1)
        return x * len(kept)

    with cd.watch() as seen:
        for function in (count, keep):
            compiled = torch.compile(function, backend="eager")
            for _ in range(4):
                compiled(torch.ones(2))
    said = [
        describe_finding(finding, seen.receipt, RenderOptions(width=100))
        for finding in seen.findings
        if finding.severity == "warning"
    ]
    assert {"`_COUNTS['seen']` rises", "`kept` grows"} <= {*said}
