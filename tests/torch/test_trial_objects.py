"""What a recorded run reads of a compiled optimizer."""

import pytest
import torch

from compilediag_harness.wire import StateRead
from tests.torch.test_trials import RECORDED, compiled, trying

pytestmark = [pytest.mark.filterwarnings("ignore")]


def trained(kind=torch.optim.SGD, rate=0.1):
    """Steps of a compiled optimizer whose scheduler halves the rate; what it holds then."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = kind(model.parameters(), lr=rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def update():
        optimizer.step()

    call = compiled(update)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(3, 2)).square().mean().backward()
        call()
        scheduler.step()
    return model.weight.detach().clone(), optimizer.param_groups[0]["lr"]


def test_what_an_optimizer_writes_is_an_answer():
    """Its step returns nothing: the parameters and what it holds of each are what it computes."""
    with trying(RECORDED) as events:
        trained(torch.optim.AdamW)
    paths = [answer.path for each in events.of(StateRead) for answer in each.answers]
    assert ".param_groups[0]['params'][1]" in paths
    assert ".param_groups[0]['params'][0] exp_avg" in paths
    assert not [path for path in paths if "lr" in path]
