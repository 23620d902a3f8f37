"""`cd.pipeline`: blocks, threads, tasks, the progress line, and nothing without a session."""

import os

import pytest
import torch
from pipeline_pieces import listening_to_pipelines

from compilediag import watch
from compilediag_harness.extensions import pipeline as module
from compilediag_harness.extensions.pipeline import pipeline


def test_compiled_code_holds_nothing_of_it() -> None:
    """Inside of a compiled function a loop breaks no graph, and a session changes no guard."""
    loop = pipeline()

    @torch.compile(backend="eager", fullgraph=True)
    def train(x: torch.Tensor) -> torch.Tensor:
        with loop.train(samples=4), loop.dispatch_wait():
            loop.pool(4)
            return x + 1

    torch._dynamo.reset()
    train(torch.ones(4))
    with watch() as seen:
        train(torch.ones(4))
        train(torch.ones(4))
    assert seen.receipt.compile.compiles == 0
    assert seen.timeline.pipelines == ()
    with watch() as seen, loop.train(samples=4):
        train(torch.ones(4))
    assert (seen.receipt.compile.compiles, seen.receipt.compile.graph_breaks) == (0, 0)
    assert [len(item.stages) for item in seen.timeline.pipelines] == [1]
    assert seen.receipt.pipeline.loops[0].trained == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_tells_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the parent has not written yet is not the child's to write."""
    monkeypatch.setattr(module, "_monotonic", lambda: 0.0)
    with listening_to_pipelines() as (session, events):
        with pipeline().train():
            pass
        assert events == []
        pid = os.fork()
        if pid == 0:
            module.sinks.finish(session)
            os._exit(len(events))
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
