"""Buffers that are filled and overwritten: what source and samples tell, when it is a finding."""

from typing import Any

import torch
from attached import attached

from compilediag.timeline.timeline import fold
from compilediag_harness.base.session import Session
from compilediag_harness.collectors import syncs, tensor_reads
from compilediag_harness.steps import steps
from compilediag_harness.wire import Event


def test_a_sampled_step_tells_what_it_filled_and_wrote() -> None:
    """In bytes, by index and by value; what torch itself and other code writes is not told."""
    rows = [torch.ones(3), torch.ones(4)]
    doubled = torch.ones(2, 4)
    elsewhere = torch.zeros(4)

    def work() -> Any:
        made = []
        for _ in range(2):
            batch = torch.zeros(2, 4)
            for place, row in enumerate(rows):
                batch[place, : len(row)] = row
            made.append(batch)
        whole = doubled.new_zeros(4, 4)
        whole[[0, 1]] = doubled
        elsewhere[0] = 1.0
        return made

    events: list[Event] = []
    session = Session(events.append)
    with attached(session):
        for _ in range(syncs.QUIET_STEPS):
            steps.step()
        made = work()
        steps.step()
    assert [batch.sum().item() for batch in made] == [7.0, 7.0]
    assert not tensor_reads.list_patched_methods(torch.Tensor)
    (sample,) = fold([events]).syncs
    told = {item.name: item for item in sample.packed}
    assert set(told) == {"batch", "whole"}
    batch, whole = told["batch"], told["whole"]
    assert (batch.buffers, whole.buffers) == (2, 1)
    assert (batch.stores, batch.buffer_bytes, batch.written_bytes) == (4, 64, 56)
    assert (whole.stores, whole.buffer_bytes, whole.written_bytes) == (1, 64, 32)
    assert batch.seconds is not None
