"""The program says which loss the labels of the head need, before the first call."""

import torch
from torch import nn
from torch.nn import functional


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.problem = None

    def forward(self, x, labels):
        scores = self.linear(x)
        if self.problem is None:
            self.problem = "one_label" if labels.dtype == torch.int64 else "several_labels"
        if self.problem == "one_label":
            return functional.cross_entropy(scores, labels)
        return functional.binary_cross_entropy_with_logits(scores, labels)


torch.manual_seed(0)
head = Head()
head.problem = "one_label"
compiled = torch.compile(head, backend="eager")
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

for step in range(4):
    loss = compiled(torch.randn(16, 8), torch.randint(0, 3, (16,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
