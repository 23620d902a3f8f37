"""`cd.tracker` beside torch.compile: it adds no compile, no break and no guard, and is told."""

import os
import signal
import threading
from pathlib import Path

import pytest

import compilediag as cd
from compilediag_harness.base.session import Session
from compilediag_harness.extensions.tracker import tracked_run
from compilediag_harness.extensions.tracker.tracker import tracker
from compilediag_harness.wire import Event, RunTracked

torch = pytest.importorskip("torch")


def test_in_a_watched_run(tmp_path: Path) -> None:
    """Recorded below a compiled call, where Dynamo meets it, and in the loop, where it counts: the
    frame compiles once and whole; the receipt has the run and links the report."""
    torch.compiler.reset()
    lane = cd.tracker({"dtype": torch.float32}, name="eval/live", warmup=1)

    def step(x: torch.Tensor) -> torch.Tensor:
        lane.record_step(-1, {"never": 1.0})
        return (x @ x).sum()

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    report = cd.ablation(
        "none", architecture="mlp", depth=1, steps=[0, 1], layers={0: {"norm": [1.0, 2.0]}}
    )
    with cd.watch(lane="live") as seen:
        with lane:
            for number in range(4):
                loss = compiled(torch.ones(2, 2)).item()
                lane.record_step(number, {"loss": loss}, samples=2)
        report.write(tmp_path / "ablation.json")
    torch.compiler.reset()
    receipt = seen.receipt
    counts = receipt.compile
    assert (counts.compiles, counts.recompiles, counts.graph_breaks) == (1, 0, 0)
    (run,) = receipt.tracked
    assert (run.name, run.state) == ("eval/live", "finished")
    assert run.config == {"dtype": "torch.float32"}
    assert (run.steps, run.totals) == (4, {"samples": 8.0})
    figures = {item.name: (item.count, item.mean) for item in run.metrics}
    assert figures["loss"] == (4, 8.0)
    assert figures["step_s"][0] == 3
    assert receipt.checks.losses_finite is True
    assert [item.name for item in receipt.ablations] == ["none"]
    assert [item.role for item in receipt.artifacts] == ["ablation"]


def test_a_tensor_is_refused() -> None:
    """Torch's own, on any device: a run on a GPU behaves as one on a CPU."""
    lane = cd.tracker().start_run()
    for tensor in (torch.ones(()), torch.ones((), device="meta")):
        with pytest.raises(TypeError, match=r"metric 'loss' must be a number, not a torch\.Tensor"):
            lane.record_step(0, {"loss": tensor})
    assert lane.finish_run().steps == 0


def test_a_fork_does_not_tell_of_its_parent_s_run() -> None:
    """A child that ends reports no run that goes on elsewhere, and holds no lock of a thread
    that it does not have."""
    lane = tracker().start_run()
    lane.record_step(0)
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with lane._lock:
            held.set()
            free.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        events: list[Event] = []
        session = Session(events.append)
        tracked_run.sinks.install(session)
        tracked_run.sinks.finish(session)
        lane.record_step(1)
        os._exit(len([event for event in events if isinstance(event, RunTracked)]))
    free.set()
    holder.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert lane.finish_run().steps == 1
