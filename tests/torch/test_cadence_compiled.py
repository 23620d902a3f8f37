"""`due` inside compiled code: it answers, and torch compiles what it compiles without us."""

import torch

from compilediag.runs.watch import watch
from compilediag_harness.user_api.cadence import cadence
from compilediag_harness.wire import CadenceFired


def test_firings_inside_of_compiled_code_are_not_told() -> None:
    """Only what Dynamo does not trace is written down; docs/reference/probe.md says so."""
    group = cadence("inside", 2)

    @torch.compile(backend="eager")
    def forward(x: torch.Tensor, step: int) -> torch.Tensor:
        return x + 1 if group.due(step) else x - 1

    with watch() as seen:
        results = [forward(torch.zeros(()), step).item() for step in range(4)]
    assert results == [1, -1, 1, -1]
    assert not any(isinstance(event, CadenceFired) for event in seen.events)
    with watch() as seen:
        assert [group.due(step) for step in range(4)] == [True, False, True, False]
    names = [event.names for event in seen.events if isinstance(event, CadenceFired)]
    assert set(names) == {("inside",)}
