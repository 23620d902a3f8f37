"""What a trial does to optimizers and hooks is what the line says that a user would write."""

import pytest
import torch

from compilediag_harness.trials.plan import Notes
from compilediag_harness.trials.settings import PlannedObjects
from compilediag_harness.wire import ObjectChange, Recompiled, StateRead, TrialPlan
from tests.torch.test_trials import RECORDED, applied_in, compiled, trying

pytestmark = [pytest.mark.filterwarnings("ignore")]

RATE = ObjectChange("tensor_hyperparameter", "lr")


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


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_rate_that_is_a_tensor_recompiles_nothing(kind):
    with trying(TrialPlan()) as before:
        weight, rate = trained(kind)
    with trying(TrialPlan(objects=(RATE,))) as after:
        other, tensor = trained(kind)
    assert type(rate) is float
    assert isinstance(tensor, torch.Tensor)
    assert applied_in(after) == {RATE.label: None}
    of_rate = [len([r for r in each.of(Recompiled) if "lr" in str(r)]) for each in (before, after)]
    assert of_rate[0] >= 1
    assert of_rate[1] == 0
    torch.testing.assert_close(other, weight)


def test_what_an_optimizer_writes_is_an_answer():
    """Its step returns nothing: the parameters and what it holds of each are what it computes."""
    with trying(RECORDED) as events:
        trained(torch.optim.AdamW)
    paths = [answer.path for each in events.of(StateRead) for answer in each.answers]
    assert ".param_groups[0]['params'][1]" in paths
    assert ".param_groups[0]['params'][0] exp_avg" in paths
    assert not [path for path in paths if "lr" in path]


def test_another_optimizer_keeps_its_numbers():
    """One that lacks the hyperparameter; it is no part that was not applied."""
    notes = Notes()
    change = ObjectChange("tensor_hyperparameter", "momentum")
    objects = PlannedObjects((change,), torch, notes)
    try:
        adam = torch.optim.Adam([torch.ones(1, requires_grad=True)])
        objects.change_new_optimizers()
        assert type(adam.param_groups[0]["lr"]) is float
        sgd = torch.optim.SGD([torch.ones(1, requires_grad=True)], momentum=0.5)
        objects.change_new_optimizers()
        assert float(sgd.param_groups[0]["momentum"]) == 0.5
        assert isinstance(sgd.param_groups[0]["momentum"], torch.Tensor)
    finally:
        objects.uninstall()
    late = torch.optim.SGD([torch.ones(1, requires_grad=True)], momentum=0.5)
    objects.change_new_optimizers()
    assert type(late.param_groups[0]["momentum"]) is float
