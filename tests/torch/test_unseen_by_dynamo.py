"""What finds the steps is below Dynamo: what was compiled before we come is not compiled again.

That all else is as in a plain run is shown by `tests/end_to_end/test_plain_run.py`.
"""

import pytest
import torch
from attached import attached
from torch._dynamo import utils

from compilediag_harness.base.session import Session


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("fresh_dynamo")
def test_a_compiled_step_is_not_compiled_again() -> None:
    """Where we come when it has been compiled already, and when we have gone."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    update = torch.compile(optimizer.step, backend="eager")

    def compiled() -> int:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            update()
            optimizer.zero_grad()
        return len(utils.get_compilation_metrics())

    before = compiled()
    assert before >= 1
    with attached(Session(lambda event: None)):
        assert compiled() == before
    assert compiled() == before
