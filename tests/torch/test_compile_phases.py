"""Phases of real compiles: they add up to torch's own total, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compilediag.diagnosis.figures.compile_seconds import OTHER, compile_seconds, phase_of
from compilediag.runs.watch import watch

torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing compiled by another test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


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
    found = compile_seconds(attempts)
    assert found is not None
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
    assert [name for name in names if phase_of(name) == OTHER] == []


def test_nothing_is_left_in_torch() -> None:
    """Its logger is what it was before."""
    logger = torch._dynamo.utils.ChromiumEventLogger
    before = logger.log_event_start, logger.log_event_end
    with watch():
        torch.compile(_net, backend="eager")(torch.ones(2, 2))
    assert (logger.log_event_start, logger.log_event_end) == before
