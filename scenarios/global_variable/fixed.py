"""The loss weight is an argument, and a tensor.

Its value is data, so the schedule may move it as often as it likes; and the function says in
its signature what it depends on.
"""

import torch


@torch.compile(backend="eager")
def total_loss(main, auxiliary, auxiliary_weight):
    return main.mean() + auxiliary_weight * auxiliary.mean()


torch.manual_seed(0)
for step in range(6):
    auxiliary_weight = torch.tensor(min(step, 3))
    loss = total_loss(torch.randn(8), torch.randn(8), auxiliary_weight)
    print(f"step {step}: weight {auxiliary_weight}, loss {loss.item():.4f}")
