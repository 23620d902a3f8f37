"""Phases of real compiles: they add up to torch's own total, and nothing is left behind."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from compilediag.diagnosis.figures.compile_costs import OTHER, classify_phase, sum_compile_seconds
from compilediag.readers.torch_trace.read import read_trace
from compilediag.runs.watch import watch
from compilediag_harness.wire import Compiled

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def _net(x: Any) -> Any:
    for _ in range(6):
        x = torch.relu(x @ x.T) + 1
    return x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_phases_add_up_to_torchs_total(backend: str) -> None:
    """By torch's own clock; a recompile too, our analysis within it taken out."""
    seen: dict[str, float] = {}
    utils = torch._dynamo.utils

    def row(metrics: Any) -> None:
        seen[metrics.compile_id] = (metrics.end_time_us - metrics.start_time_us) / 1e6

    with watch() as watched:
        compiled = torch.compile(_net, backend=backend, dynamic=False)
        for size in (3, 4, 5):
            compiled(torch.ones(size, size))
        for metrics in utils.get_compilation_metrics()[-3:]:
            row(metrics)
    assert len(seen) == 3
    attempts = watched.timeline.compiles
    found = sum_compile_seconds(attempts)
    assert found.attempts == 3
    assert sum(found.by_phase.values()) == pytest.approx(found.total)
    for item in attempts:
        timed = sum(seconds for _, seconds in item.phases or ())
        assert 0 < timed <= seen[item.compile_id] + 0.001


def test_torch_times_no_part_that_has_no_name_here() -> None:
    """A name of a newer torch would be "other": add it to the table."""
    with watch() as watched:
        torch.compile(_net, backend="aot_eager")(torch.ones(3, 3))
    names = [name for item in watched.timeline.compiles for name, _ in item.phases or ()]
    assert names
    assert [name for name in names if classify_phase(name) == OTHER] == []


def test_a_trace_gives_the_same(tmp_path: Path) -> None:
    """The same compiles in process and from torch's own record of them: each phase is the same but
    for the rounding of microseconds, recompile and restart included."""
    trace = logging.getLogger("torch.__trace")
    path = tmp_path / "trace.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(torch._logging._internal.TorchLogsFormatter(trace=True))
    level = trace.level

    def net(x: Any) -> Any:
        torch._dynamo.graph_break()
        return _net(x)

    trace.addHandler(handler)
    trace.setLevel(logging.DEBUG)
    try:
        with watch() as watched:
            compiled = torch.compile(net, backend="aot_eager", dynamic=False)
            for size in (3, 4):
                x = torch.ones(size, size, requires_grad=True)
                compiled(x).sum().backward()
    finally:
        trace.removeHandler(handler)
        trace.setLevel(level)
        handler.close()
    events = [event for journal in read_trace(str(path)) for event in journal.events]
    recorded = [event for event in events if isinstance(event, Compiled)]
    live = watched.timeline.compiles
    assert len(live) == len(recorded) >= 4
    for own, other in zip(live, recorded, strict=True):
        assert (own.compile_id, own.forward) == (other.compile_id, other.forward)
        assert other.restarted_s == own.restarted_s
        # Our analysis of a recompile and the evaluations of guards that measure what they cost
        # are in torch's record, and in no phase of a run.
        analysed = {"entire_frame_compile", "dynamo"} if own.recompile is not None else set[str]()
        phases = dict(own.phases or ())
        # torch 2.7 does not time guards apart.
        measured = "build_guards" if "build_guards" in phases else "entire_frame_compile"
        skip = {measured, *analysed}
        assert set(phases) == set(dict(other.phases or ()))
        for name, seconds in other.phases or ():
            if name not in skip:
                assert phases[name] == pytest.approx(seconds, abs=1e-5), name
            else:
                assert phases[name] <= seconds + 1e-5
