"""Synchronisations against live torch: what is counted, and that nothing of torch notices."""

from __future__ import annotations

import os

import pytest
from sync_pieces import observed, warm_up

torch = pytest.importorskip("torch")

from compilediag_harness.collectors import tensor_reads  # noqa: E402
from compilediag_harness.steps import steps  # noqa: E402
from compilediag_harness.wire import SyncsSampled  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_in_a_sampled_step_is_clean() -> None:
    """The child, such as a loader's worker, has torch's own class; the parent goes on sampling."""
    value = torch.rand(())
    with observed() as events:
        warm_up()
        child = os.fork()
        if child == 0:
            os._exit(len(tensor_reads.names_of(torch.Tensor)))
        _, status = os.waitpid(child, 0)
        value.item()
        steps.step()
    assert os.waitstatus_to_exitcode(status) == 0
    assert [event.counts for event in events if isinstance(event, SyncsSampled)] == [(1,)]
